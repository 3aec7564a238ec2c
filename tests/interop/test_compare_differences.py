"""Result tables that differ from mindstudio-probe's on purpose: rows of docs/compatibility.md, one test each."""

import csv
import json
import math

import pytest
from test_compare import binary, compare, entry, leaf, only, scalar, write_side  # noqa: F401
from test_old_commands import found, msprobe


def rows(binary, sides, out, *options):  # noqa: F811
    """The table of two dictionaries of entries, as (target's name, golden's name) -> row."""
    for side, data in zip(("target", "golden"), sides, strict=True):
        write_side(out / side, data, "statistics")
    compare(binary, *(out / side / "dump.json" for side in ("target", "golden")), out / "result", *options)
    with only(out / "result").open(newline="") as file:
        return {(row["NPU Name"], row["Bench Name"]): row for row in csv.DictReader(file)}


def call(name, count, top):
    return {f"{name}.{count}.forward": entry([leaf()], [leaf(stats=(top, 1.0, 1.0, 1.0))])}


def test_fuzzy_rows_have_the_numbers_of_their_partners(binary, tmp_path):  # noqa: F811
    target = {**call("Torch.add", 0, 2.0), **call("Torch.mul", 0, 3.0)}
    golden = {**call("Torch.add", 4, 2.0), **call("Torch.mul", 7, 5.0)}
    table = rows(binary, (target, golden), tmp_path, "-fm")
    add = table["Torch.add.0.forward.output.0", "Torch.add.4.forward.output.0"]
    mul = table["Torch.mul.0.forward.output.0", "Torch.mul.7.forward.output.0"]
    columns = ("NPU max", "Bench max", "Max diff")
    assert [float(add[column]) for column in columns] == [2.0, 2.0, 0.0]
    assert [float(mul[column]) for column in columns] == [3.0, 5.0, -2.0]


def test_fuzzy_rows_behind_the_end_of_the_shorter_side_have_no_partner(binary, tmp_path):  # noqa: F811
    target = {**call("Torch.add", 0, 2.0), **call("Torch.mul", 0, 3.0)}
    table = rows(binary, (target, call("Torch.add", 4, 2.0)), tmp_path, "-fm")
    assert ("Torch.mul.0.forward.output.0", "N/A") in table


def test_values_that_a_spreadsheet_would_run_are_written(binary, tmp_path):  # noqa: F811
    texts = ("=1+1", "+1", "-1", "@a")
    data = {"Torch.text.0.forward": entry([scalar(text) for text in texts], [leaf()])}
    table = rows(binary, (data, data), tmp_path)
    written = [table[(f"Torch.text.0.forward.input.{place}",) * 2]["NPU max"] for place in range(len(texts))]
    assert [text.lstrip("'") for text in written] == list(texts)


@pytest.mark.parametrize("api", ["npu_grouped_matmul", "npu_dequant_swiglu_quant"])
def test_contents_are_compared_as_they_are(api, binary, tmp_path):  # noqa: F811
    """Both take the number of rows that count; the rows behind it are compared too."""
    torch = pytest.importorskip("torch")
    name = f"NPU.{api}.0.forward"
    sides = {"target": torch.tensor([[1.0], [2.0], [90.0]]), "golden": torch.tensor([[1.0], [2.0], [50.0]])}
    for side, output in sides.items():
        groups = {"group_list": torch.tensor([2]), "group_index": torch.tensor([2])}
        tensors = {f"{name}.output.0.pt": output}
        tensors |= {f"{name}.input.{key}.pt": value for key, value in groups.items()}
        kwargs = {
            key: leaf("torch.int64", (1,), (2, 2, None, None), data_name=f"{name}.input.{key}.pt") for key in groups
        }
        write_side(
            tmp_path / side, {name: entry([], [leaf(shape=(3, 1), data_name=f"{name}.output.0.pt")], kwargs)}, "tensor"
        )
        (tmp_path / side / "dump_tensor_data").mkdir()
        for file, tensor in tensors.items():
            torch.save(tensor, tmp_path / side / "dump_tensor_data" / file)
    compare(binary, *(tmp_path / side / "dump.json" for side in sides), tmp_path / "result")
    with only(tmp_path / "result").open(newline="") as file:
        (row,) = [row for row in csv.DictReader(file) if row["NPU Name"] == f"{name}.output.0"]
    assert float(row["MaxAbsErr"]) == 40.0


