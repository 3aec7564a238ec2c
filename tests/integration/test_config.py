"""Every switch of config.json in a real process, beside mindstudio-probe where that has it; docs/config.md."""

import json
import math
import re
import sys

import jsonschema
import pytest
import torch  # noqa: F401  (msprobe._agent needs its libraries in the process)
from harness.dumps import entries, exported_steps, rank_directory, read_dump
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, REPOSITORY, run_with

DOCUMENT = REPOSITORY / "docs" / "config.md"
SWITCHES = PROGRAMS / "switches.py"
TIMEOUT = pytest.mark.timeout(180)


# docs/config.md: the table and the parser.


def rows():
    """(field, default, refused value) of every row of the tables of fields."""
    found = []
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        if len(cells) == 6 and re.fullmatch(r"`[a-z_.*$]+`", cells[0]):
            found.append(tuple(cells[at].strip("`").replace("\\|", "|") for at in (0, 1, 5)))
    return found


ROWS = rows()
MONITORED = (
    *("weight_grad", "micro_batches", "moments", "parameters", "update_ratio", "interval", "activations", "ops"),
    *("communication", "model_series", "routers"),
)
NOT_IN_A_SCHEMA = ('"/nowhere"', '"Linear &"')  # it looks for no directory, and parses no predicate
FREE_BENCHMARK = (
    *("fuzz_device", "pert_mode", "handler_type", "fuzz_level", "fuzz_stage", "if_preheat", "preheat_step"),
    "max_sample",
)
CONTEXT = {"load": {"path": "/tmp", "modules": ["Module.a.Linear.forward.0"]}}


def with_field(field, value, tmp_path):
    """A configuration that holds a field of the table."""
    config = {"dump_path": str(tmp_path / "dump")}
    if field.startswith("load."):
        config["load"] = {**CONTEXT["load"], field[5:]: value}
    elif field.startswith("*."):
        task = {"bench_path": "tensor", "diff_nums": "tensor"}.get(field[2:], "statistics")
        if field[2:] in ("sample", "budget_mb", "budget_ms", "golden", "golden_wait_s", "keep", "policy"):
            task = "check"
        elif field[2:] in MONITORED:
            task = "monitor"
        elif field[2:] in ("grad_level", "param_list", "bounds"):
            task = "grad_probe"
        elif field[2:] in FREE_BENCHMARK:
            task = "free_benchmark"
        config |= {"task": task, task: {field[2:]: value}}
    else:
        config[field] = value
    return config


def parse(config):
    from msprobe import _agent

    return _agent.parse_config(json.dumps(config), task=None, dump_path=None, level=None, step=None)


def test_the_document_has_a_row_for_every_field_of_the_parser():
    from msprobe import _agent

    assert sorted(field for field, _, _ in ROWS) == sorted(_agent.config_fields())


