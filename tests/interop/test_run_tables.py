"""A table of an imported run equals the table of the dump's files, cell for cell, for every recorded dump."""

import dataclasses

import pytest

DUMPS = (
    "compare/md5_perturb",
    "compare/statistics_golden",
    "compare/tensor_perturb",
    "dump/fwd_statistics_L0",
    "dump/fwd_statistics_L1",
    "dump/train_stat_md5_mix",
    "dump/train_stat_mix_bf16",
    "dump/train_stat_xor_L1",
    "dump/train_statistics_mix",
    "dump/types_api",
    "dump/types_api_md5",
    "dump/types_debug",
    "dump/types_module",
    "mindspore/statistics_mix",
)


@pytest.fixture(autouse=True)
def recorded(name, request):
    """A test of MindSpore's dump is skipped where there is none."""
    if name.startswith("mindspore/"):
        request.getfixturevalue("mindspore_reference")


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    client_module = pytest.importorskip("msprobe_client.client")
    with client_module.Client(data_dir=tmp_path_factory.mktemp("data"), create=True) as client:
        yield client


@pytest.mark.parametrize("name", DUMPS)
def test_the_table_of_a_run_is_that_of_its_files(name, client, reference, tmp_path):
    dump = reference / name
    run = name.replace("/", "-")
    client.import_dump(dump, run)
    # Twice: the second time the layout is known.
    for attempt in ("cold", "warm"):
        tables = {}
        for kind, source in (("files", dump), (attempt, f"run:{run}")):
            reports = client.compare_tables(
                source, source, tmp_path, file_name=lambda chunk, kind=kind: f"{kind}_{chunk.step}.csv"
            )
            tables[kind] = [(tmp_path / report.path).read_text().splitlines() for report in reports]
        assert tables[attempt] == tables["files"]
        assert len(tables[attempt][0]) > 1


@pytest.mark.parametrize("name", DUMPS)
def test_a_run_equals_its_files(name, client, reference):
    run = name.replace("/", "-")
    found = list(client.compare(f"run:{run}", reference / name, rows="all", order="execution"))
    tensors = [row for row in found if hasattr(row, "verdict")]
    assert tensors and {row.verdict for row in tensors} <= {"equal", "unknown"}
    again = list(client.compare(f"run:{run}", f"run:{run}", rows="all", order="execution"))
    named = [(row.name, row.target_dtype, row.target_shape, row.module) for row in tensors]
    assert named == [
        (row.name, row.target_dtype, row.target_shape, row.module)
        for row in again
        if dataclasses.is_dataclass(row) and hasattr(row, "verdict")
    ]
