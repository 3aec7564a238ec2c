"""msprobe-client repro: a call as a script that needs torch alone, whose verdict is that of check."""

import json
import subprocess
import sys

import pytest
import torch
from harness.processes import REPOSITORY, environment
from harness.repro import BARE, LINE, assert_same, of_scripts
from msprobe_client import Client
from msprobe_client.check.arguments import NotReplayable
from msprobe_client.check.calls import Place
from msprobe_client.commands import application
from msprobe_client.repro.literals import source_of
from typer.testing import CliRunner

PROGRAM = REPOSITORY / "tests/integration/programs/repro_net.py"
POLICIES = ("default", "torch", "fp64-ratio", "cann")
PATCHED = {
    torch.nn.functional: ("linear", "gelu", "layer_norm", "conv2d", "softmax"),
    torch: ("mul", "matmul", "topk", "exp"),
}


CALLS = tuple(f"*.{name}.0.forward" for names in PATCHED.values() for name in names)


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    made = {}
    for task in ("tensor", "statistics"):
        made[task] = tmp_path_factory.mktemp("repro") / task
        subprocess.run([sys.executable, PROGRAM, made[task], task], check=True, timeout=120, env=environment())
    return made


@pytest.fixture(scope="module")
def stored(dumps, tmp_path_factory):
    """{name: (client, place)}"""
    with Client(data_dir=tmp_path_factory.mktemp("data") / "data", create=True) as client:
        places = {}
        for name, dump in dumps.items():
            client.import_dump(dump, name, tensors=True)
            (step,) = client.steps(name)
            places[name] = Place(name, step.step, step.rank)
        yield client, places


@pytest.fixture
def command():
    """command(*words): in this process, which has torch already."""
    return lambda *words: CliRunner().invoke(application(), ["repro", *map(str, words)])


def test_a_script_says_what_check_says(stored, tmp_path):
    client, places = stored
    rows, refused = assert_same(client, places["tensor"], "default", tmp_path)
    assert len(rows) > 50, sorted(rows)
    assert {row.verdict for row in rows.values()} == {"pass"}
    kinds = {(row.operation, row.dtype) for row in rows.values()}
    wanted = {("add_", "int64"), ("mul", "bfloat16"), ("mul", "complex64"), ("topk", "int64"), ("equal", "bool")}
    wanted |= {(name, "float32") for name in ("dropout", "__setitem__", "mul_", "add", "t", "conv2d", "topk")}
    assert wanted <= kinds, wanted - kinds
    assert set(refused.values()) == {"it has no backward record"}


def test_drawn_inputs_are_those_of_check(stored, tmp_path):
    client, places = stored
    rows, _ = assert_same(client, places["statistics"], "default", tmp_path, CALLS)
    assert "drawn" in {row.inputs for row in rows.values()}


def wrong(value, how):
    """A result of 16 or 32 bits made wrong; what is computed in float64 stays."""
    if isinstance(value, tuple | list):
        return type(value)([wrong(value[0], how), *value[1:]])
    if not isinstance(value, torch.Tensor) or value.dtype == torch.float64 or not value.is_floating_point():
        return value
    changed = value.clone()
    flat = changed.view(-1) if changed.is_contiguous() else changed.reshape(-1)
    if how == "nan" and flat.numel():
        flat[-1] = float("nan")
    elif how == "infinite" and flat.numel():
        flat[0] = float("inf")
    elif how == "off":
        flat.mul_(1.01)
    elif how == "slightly":
        flat.mul_(1 + 3 * torch.finfo(value.dtype).eps)
    return flat.reshape(value.shape)


@pytest.mark.parametrize(
    ("policy", "how"),
    [
        *(("default", how) for how in ("off", "slightly", "nan", "infinite")),
        *((policy, "off") for policy in POLICIES[1:]),
    ],
)
def test_wrong_operators_are_wrong_to_both(stored, policy, how, tmp_path, monkeypatch):
    client, places = stored
    for home, names in PATCHED.items():
        for name in names:
            right = getattr(home, name)
            monkeypatch.setattr(
                home, name, lambda *args, right=right, **kwargs: wrong(right(*args, **kwargs), how), raising=True
            )
    # A patched function is no operator of torch's own.
    monkeypatch.setattr("msprobe_client.check.operators._computes", lambda *_: True)
    rows, _ = assert_same(client, places["tensor"], policy, tmp_path, CALLS)
    failed = {row.operation for row in rows.values() if row.verdict == "fail"}
    if how != "slightly":
        assert {"linear", "gelu", "conv2d", "matmul", "layer_norm"} <= failed


def test_what_cannot_be_a_script_is_refused_in_one_line(dumps, command, tmp_path):
    for name, said in {
        "Functional.linear.9.forward": "near are Functional.linear.0.forward",
        "Module.conv.Conv2d.forward.0": "is a module, and a script is of one operator",
        "../../escape": "has no call ../../escape",
        "Torch.mul.0.backward": "",
    }.items():
        done = command(dumps["tensor"], name, "-o", tmp_path / "out")
        if said:
            assert done.exit_code == 3 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = command(tmp_path / "nothing", "Torch.exp.0", "-o", tmp_path / "out")
    assert done.exit_code in (2, 3) and "nothing" in done.stderr