@pytest.mark.parametrize(("field", "default", "refused"), ROWS, ids=[row[0] for row in ROWS])
def test_a_row_of_the_document_is_what_the_parser_does(field, default, refused, tmp_path, monkeypatch):
    for name in ("MSPROBE_SERVER", "MSPROBE_RUN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=re.escape(field.removeprefix("*."))) as refusal:
        parse(with_field(field, json.loads(refused), tmp_path))
    assert re.findall(r"-?[\w./]+", refused)[-1] in str(refusal.value), "the message shows the value"
    if default == "required":
        config = with_field(field, None, tmp_path)
        with pytest.raises(ValueError, match=re.escape(field)):
            parse(config)
    else:
        given = parse(with_field(field, None if default == "absent" else json.loads(default), tmp_path))
        absent = with_field(field, None, tmp_path)
        (absent.get("load") or absent.get(absent.get("task")) or absent).pop(field.rpartition(".")[2])
        assert given.values() == parse(absent).values()
        assert not given.warnings, "a field of the table is known"


# config.schema.json, and the parser.


SCHEMA = json.loads((REPOSITORY / "agent" / "python" / "msprobe" / "config.schema.json").read_text())
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
LOAD = {"path": "/tmp", "modules": ["Module.a.Linear.forward.0"]}


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(("field", "default", "refused"), ROWS, ids=[row[0] for row in ROWS])
def test_the_schema_has_the_default_and_refuses_what_the_document_does(field, default, refused, tmp_path):
    if default not in ("required", "absent"):
        assert VALIDATOR.is_valid(with_field(field, json.loads(default), tmp_path))
    wrong = with_field(field, json.loads(refused), tmp_path)
    if refused in NOT_IN_A_SCHEMA:
        assert VALIDATOR.is_valid(wrong)
    else:
        assert not VALIDATOR.is_valid(wrong)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {
            "$schema": "./config.schema.json",
            "task": None,
            "level": None,
            "rank": None,
            "statistics": None,
            "load": None,
        },
        {"task": "statistics", "level": "mix", "rank": [0, "1-3"], "step": ["5"], "dump_enable": False},
        {"statistics": {"scope": ["Module.a.Linear.forward.0", "Module.b.Linear.backward.1"]}, "level": "L0"},
        {"statistics": {"list": ["relu", r"name-regex(^Torch\.)"], "tensor_list": ["relu"], "data_mode": ["output"]}},
        {"task": "tensor", "tensor": {"slice": [{"dim": 1, "size": 8, "begin": -2, "end": None}, {}]}},
        {"task": "tensor", "tensor": {"bench_path": "/tmp", "summary_mode": "md5", "diff_nums": -1}},
        {"task": "diff_check", "diff_check": {"bench_path": "/tmp", "data_mode": []}},
        {"task": "nan_check", "nan_check": {"tensor_list": ["mul"], "bench_path": "/tmp", "diff_nums": 0}},
        {"task": "structure", "level": "L0", "tensor": 3, "acc_check": {"white_list": []}},
        {"risk_level": ""},
        {"risk_level": None},
        {"load": {**LOAD, "step": [1], "rank": ["0-7"], "dump_after_load": True}},
        {"server": "host:50051"},
        {"server": "unix:/run/a, [::1]:1,10.0.0.1:65535", "run": "night", "server_ca": "system"},
        {"loss_policy": "stall", "memory_ceiling_mb": 1.5, "stall_bound_s": 0, "max_steps": 0},
        {"dump_quota_mb": 64, "session_memory": "off", "capture": "all", "backward": "exact", "reuse": "off"},
    ],
    ids=str,
)
def test_a_right_configuration_is_accepted_by_schema_and_parser(config, tmp_path):
    config = {"dump_path": str(tmp_path / "dump"), **config}
    VALIDATOR.validate(config)
    parse(config)


@pytest.mark.parametrize(
    "config",
    [
        {"task": "overflow_check"},
        {"level": "L2"},
        {"step": ["1,2"]},
        {"rank": [1_000_001]},
        {"rank": [1.5]},
        {"rank": 0},
        {"statistics": []},
        {"statistics": {"scope": ["Functional.relu.0.forward"]}},
        {"statistics": {"data_mode": ["all", "input"]}},
        {"statistics": {"data_mode": ["input", "input", "input", "input", "input"]}},
        {"statistics": {"list": ["name-regex(a"]}},
        {"statistics": {"slice": [{"dims": 1}]}},
        {"statistics": {"slice": {"dim": 1}}},
        {"task": "tensor", "tensor": {"tensor_list": 3}},
        {"task": "tensor", "tensor": {"diff_nums": 0}},
        {"task": "diff_check"},
        {"task": "diff_check", "diff_check": {}},
        {"load": []},
        {"load": {"modules": LOAD["modules"]}},
        {"load": {**LOAD, "modules": []}},
        {"load": {**LOAD, "modules": ["Module.a.L.backward.0"]}},
        {"server": "nowhere"},
        {"server": "host:9,"},
        {"session_memory": "relative"},
        {"memory_ceiling_mb": 0},
        {"dump_quota_mb": 63},
        {"stall_bound_s": "1"},
        {"max_steps": 1.5},
    ],
    ids=str,
)
def test_a_wrong_configuration_is_refused_by_schema_and_parser(config, tmp_path):
    config = {"dump_path": str(tmp_path / "dump"), **config}
    assert not VALIDATOR.is_valid(config)
    with pytest.raises(ValueError):
        parse(config)


