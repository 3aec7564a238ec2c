"""A net that is written twice, in MindSpore and in torch, with the same weights: each part has its counterpart, and a
wrong weight is found. The second step of MindSpore has one."""

import collections
import csv
import pathlib
import sqlite3
import sys

import pytest
from harness.mindspore import PROGRAMS, run

pytest.importorskip("torch")
FAULT = "blocks.1.up"
# Buffers, and the gradient of the image, which torch does not record.
ALONE = {"Cell.conv.Conv2d.backward.0.output.0"} | {
    f"Cell.bn.BatchNorm2d.forward.0.parameters.moving_{name}" for name in ("mean", "variance")
}
CALLS = {
    "Mint.add.0.forward.input.1": "Torch.add.0.forward.input.1",
    "Mint.matmul.3.forward.output.0": "Torch.matmul.3.forward.output.0",
    "Mint.matmul.0.backward.input.0": "Torch.matmul.0.backward.input.0",
    "Mint.tanh.1.backward.output.0": "Torch.tanh.1.backward.output.0",
    "MintFunctional.softmax.1.forward.input.0": "Functional.softmax.1.forward.input.0",
    "Mint.sum.0.forward.output.0": "Tensor.sum.0.forward.output.0",
    "Tensor.__mul__.1.forward.input.0": "Tensor.__mul__.1.forward.input.0",
}
WITHIN = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(scope="module")
def asked(run_program, tmp_path_factory):
    """The client, MindSpore's dump and torch's."""
    from msprobe_client.client import Client

    root = tmp_path_factory.mktemp("twice")
    run(sys.executable, PROGRAMS / "twice_torch.py", root / "torch", root / "weights.npz")
    run_program(PROGRAMS / "twice_mindspore.py", root / "mindspore", root / "weights.npz", FAULT)
    with Client(data_dir=root / "data", create=True) as client:
        yield client, root / "mindspore", root / "torch"


def rows_of(found):
    return [row for row in found if hasattr(row, "verdict")]


@pytest.mark.parametrize("swapped", [False, True], ids=["mindspore", "torch"])
def test_what_has_a_counterpart_has_its_partner_and_agrees(swapped, asked):
    client, *sides = asked
    target, golden = reversed(sides) if swapped else sides
    rows = rows_of(client.compare(target, golden, steps=[(0, 0)], rows="all", **WITHIN))
    pairs = [row for row in rows if row.verdict not in ("target only", "golden only")]
    assert {row.verdict for row in pairs if ".backward.output." not in row.name} == {"equal", "within"}
    assert {row.verdict for row in pairs} == {"equal", "within", "unknown"}
    alone = {row.name for row in rows if row.verdict == ("golden only" if swapped else "target only")}
    assert {name for name in alone if name.startswith("Cell.")} == ALONE
    of_both = {row.name: row.golden_name or row.name for row in pairs}
    calls = {theirs: ours for ours, theirs in CALLS.items()} if swapped else CALLS
    assert {name: of_both.get(name) for name in calls} == calls


@pytest.mark.parametrize("swapped", [False, True], ids=["mindspore", "torch"])
def test_the_first_divergence_is_the_module_with_the_wrong_weight(swapped, asked):
    client, *sides = asked
    target, golden = reversed(sides) if swapped else sides
    assert list(client.first_divergence(target, golden, steps=[(0, 0)], **WITHIN)) == []
    (first,) = (found for found in client.first_divergence(target, golden, **WITHIN) if found.first)
    assert (first.step, first.module, first.blame) == (1, FAULT, "weight")
    assert first.golden_op and first.golden_op != first.op
    assert first.culprit.endswith(".parameters.weight")


def test_a_table_of_mindstudio_probe_condemns_only_what_differs(asked, tmp_path):
    from msprobe_client import name_mapping

    client, mindspore, torch = asked
    for mapping in (None, name_mapping.mapping(cell=True)):
        (report,) = client.compare_tables(
            mindspore,
            torch,
            tmp_path,
            file_name=lambda chunk: f"compare_result_{chunk.step}.csv",
            steps=[(0, 0)],
            mapping=mapping,
        )
        with pathlib.Path(report.path).open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["Bench Name"] != "N/A"]
        cells = [row for row in rows if row["NPU Name"].startswith("Cell.")]
        assert len(cells) > 100 and {row["Result"] for row in cells} == {"pass"}, collections.Counter(
            row["Err_message"] for row in cells
        )
        assert (mapping is None) is any(row["NPU Name"].startswith("Mint.") for row in rows)


def test_trends_and_graphs_of_both_belong_together(asked, tmp_path):
    client, mindspore, torch = asked
    (series,) = client.trend(mindspore, "Cell.head.Dense.forward.0.output.0", golden=torch)
    right, wrong = series.points
    assert right.value == pytest.approx(right.golden, rel=1e-3)
    assert wrong.value != pytest.approx(wrong.golden, rel=1e-3)
    client.graph(mindspore, tmp_path / "pair.vis.db", torch, steps=[(0, 0)])
    with sqlite3.connect(tmp_path / "pair.vis.db") as database:
        links = dict(database.execute("SELECT node_name, matched_node_link FROM tb_nodes WHERE data_source = 'NPU'"))
        values = dict(database.execute("SELECT node_name, precision_index FROM tb_nodes WHERE data_source = 'NPU'"))
    cells = {name for name in links if name.startswith("Cell.")}
    assert {name for name in cells if not links[name]} == set()
    assert {name: values[name] for name in cells if values[name]} == {}, "a cell differs"
    assert "Module.blocks.0.up.Linear.forward.0" in links["Cell.blocks.0.up.Dense.forward.0"]
