"""Wrong configuration is refused at construction; odd values while running raise nothing and leave their record."""

import json
import pathlib
import sys

import pytest
import torch
from harness.dumps import entries, rank_directory, write_config
from harness.processes import PROGRAMS, run

STATISTICS = {"task": "statistics", "dump_path": "/tmp/msprobe-refused", "level": "L1", "statistics": {}}

# name: (changes to the configuration, what the message must name: field, value, something allowed)
REFUSALS = {
    "task": ({"task": "xx"}, ["task", "xx", "statistics"]),
    "level": ({"level": "L9"}, ["level", "L9", "mix"]),
    "dump_path number": ({"dump_path": 1}, ["dump_path", "1", "string"]),
    "dump_path null": ({"dump_path": None}, ["dump_path"]),
    "dump_path under a file": ({"dump_path": "/dev/null/below"}, ["dump_path", "/dev/null/below"]),
    "dump_path half a character": ({"dump_path": "/tmp/\udcff"}, ["dump_path", "UTF-8"]),
    "argument dump_path": ({"@": {"dump_path": "/tmp/\udcff"}}, ["dump_path", "UTF-8"]),
    "rank number": ({"rank": 0}, ["rank", "0", "list"]),
    "rank word": ({"rank": ["a"]}, ["rank", "a", "3-5"]),
    "rank negative": ({"rank": [-1]}, ["rank", "-1", "1000000"]),
    "rank fraction": ({"rank": [1.5]}, ["rank", "1.5"]),
    "step bool": ({"step": [True]}, ["step", "true|True"]),
    "step reversed": ({"step": ["5-2"]}, ["step", "5-2|5", "2"]),
    "step comma": ({"step": ["1,2"]}, ["step", "1,2", "3-5"]),
    "extra_info": ({"extra_info": 1}, ["extra_info", "1", "true|bool"]),
    "async_dump": ({"async_dump": "true"}, ["async_dump", "true", "bool|false"]),
    "precision": ({"precision": "mid"}, ["precision", "mid", "high"]),
    "risk_level": ({"risk_level": "low"}, ["risk_level", "low", "FOCUS"]),
    "custom_op_namespaces": ({"custom_op_namespaces": "a"}, ["custom_op_namespaces", "a", "list"]),
    "scope of one": ({"statistics": {"scope": ["a"]}}, ["scope", "a", "two|2"]),
    "scope names": ({"statistics": {"scope": ["a", "b"]}}, ["scope", "a", "forward"]),
    "list": ({"statistics": {"list": "linear"}}, ["list", "linear"]),
    "data_mode": ({"statistics": {"data_mode": ["x"]}}, ["data_mode", "x", "forward"]),
    "data_mode all and more": ({"statistics": {"data_mode": ["all", "input"]}}, ["data_mode", "all"]),
    "summary_mode": ({"statistics": {"summary_mode": "crc"}}, ["summary_mode", "crc", "md5"]),
    "tensor_list": ({"statistics": {"tensor_list": 3}}, ["tensor_list", "3", "list"]),
    "slice dim": ({"statistics": {"slice": [{"dim": -1}]}}, ["slice", "dim", "-1"]),
    "slice type": ({"statistics": {"slice": {"dim": 1}}}, ["slice", "list"]),
    "slice begin": ({"statistics": {"slice": [{"begin": "a"}]}}, ["slice", "begin", "a", "int"]),
    "server": ({"server": "nowhere at all"}, ["server", "nowhere at all", "host:port|unix:"]),
    "server port": ({"server": "host:99999999"}, ["server", "99999999"]),
    "run": ({"run": 3}, ["run", "3", "string"]),
    "argument level": ({"@": {"level": "L7"}}, ["level", "L7", "mix"]),
    "argument task": ({"@": {"task": "nothing"}}, ["task", "nothing", "statistics"]),
    "argument step": ({"@": {"step": ["x"]}}, ["step", "x"]),
}
TEXTS = {
    "not JSON": ("{", [".json", "line 1"]),
    "not an object": ("[1]", ["object|config"]),
}


@pytest.fixture(scope="module")
def messages(tmp_path_factory):
    directory = tmp_path_factory.mktemp("refusals")
    cases = []
    for name, (changes, _) in REFUSALS.items():
        changes = dict(changes)
        arguments = changes.pop("@", {})
        cases.append({"name": name, "config": {**STATISTICS, **changes}, "arguments": arguments})
    cases += [{"name": name, "text": text} for name, (text, _) in TEXTS.items()]
    (directory / "cases.json").write_text(json.dumps(cases))
    out = directory / "out.json"
    run([sys.executable, PROGRAMS / "refusals.py", directory / "cases.json", out])
    return json.loads(out.read_text())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [*REFUSALS, *TEXTS])
def test_a_wrong_configuration_is_refused_by_name(name, messages):
    wanted = (REFUSALS | TEXTS)[name][1]
    assert name in messages, f"not reached: a configuration before {name} was accepted"
    message = messages[name]
    assert message, f"{name} was accepted"
    for words in wanted:
        assert any(word in message for word in words.split("|")), f"{message!r} does not name {words}"
    assert "Traceback" not in message