def test_no_file_is_replaced_and_none_is_half(dumps, command, tmp_path):
    words = dumps["tensor"], "Torch.exp.0", "-o", tmp_path / "bug"
    assert command(*words).exit_code == 0
    before = (tmp_path / "bug/Torch.exp.0.forward.py").read_bytes()
    done = command(*words)
    assert done.exit_code == 3 and "exists already; remove it" in done.stderr
    assert (tmp_path / "bug/Torch.exp.0.forward.py").read_bytes() == before
    (tmp_path / "file").write_text("")
    done = command(dumps["tensor"], "Torch.exp.0", "-o", tmp_path / "file")
    assert done.exit_code == 3 and "is a file, and a directory is needed there" in done.stderr
    full = command(dumps["tensor"], "Torch.exp.0", "-o", "/proc/msprobe")
    assert full.exit_code == 3 and full.stderr.count("\n") == 1


def hostile(call, arguments, keywords=None):
    """A dump directory's dump.json with one call of these arguments."""
    tensor = {
        **{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False},
        **{"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0},
    }
    record = {"input_args": [tensor, *arguments], "input_kwargs": keywords or {}, "output": [tensor]}
    return {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": {call: record}}


@pytest.mark.parametrize(
    ("call", "arguments", "keywords"),
    [
        ("Torch.load.0.forward", [{"type": "str", "value": "/etc/passwd"}], None),
        ("Torch.hub.load.0.forward", [{"type": "str", "value": "x/y"}], None),
        ("Torch.os.system.0.forward", [], None),
        ("Functional.importlib.import_module.0.forward", [], None),
        ("os.system.0.forward", [{"type": "str", "value": "true"}], None),
        ("Torch.from_file.0.forward", [{"type": "str", "value": "x"}], None),
        ("Torch.sum.0.forward", [], {"dim); import os; os.abort(": {"type": "int", "value": 0}}),
        ("Torch.sum.0.forward", [{"type": "torch.memory_format", "value": "torch.load"}], None),
        ("Distributed.all_reduce.0.forward", [], None),
        ("NPU.npu_swiglu.0.forward", [], None),
    ],
)
def test_a_hostile_dump_becomes_no_code(stored, call, arguments, keywords, tmp_path):
    client, _ = stored
    dump = tmp_path / "rank0"
    dump.mkdir()
    (dump / "dump.json").write_text(json.dumps(hostile(call, arguments, keywords)))
    name = f"hostile{abs(hash(call))}{len(str(keywords))}{len(arguments)}"
    client.import_dump(dump, name)
    (step,) = client.steps(name)
    place = Place(name, step.step, step.rank)
    found, refused = of_scripts(client, place, "default", tmp_path, ("*",))
    assert not found and len(refused) == 2
    assert all(len(reason.splitlines()) == 1 for reason in refused.values())


def test_words_of_a_dump_are_literals(stored, tmp_path):
    """Quotes, lines and names in an argument stay text."""
    client, _ = stored
    text = '"""\n\'); open("planted", "w"); ("\u202e'
    assert source_of(text, {}) == ascii(text) and eval(source_of(text, {})) == text
    for value in (None, ..., True, 2**70, -0.0, float("inf"), (1,), [], {"a'": (None, 2.5)}, 1j, slice(1, None, 2)):
        assert repr(eval(source_of(value, {}))) == repr(value)
    with pytest.raises(NotReplayable):
        source_of(torch.load, {})
    dump = tmp_path / "rank0"
    dump.mkdir()
    document = hostile("Torch.nn.0.forward", [])
    document["data"] = hostile("Tensor.to.0.forward", [{"type": "str", "value": text}])["data"]
    (dump / "dump.json").write_text(json.dumps(document))
    client.import_dump(dump, "words")
    (step,) = client.steps("words")
    found, refused = of_scripts(client, Place("words", step.step, step.rank), "default", tmp_path, ("*",))
    assert not found and "Tensor.to.0.forward" in refused and not list(tmp_path.glob("planted"))


def test_the_example_of_the_document_needs_torch_alone(dumps, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = (REPOSITORY / "docs/repro.md").read_text().partition("## The old command")[0].splitlines()
    commands = [line.strip() for line in lines if line.startswith(("    msprobe-client repro", "    python "))]
    assert len(commands) == 4
    (tmp_path / "dump").symlink_to(dumps["tensor"])
    for line in commands:
        program, *words = line.split()
        if program == "msprobe-client":
            made = command(*words[1:])
            assert made.exit_code == 0, (line, made.stderr)
            continue
        done = subprocess.run(
            [sys.executable, "-I", "-c", BARE, words[0]], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, (line, done.stderr)
    assert [match["place"] for match in LINE.finditer(done.stdout)] == ["input.0", "input.1", "input.2"]
    assert "policy torch" in done.stdout and "input.1: pass by over_tolerance: 0, limit 0" in done.stdout


def test_a_call_of_linalg_is_one_of_linalg(command, tmp_path):
    matrix = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3, 3]}
    matrix |= {"Max": 2.0, "Min": -1.0, "Mean": 0.7, "Norm": 1.0}
    data = {"Torch.inv.0.forward": {"input_args": [matrix], "input_kwargs": {}, "output": [matrix]}}
    dump = tmp_path / "dump" / "step0" / "rank0"
    dump.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch"}
    (dump / "dump.json").write_text(json.dumps({**head, "data": data}))
    (dump / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    (dump / "stack.json").write_text("{}")
    made = command(tmp_path / "dump", "Torch.inv.0.forward", "-o", tmp_path / "bug")
    assert made.exit_code == 0, made.stderr
    script = tmp_path / "bug" / "Torch.inv.0.forward.py"
    done = subprocess.run([sys.executable, "-I", "-c", BARE, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "output.0: pass" in done.stdout
