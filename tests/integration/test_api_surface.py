"""PrecisionDebugger and the functions beside it: right and wrong arguments, the records they leave, and the state they
restore.
"""

import csv
import inspect
import json
import re
import sys

import pytest
from harness.dumps import entries, exported_steps, rank_directory
from harness.processes import PROGRAMS, run_with

PROGRAM = PROGRAMS / "api_surface.py"
TIMEOUT = pytest.mark.timeout(120)


@pytest.fixture
def surface(dump_path):
    """surface(name): the program's values by name (a list for each), and its output."""

    def call(name, python=sys.executable, path=dump_path, **env):
        done = run_with(python, PROGRAM, name, path, **env)
        told = {}
        for line in done.stdout.splitlines():
            if line.startswith('{"name"'):
                value = json.loads(line)
                told.setdefault(value.pop("name"), []).append(value)
        return told, done.stdout

    return call


def test_signatures_are_those_of_mindstudio():
    from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end, random_save, seed_all

    def parameters(function):
        return {
            name: parameter.default
            for name, parameter in inspect.signature(function).parameters.items()
            if name not in ("self", "cls")
        }

    none = inspect.Parameter.empty
    assert parameters(PrecisionDebugger.__init__) == dict.fromkeys(
        ["config_path", "task", "dump_path", "level", "step", "schedule", "select"]
    )
    ours = inspect.signature(PrecisionDebugger.__init__).parameters
    assert {ours[name].kind for name in ("schedule", "select")} == {inspect.Parameter.KEYWORD_ONLY}
    assert parameters(PrecisionDebugger.start) == dict.fromkeys(["model", "token_range", "rank_id", "scheduled_tokens"])
    assert parameters(PrecisionDebugger.stop) == {}
    assert parameters(PrecisionDebugger.forward_backward_dump_end) == {}
    assert parameters(PrecisionDebugger.step) == {"dump": True}
    assert parameters(PrecisionDebugger.save) == {"variable": none, "name": none, "save_backward": True}
    assert parameters(PrecisionDebugger.set_init_step) == {"step": none}
    assert parameters(PrecisionDebugger.register_custom_api) == {"module": none, "api": none, "api_prefix": None}
    assert parameters(PrecisionDebugger.restore_custom_api) == {"module": none, "api": none}
    assert parameters(module_dump) == {"module": none, "dump_name": none}
    assert parameters(module_dump_end) == {}
    assert parameters(seed_all) == {"seed": 1234, "mode": False, "rm_dropout": False, "is_enhanced": False}
    assert parameters(random_save) == {"output_path": "./output"}


# name: the message has the argument, its value, and the right ones
WRONG = {
    "before construction": ["constructed", "PrecisionDebugger(config_path)"],
    "config_path number": ["config_path", "3", "JSON file"],
    "config_path missing": ["config_path", "/nowhere/config.json", "JSON file"],
    "task number": ["task", "3", "string"],
    "level list": ["level", "['L1']", "string"],
    "dump_path number": ["dump_path", "3", "string"],
    "step number": ["step", "3", "list"],
    "step fraction": ["step", "1.5", "integer or string"],
    "model number": ["model", "int", "torch.nn.Module"],
    "model list": ["model", "str", "torch.nn.Module"],
    "token_range number": ["token_range", "3", "first <= last"],
    "token_range of three": ["token_range", "[1, 2, 3]", "two integers"],
    "token_range reversed": ["token_range", "[3, 1]", "first <= last"],
    "token_range negative": ["token_range", "[-1, 1]", "0 <= first"],
    "token_range bool": ["token_range", "[False, True]", "two integers"],
    "token_range without model": ["model", "token_range", "start(model=...)"],
    "rank_id text": ["rank_id", "'0'", "at least 0"],
    "rank_id negative": ["rank_id", "-1", "at least 0"],
    "scheduled_tokens list": ["scheduled_tokens", "[1]", "dict"],
    "scheduled_tokens key": ["scheduled_tokens", "1: 1", "request ids"],
    "scheduled_tokens zero": ["scheduled_tokens", "'a': 0", "at least 1"],
    "dump text": ["dump", "'no'", "True or False"],
    "init step negative": ["step", "-1", "at least 0"],
    "init step bool": ["step", "True", "at least 0"],
    "api missing": ["api", "no_such_thing", "callable of torch"],
    "api number": ["api", "3", "string"],
    "api prefix": ["api_prefix", "3", "string"],
    "restore missing": ["api", "no_such_thing", "function of torch"],
    "module number": ["module", "int", "torch.nn.Module"],
    "dump_name empty": ["dump_name", "''", "not empty"],
    "seed text": ["seed", "'1'", "4294967295"],
    "seed large": ["seed", "4294967296", "4294967295"],
    "seed mode": ["mode", "1", "True or False"],
    "seed rm_dropout": ["rm_dropout", "None", "True or False"],
    "seed is_enhanced": ["is_enhanced", "'no'", "True or False"],
    "output_path number": ["output_path", "3", "directory"],
    "output_path file": ["output_path", "/dev/null/below", "directory"],
}


