"""acc_check, multi_acc_check, api_precision_compare, run_overflow_check: held to mindstudio-probe's own on the CPU."""

import csv
import functools
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys

import pytest
from harness.processes import environment, run
from test_compare import binary  # noqa: F401
from test_old_commands import found

torch = pytest.importorskip("torch")

from msprobe_client.check import replay  # noqa: E402
from msprobe_client.check.arguments import Arguments  # noqa: E402
from msprobe_client.check.measuring import Measuring  # noqa: E402
from msprobe_client.client import Client  # noqa: E402
from msprobe_client.proto import check_pb2  # noqa: E402

HERE = pathlib.Path(__file__).parent
# What mindstudio-probe leaves blank since 26.0; acc_check_oracle.py gives it back its own table of standards.
LIVE = {
    "binary": ("二进制一致错误率",),
    "absolute": ("inf/nan错误率", "相对误差错误率", "绝对误差错误率"),
    "ulp": ("ULP误差最大值", "ULP误差平均值", "ULP误差大于阈值占比"),
    "thousandth": ("双千指标",),
}
LIVE_COLUMNS = {column for columns in LIVE.values() for column in columns}
BENCHMARK_COLUMNS = {"误差均衡性", "均方根误差", "小值域错误占比", "相对误差最大值", "相对误差平均值"}
KEYWORD_GRADIENT = "Functional.layer_norm.0.backward.output.1"
WITH_STANDARDS = ["linear", "matmul", "mm", "relu", "conv2d", "__mul__"]


def ask(*words, binary, program_path=None):  # noqa: F811
    """msprobe WORDS; what it printed."""
    program = "from msprobe_client.compat.legacy import main\nif __name__ == '__main__': main()"
    path = {} if program_path is None else {"PYTHONPATH": f"{program_path}:{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        **{"capture_output": True, "text": True, "timeout": 120, "check": False},
        env=environment(MSPROBE_SERVER_BINARY=str(binary), **path),
    )


def table(folder, pattern):
    """Rows by name, as {column: cell}."""
    with found(folder, pattern).open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    header, *rest = rows
    assert len({row[0] for row in rest}) == len(rest)
    return {row[0]: dict(zip(header, [*row, *[""] * (len(header) - len(row))], strict=True)) for row in rest}


result = functools.partial(table, pattern="*_result_*.csv")
details = functools.partial(table, pattern="*_details_*.csv")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("acc_check")


@pytest.fixture(scope="module")
def dumps(root):
    """task -> dump.json"""
    made = {}
    for task in ("tensor", "statistics"):
        run([sys.executable, HERE / "checked_calls.py", root / task, task])
        (made[task],) = (root / task).rglob("dump.json")
    return made


@pytest.fixture(scope="module")
def check(root, dumps, binary):  # noqa: F811
    """check(name, *options): the folder of the tables of acc_check on the saved tensors. Done once."""

    @functools.cache
    def once(name, *options, task="tensor"):
        done = ask("acc_check", "-api_info", dumps[task], "-o", root / name, *options, binary=binary)
        assert (done.returncode, done.stderr) == (0, "")
        return root / name

    return once


@pytest.fixture(scope="module")
def white_list(root):
    """A config.json; mul is in both lists."""
    section = {"white_list": [*WITH_STANDARDS, "mul"], "black_list": ["mul"], "error_data_path": str(root)}
    shared = {"task": "acc_check", "dump_path": str(root), "rank": [], "step": [], "level": "L1"}
    (root / "white.json").write_text(json.dumps({**shared, "acc_check": section}))
    return root / "white.json"


@pytest.fixture(scope="module")
def pair(check, root):
    """Two details of ours: the second with other errors."""
    mine = found(check("ours"), "*_details_*.csv")
    with mine.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.reader(file))
    draw = random.Random(3)
    for row in rows[1:]:
        if row[0].startswith("Functional.dropout"):  # mindstudio-probe's table has no row of it
            continue
        for at, column in enumerate(rows[0]):
            if column in LIVE_COLUMNS | BENCHMARK_COLUMNS and row[at].strip():
                row[at] = f"{(float(row[at]) + draw.choice((0, 1e-4, 0.02))) * draw.choice((0.01, 1, 1, 4, 30)):.14f}"
    kept = [row for row in rows if not row[0].startswith("Functional.dropout")]
    other = root / "accuracy_checking_details_20260101000000.csv"
    with other.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows(kept)
    return other, mine