@pytest.fixture(scope="module")
def undisturbed_results(tmp_path_factory):
    out = tmp_path_factory.mktemp("sturdy") / "out.json"
    run([sys.executable, PROGRAMS / "sturdy.py", "--out", out])
    return json.loads(out.read_text())


MODES = {
    "statistics": {},
    "md5": {"section": {"summary_mode": "md5"}},
    "xor": {"section": {"summary_mode": "xor"}},
    "tensor": {"task": "tensor"},
}


@pytest.fixture(scope="module", params=MODES)
def sturdy(request, tmp_path_factory):
    """(results of the program, dump_path) for one mode."""
    directory = tmp_path_factory.mktemp("sturdy")
    dump_path, out = directory / "dump", directory / "out.json"
    config = write_config(directory / "config.json", dump_path, level="L1", risk_level="ALL", **MODES[request.param])
    run([sys.executable, PROGRAMS / "sturdy.py", "--config", config, "--out", out])
    return json.loads(pathlib.Path(out).read_text()), dump_path


@pytest.mark.timeout(180)
def test_odd_values_reach_the_program_as_they_would_without_us(sturdy, undisturbed_results):
    results, _ = sturdy
    changed = {
        name: (undisturbed_results[name], results[name])
        for name in results
        if results[name] != undisturbed_results[name]
    }
    assert not changed
    assert set(results) == set(undisturbed_results)


@pytest.mark.timeout(180)
def test_every_call_leaves_a_record(sturdy, undisturbed_results):
    _, dump_path = sturdy
    data = entries(dump_path)
    values = [name.removesuffix(" afterwards") for name in undisturbed_results if name.endswith(" afterwards")]
    wanted = [f"Custom.take_{name}.{count}.forward" for name in values for count in (0, 1)]
    wanted += [f"Custom.take_{name}.0.forward" for name in ("empty_result", "plain_result", "and_raise", "last")]
    missing = [name for name in wanted if name not in data]
    assert not missing, f"{len(missing)} of {len(wanted)} are missing: {missing[:10]}"
    # A call that raised has its input and no output.
    assert data["Custom.take_and_raise.0.forward"]["input_args"][0]["shape"] == [2]
    assert data["Torch.matmul.0.forward"]["input_args"]
    # Later calls are whole.
    assert set(data["Custom.take_last.0.forward"]) == {"input_args", "input_kwargs", "output"}
    assert data["Custom.take_last.0.forward"]["output"][0]["shape"] == [3]


@pytest.mark.timeout(180)
def test_the_next_step_is_as_if_nothing_had_been(sturdy):
    _, dump_path = sturdy
    assert list(entries(dump_path, 1)) == ["Torch.add.0.forward", "Custom.take_last.0.forward"]


@pytest.mark.timeout(180)
def test_what_the_records_of_odd_tensors_say(sturdy):
    _, dump_path = sturdy
    data = entries(dump_path)

    def leaf(name):
        return data[f"Custom.take_{name}.0.forward"]["input_args"][0]

    for name in ("uint16", "uint32", "uint64"):
        assert leaf(f"t_{name}")["dtype"] == f"torch.{name}"
        if "Max" in leaf(f"t_{name}"):
            assert (leaf(f"t_{name}")["Max"], leaf(f"t_{name}")["Min"]) in ((3, 1), (None, None))
    for name, extremes in (("53", (2**53 + 1, -(2**63))), ("63", (2**64 - 1, 2**53 + 1))):
        found = leaf(f"beyond_{name}_bits")
        assert "Max" not in found or (found["Max"], found["Min"]) == extremes, name
    assert leaf("sparse_coo")["shape"] == [2, 2]
    assert leaf("sparse_csr")["shape"] == [2, 2]
    assert leaf("quint8")["dtype"] == "torch.quint8"
    assert leaf("meta")["shape"] == [2, 3]
    assert leaf("expanded")["shape"] == [1000000]
    assert leaf("released")["shape"] == [4]
    four_bits = leaf("t_float4_e2m1fn_x2")
    assert (four_bits["dtype"], four_bits["shape"]) == ("torch.float4_e2m1fn_x2", [3])
    assert [four_bits.get(key) for key in ("Max", "Min", "Mean", "Norm")] == [None] * 4  # xor has no such keys
    if "data_name" in four_bits:
        saved = torch.load(rank_directory(dump_path) / "dump_tensor_data" / four_bits["data_name"])
        assert saved.dtype == torch.float4_e2m1fn_x2 and saved.view(torch.uint8).tolist() == [0x21, 0x43, 0x65]
    for name in ("python_complex", "bytes", "unfriendly", "a_module", "frozenset", "generator"):
        assert leaf(name) is None, name
    error_log = rank_directory(dump_path) / "dump_error_info.log"
    if error_log.exists():
        assert error_log.read_text().strip(), "an error log is not empty"


@pytest.mark.timeout(120)
def test_a_misspelt_field_is_warned_about(traced):
    done = traced("train_steps.py", "--steps", 1, risk_levle="ALL")
    assert "risk_levle" in done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_any_path_will_do(tmp_path):
    dump_path = tmp_path / "with space" / "plus+tilde~" / "ünïcode-目录"
    config = write_config(tmp_path / "config.json", dump_path)
    run([sys.executable, PROGRAMS / "train_steps.py", "--config", config, "--steps", 1])
    assert entries(dump_path)