@TIMEOUT
def test_wrong_arguments_are_refused_by_name(surface):
    told, _ = surface("wrong_arguments")
    assert set(WRONG) == set(told) - {"afterwards"}
    for name, words in WRONG.items():
        assert told[name][0]["error"] == "MsprobeError", (name, told[name])
        message = told[name][0]["message"]
        missing = [word for word in words if word not in message]
        assert not missing, f"{name}: {message!r} does not say {missing}"
    assert told["afterwards"] == [{"started": False}]


@TIMEOUT
def test_every_function_stays_itself_and_is_put_back(surface, dump_path):
    told, _ = surface("identities")
    for state in ("capturing", "stopped"):
        assert all(told[state][0]["same"].values()), (state, told[state])
        assert all(told[state][0]["pickled"].values()), (state, told[state])
    assert told["stopped"][0]["code"]
    assert list(entries(dump_path)) == ["Torch.neg.0.forward"], "a name bound before construction is recorded"


@TIMEOUT
def test_steps_are_numbered_and_may_be_discarded(surface, dump_path):
    told, _ = surface("numbering")
    assert told["step"] == [{"loop": 1}, {"loop": 1}, {"loop": 2}]
    assert exported_steps(dump_path) == [0, 1, 7]
    # The discarded step was step 1 too: the files there are those of the third.
    assert list(entries(dump_path, 1)) == ["Torch.neg.0.forward"]
    assert told["attributes"] == [{"task": "statistics", "iteration": 7, "level": "L1"}]


@TIMEOUT
def test_a_custom_api_is_recorded_until_it_is_restored(surface, dump_path):
    told, output = surface("custom_api")
    names = list(entries(dump_path))
    assert names == ["Mine.twice.0.forward", "Tensor.__mul__.0.forward"], names
    assert told["restored"] == [{"same": True}]
    assert "Custom api registered: Ops.twice" in output and "Custom api restored: Ops.twice" in output


@TIMEOUT
def test_apis_listed_in_a_file_are_recorded(surface, dump_path, tmp_path):
    listed = tmp_path / "custom_wrap_ops.yaml"
    listed.write_text("colorsys: [rgb_to_yiq, later]\nno.such.package: absent\n3: [x]\n")
    _, output = surface("listed_apis", MSPROBE_CUSTOM_WRAP_OPS=listed)
    assert list(entries(dump_path, 0)) == ["colorsys.rgb_to_yiq.0.forward"]
    assert "colorsys.later.0.forward" in entries(dump_path, 2)
    assert output.count("colorsys.later is not recorded: colorsys has none of that name") == 1
    assert output.count("no.such.package.absent is not recorded: No module named 'no'") == 1
    assert output.count("3 should be the name of a module") == 1