@pytest.fixture(scope="module")
def numbers(root):
    """A dump.json of calls whose output is a number."""
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [], "requires_grad": False,
              "Max": 2.0, "Min": 2.0, "Mean": 2.0, "Norm": 2.0}  # fmt: skip
    outputs = {
        "Torch.equal": {"type": "bool", "value": True},
        "Tensor.__bool__": {"type": "bool", "value": True},
        "Tensor.item": {"type": "float", "value": 2.0},
        "Torch.numel": {"type": "int", "value": 1},
    }
    calls = {
        f"{name}.0.forward": {
            "input_args": [tensor] * (2 if name == "Torch.equal" else 1),
            "input_kwargs": {},
            "output": [value],
        }
        for name, value in outputs.items()
    }
    document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": calls}
    (root / "numbers").mkdir()
    (root / "numbers" / "dump.json").write_text(json.dumps(document))
    return root / "numbers" / "dump.json"


@pytest.fixture(scope="module")
def theirs(root, dumps, numbers, white_list, pair, oracle_python):
    """Name -> folder of their tables."""
    names = {"plain": False, "standards": True, "numbers": False, "precision": True, "precision_26": False}
    arguments = {
        "plain": ["-api_info", dumps["tensor"]],
        "standards": ["-api_info", dumps["tensor"], "-config", white_list],
        "numbers": ["-api_info", numbers],
        "precision": ["-npu", pair[0], "-gpu", pair[1]],
        "precision_26": ["-npu", root / "cut_npu.csv", "-gpu", root / "cut_gpu.csv"],
    }
    for path, name in zip(pair, ("cut_npu.csv", "cut_gpu.csv"), strict=True):
        cut_to_the_benchmark(path, root / name)
    asked = [
        {
            "command": "api_precision_compare" if "precision" in name else "acc_check",
            "arguments": [*map(str, words), "-o", str(root / "theirs" / name)],
            "live": names[name],
        }
        for name, words in arguments.items()
    ]
    (root / "asked.json").write_text(json.dumps(asked))
    run([oracle_python, HERE / "acc_check_oracle.py", root / "asked.json"], PYTHONPATH=None, timeout=500)
    return {name: root / "theirs" / name for name in names}