def test_the_schema_marks_unknown_names_of_which_the_parser_warns(tmp_path):
    for config in ({"levle": "L0"}, {"list": ["relu"]}, {"statistics": {"lst": []}}):
        config["dump_path"] = str(tmp_path / "dump")
        assert not VALIDATOR.is_valid(config)
        assert len(parse(config).warnings) == 1


def test_the_values_of_a_configuration_have_the_names_and_forms_of_the_file(tmp_path):
    given = {
        "level": "mix",
        "step": [1, 2],
        "precision": "high",
        "stall_bound_s": 0.5,
        "reuse": "off",
        "backward": "exact",
        "server_ca": "system",
        "load.dump_after_load": True,
    }
    config = {"dump_path": str(tmp_path), **given, "load": {**LOAD, "dump_after_load": True}}
    parsed = parse({name: value for name, value in config.items() if "." not in name})
    assert parsed.values() | given == parsed.values()
    assert (parsed.level, parsed.reuse, parsed.load.dump_after_load) == ("mix", "off", True)
    assert set(parsed.values()) | {"$schema"} == {field.removeprefix("*.") for field, _, _ in ROWS}


def test_an_unknown_field_is_named_with_the_nearest(tmp_path):
    warnings = parse({"dump_path": str(tmp_path), "dump_enabled": True, "statistics": {"tensor_lists": []}}).warnings
    assert len(warnings) == 2
    assert "dump_enabled" in warnings[0] and '"dump_enable"' in warnings[0]
    assert "tensor_lists" in warnings[1] and '"tensor_list"' in warnings[1]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ({"task": "acc_check"}, "again after the run"),
        ({"task": "exception_dump"}, "MindSpore"),
        ({"task": "overflow_check"}, "nan_check"),
        ({"level": "L2"}, "kernels"),
    ],
)
def test_what_other_tools_do_is_refused_with_a_word_of_why(value, word, tmp_path):
    with pytest.raises(ValueError, match=word) as refusal:
        parse({"dump_path": str(tmp_path), **value})
    assert "it should be one of" in str(refusal.value)
    assert next(iter(value.values())) in str(refusal.value)


# The switches, in a process of their own each.


@pytest.fixture(scope="module")
def switched(tmp_path_factory):
    """switched(program, config, ...) -> (data of each step, names of tensor files of step 0, output)."""
    directory = tmp_path_factory.mktemp("switches")
    number = iter(range(1000))

    def call(program, config, *flags, python=sys.executable):
        case = directory / f"case{next(number)}"
        case.mkdir()
        path = case / "config.json"
        path.with_suffix(".changes.json").write_text(json.dumps(config.get("changes")))
        config = {name: value for name, value in config.items() if name != "changes"}
        path.write_text(json.dumps({"dump_path": str(case / "dump"), **config}))
        done = run_with(python, SWITCHES, program, path, *flags)
        dump = case / "dump"
        steps = {step: entries(dump, step) for step in exported_steps(dump)} if dump.exists() else {}
        tensors = set()
        if 0 in steps:
            tensors = {file.name for file in (rank_directory(dump) / "dump_tensor_data").glob("*")}
        return steps, tensors, done.stdout, dump

    return call


