"""check and acc_check of calls of MindSpore: run again by it, beside torch and beside mindstudio-probe."""

import array
import csv
import fcntl
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import termios
import threading

import pytest
from harness.mindspore import PROGRAMS, only_rank, run
from harness.processes import environment

torch = pytest.importorskip("torch")

from msprobe_client.check import mindspore_calls  # noqa: E402
from msprobe_client.check.arguments import Arguments  # noqa: E402
from msprobe_client.check.operators import CallName  # noqa: E402

# mindstudio-probe gives the operands of cat no gradient in torch, though MindSpore gives them one.
LISTS = "Mint.cat.0"
# No kernel of the CPU has it; Message is what MindSpore said, here its first line.
REFUSED = "Tensor.isnan.0"
# A gradient that the program did not ask for is null; mindstudio-probe then compares with that of another argument.
UNASKED = "MintFunctional.linear.0"

# It compares tensors alone.
COUNT = "Tensor.numel.0"
# MindSpore's exponential on a CPU is off by ten ULPs.
COARSE = {"exp", "softmax"}


@pytest.fixture(scope="module")
def dumped(run_program, tmp_path_factory):
    """A capture of tensors, and the same as one of statistics: paths of dump.json by task."""
    scratch = tmp_path_factory.mktemp("mindspore_check")
    run_program(PROGRAMS / "checked_calls.py", scratch / "tensor", "tensor")
    tensor = only_rank(scratch / "tensor") / "dump.json"
    statistics = scratch / "statistics" / "step0" / "rank0" / "dump.json"
    statistics.parent.mkdir(parents=True)
    document = json.loads(tensor.read_text())
    given = document["data"]["MintFunctional.relu.0.forward"]["input_args"]
    count = {"input_args": given, "input_kwargs": {}, "output": [{"type": "int", "value": 32}]}
    document["data"][f"{COUNT}.forward"] = count
    statistics.write_text(json.dumps({**document, "task": "statistics", "dump_data_dir": None}))
    return {"tensor": tensor, "statistics": statistics}