def cut_to_the_benchmark(path, target):
    """As mindstudio-probe 26 writes it: without what other standards read."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if "float" in row["DEVICE Dtype"]:
            row.update(dict.fromkeys(LIVE_COLUMNS, " "))
    with target.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def same(ours, theirs):
    if ours == theirs:
        return True
    try:
        return float(ours) == pytest.approx(float(theirs), rel=3e-6, abs=1e-12)
    except ValueError:
        return False


def differences(ours, theirs, columns):
    return [
        (name, column, ours[name][column], row[column])
        for name, row in theirs.items()
        for column in columns
        if not same(ours[name][column], row[column])
    ]


@pytest.mark.timeout(600)
def test_the_tables_are_the_same(check, theirs):
    ours, real = details(check("ours")), details(theirs["plain"])
    more = {"Functional.dropout.0.forward.output.0", KEYWORD_GRADIENT}
    assert [name for name in ours if name not in more] == list(real) and more < set(ours)
    assert ours[KEYWORD_GRADIENT]["Status"] == "pass" and ours[KEYWORD_GRADIENT]["Shape"] == "(6,)"
    assert len(real) > 40
    columns = list(real["Functional.gelu.0.forward.output.0"])
    assert list(ours["Functional.gelu.0.forward.output.0"]) == columns
    standard = {"Message", *LIVE_COLUMNS}
    wrong = differences(ours, real, [column for column in columns if column not in standard])
    allowed = [each for each in wrong if each[0].startswith("Torch.mul.0") or of_bfloat16(real, each)]
    assert wrong == allowed
    # The other shares of elements are in `standard` for conv2d alone.
    wrong = differences(ours, real, ["双千指标"])
    assert {each[0] for each in wrong if not of_bfloat16(real, each)} <= {
        "Torch.mul.0.forward.output.0",
        *(name for name in real if "conv2d" in name),
    }
    mine, other = result(check("ours")), result(theirs["plain"])
    assert list(mine) == list(other)
    verdicts = ("Forward Test Success", "Backward Test Success")
    wrong = [name for name, *_ in differences(mine, other, verdicts)]
    assert set(wrong) == {"Torch.mul.0", "Functional.dropout.0"}
    assert {row["Forward Test Success"] for row in mine.values()} >= {"pass", "warning"}


def of_bfloat16(rows, difference):
    """docs/compatibility.md, "acc-check-bfloat16"."""
    name, column, *_ = difference
    return rows[name]["DEVICE Dtype"] == "torch.bfloat16" and column in ("误差均衡性", "双百指标", "双千指标")


@pytest.mark.timeout(600)
def test_what_every_standard_reads_is_the_same(check, theirs, white_list):
    ours, real = details(check("standards", "-config", white_list)), details(theirs["standards"])
    assert list(ours) == list(real)
    read = [(name, column) for name, row in real.items() for column in LIVE_COLUMNS if row[column].strip()]
    assert {column for _, column in read} == LIVE_COLUMNS and len(read) > 30
    wrong = [each for each in differences(ours, real, LIVE_COLUMNS) if not of_bfloat16(real, each)]
    assert not wrong
    mine, other = result(check("standards", "-config", white_list)), result(theirs["standards"])
    skipped = {name for name, row in other.items() if row["Forward Test Success"] == "SKIP"}
    assert skipped == {name for name, row in mine.items() if row["Forward Test Success"] == "SKIP"}
    assert mine["Torch.mul.0"]["Message"] == "mul is in the black list"
    assert mine["Torch.exp.0"]["Message"] == "exp is not in the white list"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["precision", "precision_26"])
def test_three_ways_are_judged_the_same(name, root, pair, theirs, binary):  # noqa: F811
    """By the standard of each operator; and by the benchmark alone where a table has nothing else."""
    npu, gpu = pair if name == "precision" else (root / "cut_npu.csv", root / "cut_gpu.csv")
    done = ask("api_precision_compare", "-npu", npu, "-gpu", gpu, "-o", root / name, binary=binary)
    assert (done.returncode, done.stderr) == (0, "")
    ours, real = details(root / name), details(theirs[name])
    assert list(ours) == list(real)
    columns = [column for column in next(iter(real.values())) if column != "Message"]
    assert list(next(iter(ours.values()))) == [*columns, "Message"]
    assert not differences(ours, real, columns)
    judged = [row for row in real.values() if row["比对结果"] in ("pass", "error")]
    assert {row["比对结果"] for row in judged} == {"pass", "error"}
    assert len({row["比对算法"] for row in judged}) == (5 if name == "precision" else 2)
    mine, other = result(root / name), result(theirs[name])
    assert list(mine) == list(other)
    assert not differences(mine, other, ("Forward Test Success",))


def test_a_row_without_numbers_has_the_first_stages_verdict(check, root, binary):  # noqa: F811
    path = root / "accuracy_checking_details_20260202000000.csv"
    with found(check("ours"), "*_details_*.csv").open(encoding="utf-8-sig", newline="") as file:
        header, *_ = csv.reader(file)
    cells = {"API Name": "Torch.mv.0.forward.output.0", "DEVICE Dtype": "torch.float32", "Status": "error"}
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        csv.writer(file).writerows([header, [cells.get(column, " ") for column in header]])
    done = ask("api_precision_compare", "-npu", path, "-gpu", path, "-o", root / "unmeasured", binary=binary)
    assert (done.returncode, done.stderr) == (0, "")
    assert result(root / "unmeasured")["Torch.mv.0"]["Forward Test Success"] == "error"


def test_where_mindstudio_passes_what_is_wrong(oracle_python, root):
    """Each is a pass of theirs; the right one beside it shows that not everything fails."""
    generator = torch.Generator().manual_seed(11)
    right = torch.randn(50_000, generator=generator, dtype=torch.float64)
    outputs = {}
    for name, at, value in (("nan", 777, float("nan")), ("inf", 777, float("inf")), ("zeroed", slice(0, 4), 0.0)):
        outputs[name] = (right.float().clone(), right)
        outputs[name][0][at] = value
    small = right * 1e-5
    outputs["small"] = ((small * 1.5).float(), small)
    outputs["right"] = (right.float(), right)
    pairs = [("softmax", *pair) for pair in outputs.values()]
    outputs["int8"] = (torch.tensor([127, 3], dtype=torch.int8), torch.tensor([-128, 3], dtype=torch.int8))
    pairs.append(("npu_dynamic_quant", *outputs["int8"]))
    torch.save(pairs, root / "pairs.pt")
    script = HERE / "check_oracle.py"
    run([oracle_python, script, root / "pairs.pt", root / "answers.json"], PYTHONPATH=None, timeout=200)
    assert {answer["status"] for answer in json.loads((root / "answers.json").read_text())} == {"pass"}
    with Client(data_dir=root / "data", create=True) as client, Measuring(client, "acc-check") as measuring:
        verdicts = {name: measuring.measured(*pair).verdict for name, pair in zip(outputs, pairs, strict=True)}
    passed = {name for name, verdict in verdicts.items() if verdict.outcome == check_pb2.Verdict.PASS}
    assert passed == {"right"}, verdicts
    assert verdicts["nan"].rule == "inf_nan"


@pytest.mark.timeout(600)
def test_numbers_are_outputs_like_others(root, numbers, theirs, binary):  # noqa: F811
    done = ask("acc_check", "-api_info", numbers, "-o", root / "our_numbers", binary=binary)
    assert (done.returncode, done.stderr) == (0, "")
    mine, other = result(root / "our_numbers"), result(theirs["numbers"])
    assert list(mine) == list(other)
    assert {row["Forward Test Success"] for row in mine.values()} == {"pass"}
    # It compares those of the functions that it wraps; the others end in an error of Python that it writes down.
    assert {name for name, row in other.items() if row["Forward Test Success"] == "SKIP"} == {
        "Tensor.item.0",
        "Torch.numel.0",
    }
    name = "Torch.equal.0.forward.output.0"
    ours, real = details(root / "our_numbers")[name], details(theirs["numbers"])[name]
    assert (ours["DEVICE Dtype"], real["DEVICE Dtype"]) == ("torch.bool", "<class 'bool'>")
    assert (ours["Status"], real["Status"]) == ("pass", "pass")
    assert float(ours["二进制一致错误率"]) == float(real["二进制一致错误率"]) == 0


def test_a_convolution_in_hf32_is_right_by_the_table_and_not_by_default(root):
    """HF32 is float32 with 11 bits of mantissa: an NPU rounds what it convolves to it."""
    generator = torch.Generator().manual_seed(5)
    exact = [torch.rand(size, generator=generator) for size in ((2, 3, 9, 9), (4, 3, 3, 3))]
    places = [("input.0", exact[0]), ("input.1", exact[1])]
    assert replay.raised("conv2d", Arguments(exact, {}, tensors=places))(exact[0]).dtype == torch.float32
    assert replay.raised("matmul", Arguments(exact, {}, tensors=places))(exact[0]).dtype == torch.float64
    rounded = [((each.view(torch.int32) + (1 << 11)) & -(1 << 12)).view(torch.float32) for each in exact]
    output = torch.nn.functional.conv2d(*rounded)
    golden = torch.nn.functional.conv2d(*(each.double() for each in exact))
    rules = {}
    with Client(data_dir=root / "hf32", create=True) as client:
        for policy in ("documented", "default"):
            with Measuring(client, policy) as measuring:
                verdict = measuring.measured("conv2d", output, golden).verdict
                rules[policy] = (verdict.outcome == check_pb2.Verdict.PASS, verdict.rule)
    assert rules["documented"] == (True, "double_thousandth")
    assert not rules["default"][0]


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_every_code_of_float8_is_what_it_stands_for(dtype):
    codes = torch.arange(256, dtype=torch.uint8).view(dtype)
    arguments = Arguments([codes], {}, tensors=[("input.0", codes)])
    raised = replay.raised("mm", arguments)(codes)
    assert raised.dtype == torch.float32
    bias, bits = (7, 3) if dtype == torch.float8_e4m3fn else (15, 2)
    for code in range(128):
        exponent, mantissa = code >> bits, (code & ((1 << bits) - 1)) / (1 << bits)
        value = (1 + mantissa) * 2.0 ** (exponent - bias) if exponent else mantissa * 2.0 ** (1 - bias)
        if value > torch.finfo(dtype).max:
            assert not raised[code].isfinite()
        else:
            assert [raised[code].item(), raised[code + 128].item()] == [value, -value]


def test_an_interrupted_check_goes_on(check, root, dumps, binary):  # noqa: F811
    """The second table was ahead of the first: what a kill in between leaves. -f leaves out the second gt."""
    whole = check("ours")
    shutil.copytree(whole, root / "cut")
    for pattern, lines in (("*_result_*.csv", 12), ("*_details_*.csv", 30)):
        path = found(root / "cut", pattern)
        path.write_bytes(b"\r\n".join(path.read_bytes().split(b"\r\n")[:lines]) + b"\r\n")
    assert not any(name.startswith("Torch.gt.0") for name in result(root / "cut"))
    cut = found(root / "cut", "*_result_*.csv")
    done = ask("acc_check", "-api_info", dumps["tensor"], "-csv_path", cut, "-f", binary=binary)
    assert (done.returncode, done.stderr) == (0, "") and str(cut) in done.stdout
    for pattern in ("*_result_*.csv", "*_details_*.csv"):
        lines = found(whole, pattern).read_bytes().split(b"\r\n")
        once = [line for line in lines if not line.startswith(b"Torch.gt.1")]  # -f: it is like the first
        assert len(once) == len(lines) - 1
        assert found(root / "cut", pattern).read_bytes() == b"\r\n".join(once)


def test_processes_share_the_calls_and_one_that_dies_costs_one(check, root, dumps, binary):  # noqa: F811
    """sin kills its process, pow raises in float32, and gelu has another answer in it; one name has "forward" in it."""
    planted = root / "planted"
    planted.mkdir()
    (planted / "sitecustomize.py").write_text(
        "import os, torch\n"
        "torch.sin = lambda *_: os.kill(os.getpid(), 11)\n"
        "power, right = torch.pow, torch.nn.functional.gelu\n"
        "torch.pow = lambda x, y: power(x, y) if x.dtype == torch.float64 else x.no_such_method\n"
        "torch.nn.functional.gelu = lambda x, **more: right(x, **more) * (1.01 if x.dtype == torch.float32 else 1)\n"
    )
    errors = root / "errors"
    errors.mkdir()
    config = root / "errors.json"
    config.write_text(json.dumps({"acc_check": {"error_data_path": str(errors)}}))
    options = ("-o", root / "shared", "-n", 2, "-config", config, "-save_error_data")
    text = dumps["tensor"].read_text().replace('"Torch.gt.0.forward', '"Functional.gt_forward.0.forward')
    shutil.copytree(dumps["tensor"].parent, root / "renamed")
    renamed = root / "renamed/part.json"
    renamed.write_text(text)
    done = ask("multi_acc_check", "-api_info", renamed, *options, binary=binary, program_path=planted)
    assert (done.returncode, done.stderr) == (0, "")
    mine, one = result(root / "shared"), result(check("ours"))
    assert (
        mine.pop("Functional.gt_forward.0")["Message"]
        == "Functional.gt_forward is not in this environment and has no composition"
    )
    del one["Torch.gt.0"]
    assert list(mine) == list(one)
    changed = {name: row for name, row in mine.items() if row != one[name]}
    assert set(changed) == {"Functional.gelu.0", "Torch.sin.0", "Torch.pow.0"}
    assert changed["Torch.pow.0"]["Forward Test Success"] == "error"
    assert "no_such_method" in changed["Torch.pow.0"]["Message"]
    assert changed["Torch.sin.0"]["Message"] == "the process that ran it ended with SIGSEGV"
    gelu = changed["Functional.gelu.0"]
    assert [gelu["Forward Test Success"], gelu["Backward Test Success"]] == ["error", "error"]
    (folder,) = errors.iterdir()
    assert folder.name == f"ut_error_data{found(root / 'shared', '*_result_*.csv').stem[-14:]}"
    kept = {path.name.removeprefix("Functional.gelu.0."): path for path in folder.glob("Functional.gelu.0.*")}
    sides = [torch.load(kept[f"forward.output.{side}.0.pt"], weights_only=True) for side in ("device", "bench")]
    assert torch.allclose(sides[0].double(), sides[1] * 1.01, atol=1e-5)
    assert {"forward.input.0.pt", "backward.input.0.pt", "backward.output.bench.0.pt"} < set(kept)
    assert not list(folder.glob("Functional.linear.0.*"))


def test_drawn_inputs_have_the_same_rows(check):
    """Other numbers than mindstudio-probe draws, with the same verdicts. -f leaves out the second gt."""
    saved, drawn = details(check("ours")), details(check("drawn", "-f", task="statistics"))
    assert saved.pop("Torch.gt.1.forward.output.0")["Status"] == "pass"
    assert list(drawn) == list(saved)
    for name, row in drawn.items():
        assert row["DEVICE Dtype"] == saved[name]["DEVICE Dtype"], name
        assert row["Status"] in ("pass", "warning", "SKIP"), row


def test_overflows_are_told_apart(dumps, binary):  # noqa: F811
    done = ask("-f", "pytorch", "run_overflow_check", "-api_info", dumps["tensor"], binary=binary)
    said = "The Torch.mul.0 overflow is a normal overflow.\n1 normal and 0 abnormal overflows.\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")


def test_what_is_wrong_is_said_in_one_line(root, dumps, binary):  # noqa: F811
    folder = root / "mindspore"
    folder.mkdir()
    (folder / "dump.json").write_text('{"task": "tensor", "framework": "mindspore", "data": {}}')
    for name, text in {
        "list": '{"acc_check": {"white_list": ["conv3000d"]}}',
        "task": '{"task": "statistics"}',
    }.items():
        (root / f"{name}.json").write_text(text)
    (root / "accuracy_checking_result_20260101000000.csv").write_text("name,pass\n")
    for words, problem in (
        (["-api_info", root / "nowhere.json"], "nowhere.json is not a file; name the dump.json of one rank"),
        (["-api_info", folder / "dump.json", "-f"], "-f is for a dump.json of PyTorch, and "),
        (["-api_info", dumps["tensor"], "-csv_path", root / "mine.csv"], "is not called accuracy_checking_result_"),
        (["-api_info", dumps["tensor"], "-config", root / "list.json"], "white_list names 'conv3000d'"),
        (["-api_info", dumps["tensor"], "-config", root / "task.json"], 'has no object "acc_check"'),
        (
            ["-api_info", dumps["tensor"], "-csv_path", root / "accuracy_checking_result_20260101000000.csv"],
            "it has no column 'API name'",
        ),
    ):
        done = ask("acc_check", *words, binary=binary)
        assert done.returncode == 3 and problem in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = ask("run_overflow_check", "-api_info", folder / "dump.json", binary=binary)
    assert done.returncode == 3 and "dump.json is of MindSpore; this command is for calls of PyTorch" in done.stderr
    for table, problem in (
        ("nowhere.csv", "does not exist"),
        ("accuracy_checking_result_20260101000000.csv", "no column"),
    ):
        done = ask("api_precision_compare", "-npu", root / table, "-gpu", root / table, binary=binary)
        assert done.returncode == 3 and problem in done.stderr and done.stderr.count("\n") == 1, done.stderr