def test_both_parts_of_complex_contents_are_compared(binary, tmp_path):  # noqa: F811
    torch = pytest.importorskip("torch")
    file = "Torch.fft.0.forward.output.0.pt"
    for side, imaginary in (("target", 4.0), ("golden", 1.0)):
        data = {"Torch.fft.0.forward": entry([], [leaf("torch.complex64", (2,), data_name=file)])}
        write_side(tmp_path / side, data, "tensor")
        (tmp_path / side / "dump_tensor_data").mkdir()
        torch.save(torch.tensor([1.0 + imaginary * 1j, 2.0]), tmp_path / side / "dump_tensor_data" / file)
    compare(binary, *(tmp_path / side / "dump.json" for side in ("target", "golden")), tmp_path / "result")
    with only(tmp_path / "result").open(newline="") as table:
        (row,) = csv.DictReader(table)
    assert float(row["MaxAbsErr"]) == 3.0


def test_all_steps_are_compared_and_ranks_by_their_numbers(binary, tmp_path):  # noqa: F811
    for side, ranks in (("target", (0, 3)), ("golden", (3,))):
        for step in (0, 2):
            for rank in ranks:
                write_side(tmp_path / side / f"step{step}" / f"rank{rank}", call("Torch.add", 0, 2.0), "statistics")
    msprobe(
        *("compare", "-tp", tmp_path / "target", "-gp", tmp_path / "golden", "-o", tmp_path / "result"), binary=binary
    )
    written = list((tmp_path / "result").rglob("*compare_result_*.csv"))
    assert len(written) == 2 and all("rank3" in path.name for path in written)
    for path in written:
        with path.open(newline="") as file:
            assert [row["Result"] for row in csv.DictReader(file)] == ["pass", "pass"]


def test_a_layer_mapping_is_applied_to_pytorch(reference, binary, tmp_path):  # noqa: F811
    target = reference / "compare/statistics_golden/step0/proc1"
    golden = tmp_path / "golden"
    golden.mkdir()
    for file in ("dump.json", "construct.json", "stack.json"):
        (golden / file).write_text((target / file).read_text().replace(".layers.", ".blocks."))
    (tmp_path / "layers.yaml").write_text(json.dumps({"TopLayer": {"model.layers": "model.blocks"}}))
    without, applied = tmp_path / "without", tmp_path / "applied"
    compare(binary, target / "dump.json", golden / "dump.json", without)
    compare(binary, target / "dump.json", golden / "dump.json", applied, "-lm", tmp_path / "layers.yaml")
    partners = []
    for directory in (without, applied):
        with only(directory).open(newline="") as file:
            table = list(csv.DictReader(file))
        partners.append({row["Bench Name"] for row in table if ".layers." in row["NPU Name"]})
    assert partners[0] == {"N/A"}
    assert "N/A" not in partners[1] and all(".blocks." in name for name in partners[1])


@pytest.mark.parametrize("origin", ["weight", "input"])
def test_overflow_check_lists_weights_and_inputs_that_nobody_made(origin, binary, tmp_path):  # noqa: F811
    """Here a module alone, and an operation that makes nothing of it."""
    nan, module = leaf(stats=(math.nan,) * 4), "Module.net.Net.forward.0"
    data = {
        "weight": {module: {**entry([leaf()], [nan]), "parameters": {"weight": nan}}},
        "input": {"Torch.add.0.forward": entry([nan], [leaf()])},
    }[origin]
    step = tmp_path / "step0"
    write_side(step / "rank0", data, "statistics")
    (step / "rank0" / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    msprobe("overflow_check", "-i", step, "-o", tmp_path / "out", binary=binary)
    listed = json.loads(found(tmp_path / "out", "anomaly_analyze_*.json").read_text())
    assert [item["op_name"] for item in listed["rank_0"]] == list(data)