@pytest.fixture(scope="module")
def theirs(oracle_python, torch_packages):
    """theirs(dump.json, out): mindstudio-probe's acc_check, in the environment that has MindSpore, with our torch."""

    def check(dump, out):
        # MindSpore's protobuf is older than the one that mindstudio-probe has imported before it.
        known = {"PYTHONPATH": str(torch_packages), "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}
        run(oracle_python, oracle_python.with_name("msprobe"), "acc_check", "-api_info", dump, "-o", out, **known)

    return check


def ask(command, *words, **variables):
    return subprocess.run(
        [command, *map(str, words)],
        **{"capture_output": True, "text": True, "timeout": 240, "check": False},
        env=environment(**variables),
    )


@pytest.fixture(scope="module")
def ours(mindspore_python):
    """ours("acc_check", ...): msprobe, in an environment that has no MindSpore but names the one that has it."""
    msprobe = pathlib.Path(sys.executable).with_name("msprobe")
    return lambda *words: ask(msprobe, *words, MSPROBE_MINDSPORE_PYTHON=mindspore_python)


def table(folder, word):
    (path,) = pathlib.Path(folder).glob(f"accuracy_checking_{word}_*.csv")
    with path.open(encoding="utf-8-sig", newline="") as file:
        return {row["API Name"]: row for row in csv.DictReader(file)}


def call(name):
    return ".".join(name.split(".")[:3])


@pytest.mark.parametrize(
    ("task", "command"), [("statistics", ("multi_acc_check", "-n", 1)), ("tensor", ("acc_check",))]
)
def test_acc_check_s_tables_are_those_of_mindstudio_probe(task, command, dumped, theirs, ours, tmp_path):
    said = ours(*command, "-api_info", dumped[task], "-o", tmp_path / "ours")
    assert said.returncode == 0 and said.stderr == "", said.stderr
    theirs(dumped[task], tmp_path / "theirs")
    known = {LISTS, REFUSED, COUNT} | ({UNASKED} if task == "tensor" else set())
    tables = [table(tmp_path / side, "details") for side in ("theirs", "ours")]
    expected, found = ({name: row for name, row in rows.items() if call(name) not in known} for rows in tables)
    assert list(found) == list(expected) and len(found) > 30
    for name, row in expected.items():
        assert list(found[name]) == list(row)
        cosines = [float(each.pop("Cosine")) for each in (row, found[name])]
        assert cosines[0] == pytest.approx(cosines[1], abs=1e-12)  # summed in another order
        assert found[name] == row
    results = [table(tmp_path / side, "result") for side in ("theirs", "ours")]
    assert list(results[0]) == list(results[1])
    for name, row in results[0].items():
        if name not in known:
            assert results[1][name] == row
    assert results[1][REFUSED]["Forward Test Success"] == results[0][REFUSED]["Forward Test Success"] == "SKIP"
    assert results[1][UNASKED]["Backward Test Success"] == "pass"
    if task == "statistics":
        assert [rows[COUNT]["Forward Test Success"] for rows in results] == ["error", "pass"]
        assert results[1][LISTS]["Backward Test Success"] == "pass"
        assert results[1][REFUSED]["Message"].startswith("TypeError: Select CPU operator[NotEqual] fail")


def test_small_numbers_that_are_wrong_fail_and_a_check_goes_on_where_it_was(dumped, ours, tmp_path):
    shutil.copytree(dumped["tensor"].parent, tmp_path / "step0" / "rank0")
    import numpy

    wrong = tmp_path / "step0/rank0/dump_tensor_data/Mint.sub.0.backward.output.0.npy"
    numpy.save(wrong, numpy.load(wrong) * numpy.float32(1.5))  # of 0.06: half as large again
    small = tmp_path / "step0/rank0/dump_tensor_data/Mint.exp.0.forward.output.0.npy"
    numpy.save(small, numpy.load(small) + numpy.float32(0.01))
    document = json.loads((tmp_path / "step0/rank0/dump.json").read_text())
    document["dump_data_dir"] = str(wrong.parent)
    (tmp_path / "step0/rank0/dump.json").write_text(json.dumps(document))
    said = ours("acc_check", "-api_info", tmp_path / "step0/rank0/dump.json", "-o", tmp_path, "-save_error_data")
    assert said.returncode == 0, said.stderr
    results = table(tmp_path, "result")
    failed = {name: row["Message"] for name, row in results.items() if "error" in row.values()}
    assert set(failed) == {"Mint.sub.0", "Mint.exp.0"}
    assert failed["Mint.exp.0"].startswith("max_abs: 0.01")
    whole = results, table(tmp_path, "details")
    (result,) = tmp_path.glob("*_result_*.csv")
    lines = result.read_text(encoding="utf-8-sig").splitlines(keepends=True)
    result.write_text("".join(lines[:6]), encoding="utf-8-sig")
    dump = tmp_path / "step0/rank0/dump.json"
    assert ours("acc_check", "-api_info", dump, "-csv_path", result).returncode == 0  # goes on where it was
    assert (table(tmp_path, "result"), table(tmp_path, "details")) == whole
    kept = {path.name for path in (tmp_path / "error_data").iterdir()}
    assert {"Mint.exp.0.forward.input.0.npy", "Mint.exp.0.forward.output.0.npy"} <= kept


def test_check_runs_mindspore_and_takes_what_was_saved(dumped, client, mindspore_python, tmp_path):
    def rows(*words, **variables):
        done = ask(client, "check", *words, "--format", "json", "--output", tmp_path / "rows.json", **variables)
        assert done.returncode in (0, 1), done.stderr
        return {row["name"]: row for row in json.loads((tmp_path / "rows.json").read_text())["rows"]}

    known = {"MSPROBE_MINDSPORE_PYTHON": mindspore_python}
    again = rows(dumped["tensor"].parent, "--workers", "1", **known)
    assert again["MintFunctional.linear.0.backward.input.1"]["verdict"] == "pass"
    assert again["Mint.cat.0.backward.input.0.1"]["verdict"] == "pass"
    assert again["Tensor.isnan.0.forward"]["verdict"] == "error"
    assert "NotEqual" in again["Tensor.isnan.0.forward"]["reason"]
    assert again["Functional.tanh.0.forward"]["verdict"] == "skip"
    assert {row["operation"] for row in again.values() if row["verdict"] == "fail"} <= COARSE
    recorded = rows(dumped["tensor"].parent, "--device", "recorded")  # no MindSpore is needed
    passed = {name for name, row in again.items() if row["verdict"] == "pass" and row["operation"] not in COARSE}
    assert {row["verdict"] for name, row in recorded.items() if name in passed} == {"pass"}
    assert len(passed & set(recorded)) > 25


def test_without_mindspore_one_line_says_so(dumped, client, tmp_path):
    msprobe = pathlib.Path(sys.executable).with_name("msprobe")
    for command in (
        [client, "check", dumped["statistics"].parent.parent.parent],
        [msprobe, "acc_check", "-o", tmp_path, "-api_info", dumped["statistics"]],
    ):
        done = ask(*command)
        assert done.returncode != 0 and done.stderr.count("\n") == 1
        assert "this environment has no mindspore" in done.stderr and "MSPROBE_MINDSPORE_PYTHON" in done.stderr


def test_a_call_that_ends_mindspore_costs_that_call(mindspore_python, monkeypatch):
    monkeypatch.setenv("MSPROBE_MINDSPORE_PYTHON", str(mindspore_python))
    tested = mindspore_calls.MindSpore("cpu")
    name = CallName.parse("Mint.add.0.forward", "mindspore")
    one = torch.ones(2)
    given = Arguments([one, one], {}, tensors=[("input.0", one), ("input.1", one)], needs_grad=[False, False])
    ((_, two),) = tested.run(name, given, None, 0).outputs
    assert two.tolist() == [2, 2]
    process = tested._process
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)  # a read that it is in may yet return until then
    failed = []

    def crash():
        try:
            tested.run(name, given, None, 0)
        except mindspore_calls.Crashed as error:
            failed.append(str(error))

    thread = threading.Thread(target=crash)
    thread.start()
    waiting = array.array("i", [0])
    while waiting[0] == 0 and thread.is_alive():  # until it has been asked
        fcntl.ioctl(process.stdin, termios.FIONREAD, waiting)
        thread.join(0.01)
    os.kill(process.pid, signal.SIGKILL)
    thread.join()
    assert failed == ["Mint.add.0 ended MindSpore's process: killed by signal 9 (SIGKILL)"]
    assert tested.run(name, given, None, 0).outputs[0][1].tolist() == [2, 2]
    tested.close()
