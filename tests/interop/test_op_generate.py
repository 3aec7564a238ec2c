"""op_generate beside mindstudio-probe 8.3.3, the last that had it. results_8_3/op_generate has two dumps of the same
calls, what that tool took from one for a call, and what its scripts printed, their device set to the CPU, MKL to the
instructions that every CPU has, and their square roots to ROOTS_OF_EVERY_MACHINE."""

import contextlib
import io
import json
import os
import pathlib
import runpy
import shutil
import subprocess
import sys

import pytest
import torch
from harness.processes import REPOSITORY
from harness.repro import BARE
from msprobe_client.compat.legacy import main

RECORDED = pathlib.Path(__file__).with_name("results_8_3") / "op_generate"
TABLES = sorted(path.stem for path in RECORDED.glob("*.txt"))
TIMES = {"Torch.mul.0.forward": 3, "Torch.equal.0.forward": 2}
# torch takes square roots from MKL, which rounds them otherwise on AMD's CPUs than on Intel's, however it is set. These
# are off by as much, and alike wherever floats are IEEE's.
ROOTS_OF_EVERY_MACHINE = """
import runpy, sys, numpy, torch

def sqrt(t):
    x = t.numpy()
    return torch.from_numpy(numpy.asarray(numpy.sqrt(x / 3) * numpy.sqrt(x.dtype.type(3))))

torch.sqrt = sqrt
sys.argv = [sys.argv[1], "--device", "cpu"]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def generate(folder, **fields):
    """(exit code, what it said)"""
    config = folder / "config_op.json"
    config.write_text(json.dumps(fields))
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), pytest.raises(SystemExit) as ended:
        main(["-f", "pytorch", "op_generate", "-i", str(config), "-o", str(folder / "scripts")])
    return ended.value.code, said.getvalue()


def fields_of(folder, name, direction="forward", dump=RECORDED / "statistics.json", **others):
    named = {"dump_json_path": str(dump), "api_name": name, "extract_api_path": str(folder / f"{name}.json")}
    return {**named, "propagation": direction, **others}


def said_by(script, monkeypatch):
    said = io.StringIO()
    monkeypatch.setattr(sys, "argv", [str(script), "--device", "cpu"])
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(script), run_name="__main__")
    return said.getvalue()


def said_by_every_machine(script):
    """MKL reads its setting once, so in a process of its own."""
    environment = {**os.environ, "MKL_CBWR": "COMPATIBLE"}
    command = [sys.executable, "-c", ROOTS_OF_EVERY_MACHINE, script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True).stdout


def cells(text):
    """Lines, with the cells of tables apart; numbers as such, since kernels of another machine may round otherwise."""
    found = []
    for line in text.splitlines():
        for cell in line.split("|") if line.startswith("|") else [line]:
            try:
                found.append(pytest.approx(float(cell), rel=1e-3, abs=1e-12))
            except ValueError:
                rule = line.startswith("+")  # as wide as its longest number
                found.append(line[:2] if rule else "PASS" if cell.startswith("PASS") else cell.strip())
    return found


@pytest.mark.parametrize("full_name", TABLES)
def test_tables_are_the_same(full_name, tmp_path):
    name, _, direction = full_name.rpartition(".")
    times = TIMES.get(full_name, 1)
    code, said = generate(tmp_path, **fields_of(tmp_path, name, direction, iter_times=times))
    assert code == 0, said
    printed = said_by_every_machine(tmp_path / "scripts" / f"{full_name}.py")
    recorded = (RECORDED / f"{full_name}.txt").read_text()
    assert recorded.count("iter: ") == times
    assert cells(printed) == cells(recorded)


def test_the_file_of_a_call_is_equal_byte_for_byte(tmp_path):
    """And real_data ends in one line where the tensors are not there."""
    fields = fields_of(tmp_path, "Functional.linear.0", dump=RECORDED / "tensor.json", data_mode="real_data")
    code, said = generate(tmp_path, **fields)
    recorded = (RECORDED / "tensor.Functional.linear.0.json").read_bytes()
    assert (tmp_path / "Functional.linear.0.json").read_bytes() == recorded
    file = "/dumps/step0/rank0/dump_tensor_data/Functional.linear.0.forward.input.0.pt"
    assert code == 3 and f"{file} does not exist; real_data needs the tensors" in said
    assert not (tmp_path / "scripts").exists()


def leaf(name, tensor, folder, **others):
    torch.save(tensor, folder / f"{name}.pt")
    dtype, shape = str(tensor.dtype), list(tensor.shape)
    return {
        "type": "torch.Tensor",
        "dtype": dtype,
        "shape": shape,
        "requires_grad": False,
        **dict.fromkeys(("Max", "Min", "Mean", "Norm")),
        "data_name": f"{name}.pt",
        **others,
    }


def test_real_data_lie_beside_the_script_which_needs_torch_alone(tmp_path):
    """Keywords too; a NaN has its own row; the dump may be gone, and the script elsewhere."""
    dump, tensors = tmp_path / "rank0", tmp_path / "rank0" / "dump_tensor_data"
    tensors.mkdir(parents=True)
    first, second = torch.tensor([1.0, float("nan"), 0.1]), torch.tensor([3.0, 1.0, 0.7])
    record = {
        "input_args": [leaf("Torch.add.0.forward.input.0", first, tensors)],
        "input_kwargs": {"other": leaf("Torch.add.0.forward.kwargs.other", second, tensors)},
        "output": [leaf("Torch.add.0.forward.output.0", first + second, tensors)],
    }
    head = {"task": "tensor", "level": "L1", "framework": "pytorch", "dump_data_dir": str(tensors)}
    (dump / "dump.json").write_text(json.dumps({**head, "data": {"Torch.add.0.forward": record}}))
    code, said = generate(
        tmp_path, **fields_of(tmp_path, "Torch.add.0", dump=dump / "dump.json", data_mode="real_data", iter_times=9)
    )
    assert code == 0, said
    shutil.rmtree(dump)
    moved = (tmp_path / "scripts").rename(tmp_path / "moved")
    assert sorted(path.name for path in moved.iterdir()) == [
        "Torch.add.0.forward.py",
        "Torch.add.0.forward.safetensors",
    ]
    script = moved / "Torch.add.0.forward.py"
    assert "eval" not in script.read_text()
    command = [sys.executable, "-I", "-c", BARE, script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("|")[1:3] for line in done.stdout.splitlines() if line.startswith("|"))
    rows = {name.strip(): value.strip() for name, value in rows.items()}
    assert done.stdout.count("iter: ") == 1 and rows["Compare Standard"] == "Absolute Threshold Standard"
    assert (rows["Relative Error Ratio"], rows["Inf/NaN Error Ratio"]) == ("0.0", "0.0")


def test_what_an_operator_does_wrong_is_in_the_table(tmp_path, monkeypatch):
    fields = fields_of(tmp_path, "Torch.sqrt.0")
    assert generate(tmp_path, **fields)[0] == 0
    script = tmp_path / "scripts" / "Torch.sqrt.0.forward.py"
    right = torch.sqrt

    def wrong(x):
        y = right(x)
        if x.dtype == torch.float32:
            y[0, 0], y[1, 1] = float("nan"), y[1, 1] * 1.5
        return y

    monkeypatch.setattr(torch, "sqrt", wrong)
    printed = said_by(script, monkeypatch)
    rows = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in printed.splitlines() if "| " in line}
    assert float(rows["Maximum Relative Error"]) == pytest.approx(0.5, rel=1e-3)
    assert rows["Inf/NaN Error Ratio"] == "1.0"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"extract_api_path": ""}, 'extract_api_path is "", not the path of a file'),
        ({"api_name": None}, "api_name is null, not a call such as Functional.softmax.0, of at most 300 characters"),
        ({"api_name": "Torch." + "a" * 400 + ".0"}, "of at most 300 characters"),
        ({"api_name": "Torch.mull.0"}, "has no call Torch.mull.0; near are Torch.mul.0"),
        ({"propagation": "both"}, 'propagation is "both", not one of forward, backward'),
        ({"data_mode": "real"}, 'data_mode is "real", not one of random_data, real_data'),
        ({"random_seed": True}, "random_seed is true, not a whole number from -9223372036854775808 to"),
        ({"iter_times": 0}, "iter_times is 0, not a whole number from 1 to 1000"),
        ({"iter_times": 1001}, "iter_times is 1001, not a whole number from 1 to 1000"),
        ({"iter_time": 2}, '"iter_time" is no field; write iter_times'),
        ({"dump_json_path": "/nowhere/dump.json"}, 'dump_json_path is "/nowhere/dump.json", not a file'),
        ({"extract_api_path": str(RECORDED / "statistics.json")}, "not another file than dump_json_path"),
        ({"data_mode": "real_data"}, "was captured without its tensors (task statistics); write random_data"),
        ({"dump_json_path": "", "extract_api_path": str(RECORDED / "statistics.json")}, "is not the file of a call"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_what_is_wrong_is_said_in_one_line(change, said, tmp_path):
    code, line = generate(tmp_path, **(fields_of(tmp_path, "Torch.mul.0") | change))
    last = line.splitlines()[-1]
    assert code == 3 and last.startswith("msprobe op_generate: ") and said in last, line
    assert not (tmp_path / "scripts").exists()


def test_a_random_operator_and_one_of_complex_numbers(tmp_path, monkeypatch):
    tensor = {"type": "torch.Tensor", "shape": [4, 5], "Max": None, "Min": None, "Mean": None, "Norm": None}
    tensor["requires_grad"] = False
    call = tmp_path / "call.json"
    fields = {"extract_api_path": str(call), "iter_times": 2}
    real = tensor | {"dtype": "torch.float32", "Max": 1.0, "Min": 0.0}
    record = {"input_args": [real], "input_kwargs": {"p": {"type": "float", "value": 0.5}}, "output": [real]}
    call.write_text(json.dumps({"Functional.dropout.0.forward": record}))
    code, said = generate(tmp_path, **fields)
    assert code == 3 and "dropout is random, so two devices differ; msprobe-client repro holds it" in said
    both = tensor | {"dtype": "torch.complex64"}
    record = {"input_args": [both, both], "input_kwargs": {}, "output": [both]}
    call.write_text(json.dumps({"Torch.mul.0.forward": record}))
    assert generate(tmp_path, **fields)[0] == 0
    printed = said_by(tmp_path / "scripts" / "Torch.mul.0.forward.py", monkeypatch)
    assert printed.count("| torch.complex64") == 4 and printed.count("| Relative Error Ratio | 0") == 2, printed


def test_a_function_of_linalg_is_called_by_its_own_name(tmp_path, monkeypatch):
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [6], "requires_grad": False}
    tensor |= {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
    record = {"input_args": [tensor], "input_kwargs": {}, "output": [tensor | {"shape": []}]}
    call = tmp_path / "call.json"
    call.write_text(json.dumps({"Torch.vector_norm.0.forward": record}))
    assert generate(tmp_path, extract_api_path=str(call))[0] == 0
    script = tmp_path / "scripts" / "Torch.vector_norm.0.forward.py"
    assert "torch.linalg.vector_norm(" in script.read_text()
    assert said_by(script, monkeypatch).endswith("Compare finished.\n")


def test_a_call_is_taken_again_from_its_own_file(tmp_path):
    """A stale file is never used for another call, nor a call without its gradients for backward."""
    name = "Torch.sqrt.0"
    assert generate(tmp_path, **fields_of(tmp_path, name))[0] == 0
    alone = fields_of(tmp_path, name) | {"dump_json_path": "", "api_name": ""}
    assert generate(tmp_path, **alone)[0] == 0
    code, said = generate(tmp_path, **(alone | {"api_name": "Torch.mul.0"}))
    assert code == 3 and "begins with Torch.sqrt.0.forward, not Torch.mul.0.forward" in said
    code, said = generate(tmp_path, **(alone | {"propagation": "backward"}))
    assert code == 3 and "Torch.sqrt.0.backward cannot be a script: it has no backward record" in said


def test_the_example_of_the_document(tmp_path, monkeypatch):
    text = (REPOSITORY / "docs/repro.md").read_text().partition("## The old command")[2]
    config = text.partition("```json\n")[2].partition("```")[0]
    lines = [line.strip() for line in text.splitlines() if line.startswith(("    msprobe ", "    python "))]
    assert len(lines) == 2
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(RECORDED / "statistics.json", "dump.json")
    pathlib.Path("config_op.json").write_text(config)
    with pytest.raises(SystemExit) as ended:
        main(lines[0].split()[1:])
    assert ended.value.code == 0
    assert said_by(lines[1].split()[1], monkeypatch).endswith("Compare finished.\n")