def alike(ours, theirs):
    """Equal, but for the last bits of statistics."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-7) or (math.isnan(ours) and math.isnan(theirs))
    return ours == theirs


@TIMEOUT
def test_a_regular_expression_in_list(switched):
    steps, _, _, _ = switched(
        "train", {"level": "mix", "statistics": {"list": [r"name-regex(^Module\.first\.)", "mul.1"]}}
    )
    assert {name.rsplit(".", 2)[0] for name in steps[0]} >= {"Module.first.Linear", "Torch.mul"}
    inside = {"Functional.linear.0.forward", "Functional.linear.2.forward", "Functional.linear.2.backward"}
    others = [name for name in steps[0] if not name.startswith("Module.first.") and "mul.1" not in name]
    assert set(others) <= inside, others


@TIMEOUT
def test_token_range_is_that_of_mindstudio(switched, oracle_python):
    ours = switched("tokens", {"level": "mix"})[0]
    theirs = switched("tokens", {"level": "mix"}, python=oracle_python)[0]
    assert alike(ours, theirs)
    assert len([name for name in ours[0] if name.startswith("Torch.neg.")]) == 2, "what follows a pass belongs to it"
    assert ours[0]["Torch.neg.0.forward"]["input_args"][0]["Min"] == 1.0, "counted from the first that is captured"


@TIMEOUT
def test_token_range_counts_on_through_a_step_without_stop(switched, oracle_python):
    ours = switched("tokens_of_steps", {"level": "mix"})[0]
    theirs = switched("tokens_of_steps", {"level": "mix"}, python=oracle_python)[0]
    assert alike(ours[0], theirs[0])
    assert [record["input_args"][0]["Min"] for name, record in ours[0].items() if "first.Linear" in name] == [1.0, 2.0]
    assert sorted(ours) == [0], "what is past the range is not captured, in whatever step"


@TIMEOUT
def test_request_id_keeps_the_rows_of_one_request(switched, oracle_python):
    config = {"task": "tensor", "level": "L1", "tensor": {"request_id": "b"}}
    ours, tensors, output, _ = switched("requests", config)
    theirs, their_tensors, _, _ = switched("requests", config, python=oracle_python)
    assert alike(ours, theirs)
    assert tensors == their_tensors
    assert sorted(ours) == [0, 2], "the step without the request is skipped"
    assert "'b' is not among scheduled_tokens ['a', 'c']" in output
    assert ours[0]["Functional.linear.0.forward"]["input_args"][0]["shape"] == [3, 4]
    assert ours[0]["Functional.linear.0.forward"]["input_args"][0]["Min"] == pytest.approx(0.8), "rows 2 to 4"
    assert ours[0]["Torch.neg.0.forward"]["input_args"][0]["shape"] == [7, 4], "no tensor of the batch"
    assert ours[2]["Functional.linear.0.forward"]["input_args"][0]["shape"] == [1, 4]


@TIMEOUT
def test_precision_high_leaves_no_mean_or_norm_out(switched):
    steps, _, _, _ = switched("dtypes", {"level": "L1", "precision": "high"})
    tensors = [record["input_args"][0] for record in steps[0].values()]
    assert len(tensors) == 7
    for tensor in tensors:
        assert tensor["Mean"] == 3.0, tensor
        assert tensor["Norm"] == pytest.approx(math.sqrt(55), rel=1e-15), tensor


@TIMEOUT
def test_nan_check_tells_which_output_is_not_finite(switched):
    steps, tensors, _, dump = switched("infinite", {"task": "nan_check", "nan_check": {"tensor_list": ["mul"]}})
    assert {name: record["is_nan"] for name, record in steps[0].items()} == {
        "Torch.add.0.forward": 0,
        "Torch.mul.0.forward": 1,
        "Torch.isnan.0.forward": 0,
    }
    assert list(steps[0]["Torch.add.0.forward"]["output"][0]) == ["type", "dtype", "shape", "requires_grad"]
    assert tensors == {f"Torch.mul.0.forward.{place}.pt" for place in ("input.0", "input.1", "output.0")}
    assert read_dump(rank_directory(dump))["task"] == "nan_check"


@pytest.fixture(scope="module")
def benches(switched, oracle_python):
    """Dumps with tensors and checksums, of this tool and of mindstudio-probe."""
    config = {"task": "tensor", "level": "mix", "tensor": {"summary_mode": "md5"}}
    return switched("train", config)[3], switched("train", config, python=oracle_python)[3]


@TIMEOUT
@pytest.mark.parametrize("of_mindstudio", mostly_nightly([False, True], True))
def test_diff_check_keeps_the_tensors_of_the_first_difference(switched, benches, of_mindstudio):
    section = {"bench_path": str(benches[of_mindstudio])}
    config = {"task": "diff_check", "level": "mix", "diff_check": section}
    steps, tensors, output, _ = switched("train", config, "--change")
    assert tensors == {"Torch.mul.0.forward.input.0.pt", "Torch.mul.0.forward.output.0.pt"}
    assert output.count("differs from the dump under bench_path") == 1
    assert "Torch.mul.0.forward differs" in output
    assert list(steps) == [0], "the service ends after diff_nums differences, as mindstudio-probe's"
    assert "msprobe ends successfully" in output
    steps, tensors, output, _ = switched("train", config)
    assert not tensors and list(steps) == [0, 1], "equal runs have no difference"
    assert "differs" not in output


@TIMEOUT
def test_bench_path_keeps_what_mindstudio_keeps(switched, benches, oracle_python):
    section = {"bench_path": str(benches[1]), "summary_mode": "md5", "diff_nums": -1}
    config = {"task": "tensor", "level": "mix", "tensor": section}
    ours = switched("train", config, "--change")
    theirs = switched("train", config, "--change", python=oracle_python)
    # The other tool compares forward calls alone.
    assert {name for name in ours[1] if ".forward." in name} == theirs[1]
    assert len(ours[1]) > 2
    assert list(ours[0]) == list(theirs[0])


LOADED = ["Module.first.Linear.forward.0", "Module.rest.Sequential.forward.0"]


@TIMEOUT
@pytest.mark.parametrize("of_mindstudio", mostly_nightly([False, True], True))
def test_load_replaces_the_inputs_and_captures_what_then_runs(switched, benches, oracle_python, of_mindstudio):
    load = {"path": str(benches[of_mindstudio]), "modules": LOADED, "dump_after_load": True}
    config = {"level": "mix", "load": load}
    ours = switched("shifted", config)
    theirs = switched("shifted", config, python=oracle_python)
    assert alike(ours[0], theirs[0])
    bench = entries(benches[0])
    for name in LOADED:
        assert ours[0][0][name]["input_args"][0]["Max"] == bench[name]["input_args"][0]["Max"], name
    loaded = re.search("OUTPUT.*", ours[2])[0]
    assert loaded == re.search("OUTPUT.*", theirs[2])[0]
    plain = switched("shifted", {"level": "mix"})
    assert loaded != re.search("OUTPUT.*", plain[2])[0]


@TIMEOUT
@pytest.mark.parametrize("level", mostly_nightly(["L0", "L1"], "L1"))
def test_load_alone_records_nothing(switched, benches, level):
    load = {
        "path": str(benches[0]),
        "modules": [*LOADED, "Module.frist.Linear.forward.0", "Module.first.Linear.forward.9"],
    }
    steps, _, output, dump = switched("shifted", {"level": level, "load": load})
    assert not steps and not list(dump.glob("step*"))
    assert "did you mean 'Module.first.Linear'?" in output
    missed = re.search(r"not replaced: (.*)", output)[1]
    assert missed == "Module.frist.Linear.forward.0, Module.first.Linear.forward.9"
    with_capture = switched("shifted", {"level": level, "load": {**load, "dump_after_load": True}})
    assert re.search("OUTPUT.*", output)[0] == re.search("OUTPUT.*", with_capture[2])[0]
    assert list(with_capture[0]) == [0]


@TIMEOUT
def test_a_changed_file_changes_the_capture(switched, tmp_path):
    dump = tmp_path / "reloaded"
    start = {"dump_path": str(dump), "dump_enable": False}

    def text(**changes):
        return json.dumps({**start, "dump_enable": True, **changes})

    changes = {
        "2": [text()[:30], text()],  # half of it first
        "4": [text(statistics={"list": ["neg"]})],
        "5": [text(level="L9")],
        "6": [text(task="tensor", tensor={"summary_mode": "md5"}, dump_path=str(tmp_path / "other"))],
        "7": [text(dump_enable=False)],
        "9": [json.dumps({**start, "dump_enable": True, "level": "L1"})],
    }
    _, _, output, _ = switched("reload", {**start, "changes": changes})
    captured = {step: list(entries(dump, step)) for step in exported_steps(dump)}
    both = ["Torch.neg.0.forward", "Torch.abs.0.forward"]
    assert captured == {2: both, 3: both, 4: both[:1], 6: both, 9: both}
    assert entries(dump, 2)[both[0]]["output"][0]["shape"] == [3], "steps are counted on while nothing is captured"
    assert "level is invalid" in output, "what is refused is said"
    assert f"dump_path stays {dump}" in output and not (tmp_path / "other").exists()
    assert len(list((rank_directory(dump, 6) / "dump_tensor_data").glob("*.pt"))) == 4
    assert "md5" in entries(dump, 6)[both[0]]["output"][0]
    assert not (rank_directory(dump, 9) / "dump_tensor_data").exists()