@TIMEOUT
def test_saved_values_and_their_gradients(surface, dump_path):
    _, output = surface("saving")
    directory = rank_directory(dump_path)
    assert sorted(path.name for path in directory.iterdir()) == ["debug.json", "dump_tensor_data"]
    data = json.loads((directory / "debug.json").read_text())["data"]
    assert list(data) == ["values.0.debug", "values_grad.0.debug", "alone.0.debug", "alone.1.debug"]
    assert data["values.0.debug"]["a"]["Max"] == 3.0
    assert data["values.0.debug"]["b"] == [
        {"type": "int", "value": 1},
        {"type": "str", "value": "text"},
        {"type": "float", "value": 2.5},
    ]
    assert data["values_grad.0.debug"]["a"]["Max"] == 1.0
    assert data["values_grad.0.debug"]["b"] == [None, None, None]
    assert sorted(path.name for path in (directory / "dump_tensor_data").iterdir()) == [
        "alone.0.debug.pt",
        "alone.1.debug.pt",
        "values.0.debug.a.pt",
        "values_grad.0.debug.a.pt",
    ]
    assert output.count("The call is skipped") == 5


@TIMEOUT
def test_a_second_construction_says_what_stays(surface, dump_path):
    told, output = surface("second")
    assert told["same"] == [{"same": True}]
    lines = [line for line in output.splitlines() if "exists already" in line]
    assert len(lines) == 1, "equal arguments say nothing"
    assert 'level stays "L1", asked was "mix"' in lines[0]
    assert f'asked was "{dump_path}/other"' in lines[0]
    assert not (dump_path / "other").exists()


@TIMEOUT
def test_module_dump_is_that_of_mindstudio(tmp_path, oracle_python):
    found = {}
    for tool, python in (("ours", sys.executable), ("theirs", oracle_python)):
        config = tmp_path / f"{tool}.json"
        config.write_text(json.dumps({"dump_path": str(tmp_path / tool), "level": "L1"}))
        run_with(python, PROGRAMS / "switches.py", "module", config)
        found[tool] = entries(tmp_path / tool)
    assert list(found["ours"]) == list(found["theirs"])
    for name in ("Module.mine.Sequential.forward.0", "Module.mine.Sequential.backward.0"):
        assert list(found["ours"][name]) == list(found["theirs"][name])
        assert found["ours"][name] is not None


@TIMEOUT
def test_seeds(surface):
    told, _ = surface("seeds")
    seeded = told["seeded"][0]
    assert seeded["first"] == seeded["again"]
    assert not set(seeded["first"]) & set(seeded["other"])
    assert seeded["hash"] == "43"
    assert told["mode"] == [{"deterministic": True}]
    assert told["rm_dropout"] == [{"kept": [True] * 4, "refused": True}]
    enhanced = told["is_enhanced"][0]
    assert enhanced["first"] == enhanced["again"] == enhanced["twice"]


@TIMEOUT
def test_random_calls_are_those_mindstudio_writes(surface, tmp_path, oracle_python):
    found = {}
    for tool, python in (("ours", sys.executable), ("theirs", oracle_python)):
        surface("random_calls", python=python, path=tmp_path / tool)
        (path,) = (tmp_path / tool).iterdir()
        assert re.fullmatch(r"random_proc\d+_\d{14}\.csv", path.name)
        with path.open(newline="", encoding="utf-8-sig") as stream:
            header, *lines = csv.reader(stream)
        assert header == ["api_name", "stack"]
        found[tool] = lines
    assert [line[0] for line in found["ours"]] == [line[0] for line in found["theirs"]]
    assert [line[0] for line in found["ours"]][:2] == ["torch_random.rand.0", "torch_random.rand.1"]
    for ours, theirs in zip(found["ours"], found["theirs"], strict=True):
        assert ours[1].startswith(f"File {PROGRAM}, line "), ours[1]
        assert ours[1] == theirs[1]
