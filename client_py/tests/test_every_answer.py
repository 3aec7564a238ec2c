"""Every command in every format: each answer is whole, and says the same as the table."""

from __future__ import annotations

import csv
import io
import json
import math
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, rows, strict
from test_compare import binary, recorded  # noqa: F401

from msprobe_client.commands import COMMANDS

TENSOR = "Functional.linear.0.forward.input.1"
# Placeholders in a command line, for things on the machine.
PLACES = ("{target}", "{golden}", "{dir}", "{scratch}")
ON_A_STORE: dict[str, list[list[str]]] = {
    "runs": [[]],
    "environment": [["target"], ["target", "golden"]],
    "steps": [["target"]],
    "records": [
        ["target"],
        ["target", "--step", "0", "--name", "Functional.linear.0*", "--stack"],
        ["target", "--where", "max > 0"],
    ],
    "export": [["target", "--output", "{scratch}/exported", "--force"]],
    "import": [["{dir}", "--run", "again"]],
    "tensor": [
        ["target", TENSOR, "--step", "0", "--rank", "proc0"],
        ["target", TENSOR, "--step", "0", "--rank", "proc0", "-o", "{scratch}/t.npy"],
        ["stats", f"target/step0/proc0/{TENSOR}"],
        ["diff", f"target/step0/proc0/{TENSOR}", f"golden/step0/proc0/{TENSOR}"],
        ["convert", f"target/step0/proc0/{TENSOR}", "-o", "{scratch}/t.safetensors"],
    ],
    "compare": [["target", "golden", "--all"], ["target", "golden", "--roll-up", "module"]],
    "first-divergence": [["target", "golden"]],
    "overflow": [["target"]],
    "collectives": [],  # tests/integration/test_communication.py has runs with ranks
    "hang": [],
    "replay": [],  # tests/integration/test_replay.py has runs with replays
    "trend": [["target", "*.output.0"], ["target", "*.output.0", "--diff", "golden"]],
    "find": [["target", "--name", "*.output.0"], ["target", "--name", "nothing"]],
    "graph": [
        ["target", "-o", "{scratch}/graphs"],
        ["target", "golden", "-o", "{scratch}/pair.vis.db"],
        ["target", "golden", "--to", "model-explorer", "-o", "{scratch}/explorer"],
    ],
    "report": [["target", "-o", "{scratch}/one.html"], ["target", "golden", "-o", "{scratch}/two.html"]],
    "trend-database": [["target", "-o", "{scratch}/trends"], ["target", "--micro-steps", "-o", "{scratch}/a.trend.db"]],
    "series": [["target"], ["target", "--name", "nothing"]],
    "signs": [["target", "golden"]],  # tests/integration/test_gradient_signs.py has runs with signs
    "alarms": [["target"]],
    "rules": [["target"], ["target", "--set", "{scratch}/rules.yaml", "--save", "{scratch}/saved.yaml"]],
    "control": [["target", "status"]],
    "server": [["info"], ["pin", "target"], ["unpin", "target"], ["backup", "{scratch}/backup"]],
    "jobs": [["target"]],
    "delete": [["target", "--yes"]],
}
ON_DIRECTORIES: dict[str, list[list[str]]] = {
    "records": [["{target}"], ["{target}", "--where", "max > 0"]],
    "compare": [["{target}", "{golden}", "--all"], ["{target}", "{golden}"]],
    "first-divergence": [["{target}", "{golden}"]],
    "overflow": [["{target}"]],
    "replay": [],  # as above
    "trend": [["{target}", "*.output.0"]],
    "find": [["{target}", "--name", "*"]],
    "graph": [["{target}", "-o", "{scratch}/graphs"], ["{target}", "{golden}", "-o", "{scratch}/pair.vis.db"]],
    "report": [["{target}", "-o", "{scratch}/one.html"], ["{target}", "{golden}", "-o", "{scratch}/two.html"]],
    "trend-database": [["{target}", "-o", "{scratch}/trends"]],
    "check": [["{target}"]],
    "sensitivity": [["{target}"]],
    "local-error": [["{target}", "{golden}"]],
    "repro": [["{target}", TENSOR.rsplit(".", 2)[0], "--step", "0", "--rank", "proc0", "-o", "{scratch}/script"]],
    "onnx": [],  # tests/integration/test_onnx.py has models
    "bisect": [],  # tests/integration/test_bisect.py has programs to run
    "checkpoint-diff": [],  # tests/integration/test_checkpoint_diff.py has checkpoints
    "weights": [],  # tests/integration/test_weights.py has runs with weights
    "doctor": [["--dump_path", "{scratch}"]],
    "recover": [["{scratch}"]],
    "worker": [],  # it answers by its exit code: test_jobs.py
}
PAIRS = ("clean", "differing", "incomplete")
# What others answer does not hang on how the two sides differ.
OF_A_PAIR = {"steps", "records", "compare", "first-divergence", "overflow", "trend", "find", "report"}


@pytest.fixture
def pair(tmp_path: Path) -> Callable[[str], tuple[Path, Path]]:
    """Target and golden side as dump directories."""

    def make(kind: str) -> tuple[Path, Path]:
        sides = []
        for side, name in (
            ("target", "tensor_perturb" if kind == "differing" else "tensor_golden"),
            ("golden", "tensor_golden"),
        ):
            source = recorded(name)
            inner = source if (source / "dump.json").exists() else next(source.rglob("dump.json")).parent
            for step in (0, 1) if kind == "incomplete" and side == "target" else (0,):
                shutil.copytree(inner, tmp_path / side / f"step{step}" / "proc0")
            if kind == "incomplete" and side == "target":
                (tmp_path / side / "step1" / "proc0" / "INCOMPLETE").write_text("killed\n")
            sides.append(tmp_path / side)
        return sides[0], sides[1]

    return make


def check(done: subprocess.CompletedProcess[str], chosen: str, table: str) -> None:
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    if chosen == "csv":
        header, *lines = csv.reader(io.StringIO(done.stdout))
        assert header and all(len(line) == len(header) for line in lines)
        return
    answer: dict[str, Any] = strict(done.stdout)
    assert next(iter(answer)) == "rows" and {"notes", "warnings"} <= set(answer)
    for note in answer["notes"]:
        assert note in table, "what is noted stands in the table, too"
    for sentence in ("no operation diverges", "everything is finite", "equal within tolerance", "only the target has"):
        if sentence in table:
            assert any(sentence in note for note in answer["notes"]), (sentence, answer["notes"])


def test_no_command_is_forgotten() -> None:
    assert {name for _, name in COMMANDS} == {*ON_A_STORE, *ON_DIRECTORIES}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", PAIRS)
@pytest.mark.parametrize("where", ["store", "directories"])
def test_each_answers_whole_in_each_format(
    kind: str,
    where: str,
    pair: Callable[[str], tuple[Path, Path]],
    binary: str,  # noqa: F811
    run_client: Run,
    tmp_path: Path,
) -> None:
    target, golden = pair(kind)
    store = ["--data_dir", str(tmp_path / "store")] if where == "store" else []
    environment = {"MSPROBE_SERVER_BINARY": binary}
    for name, side in (("target", target), ("golden", golden)) if store else ():
        assert run_client("import", side, "--run", name, *store, **environment).returncode == 0
    for command, lines in (ON_A_STORE if store else ON_DIRECTORIES).items():
        for line in lines if kind == "differing" or command in OF_A_PAIR else ():
            answers = {}
            for chosen in ("table", "json", "csv"):
                scratch = tmp_path / f"{chosen}{len(list(tmp_path.iterdir()))}"
                scratch.mkdir()
                (scratch / "rules.yaml").write_text("rules:\n- {name: nan, not_finite: }\n")
                named = {"target": target, "golden": golden, "dir": golden, "scratch": scratch}
                given = [argument.format(**named) for argument in line]
                if command == "import":
                    given[-1] += chosen
                if command == "delete" and chosen != "table":
                    run_client("import", golden, "--run", "target", *store, **environment)
                answers[chosen] = run_client(*store, "--format", chosen, command, *given, **environment)
            if command == "control":  # nobody runs who could be asked; tests/integration/test_control.py has those
                assert {(done.returncode, done.stdout) for done in answers.values()} == {(3, "")}
                continue
            for chosen in ("json", "csv"):
                check(answers[chosen], chosen, answers["table"].stdout + answers["table"].stderr)
                assert answers[chosen].returncode == answers["table"].returncode, (command, line)


@pytest.mark.timeout(120)
def test_the_first_divergence_says_all_in_json(
    pair: Callable[[str], tuple[Path, Path]],
    binary: str,  # noqa: F811
    run_client: Run,
) -> None:
    target, golden = pair("incomplete")
    done = run_client("first-divergence", target, golden, "--format", "json", MSPROBE_SERVER_BINARY=binary)
    answer = strict(done.stdout)
    assert done.returncode == 1 and answer["rows"] == [] and answer["first"] is None
    assert answer["notes"] == ["only the target has step 1 proc0", "no operation diverges"]
    assert answer["unpaired"] == [{"side": "target", "step": 1, "rank": "proc0"}]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", ["compare", "first-divergence", "overflow"])
def test_a_step_that_never_ended_and_another_level_are_told(
    command: str,
    pair: Callable[[str], tuple[Path, Path]],
    binary: str,  # noqa: F811
    run_client: Run,
) -> None:
    target, golden = pair("incomplete")
    shutil.copytree(golden / "step0", golden / "step1")
    dump = golden / "step1" / "proc0" / "dump.json"
    text = dump.read_text()
    level = json.loads(text)["level"]
    dump.write_text(text.replace(f'"{level}"', '"L0"', 1))
    sides = (target,) if command == "overflow" else (target, golden)
    done = run_client(command, *sides, "--format", "json", MSPROBE_SERVER_BINARY=binary)
    answer = strict(done.stdout)
    lacks = f"step 1 of {target}, process 0: incomplete, as the file INCOMPLETE beside its dump.json says"
    assert lacks in answer["notes"]
    if command == "overflow":
        assert (
            "NaN or infinity began nowhere that was captured in 2 steps, those of each rank counted" in answer["notes"]
            and answer["steps"] == 2
        )
    else:
        unlike = f"the target was captured at level {level}, the golden side at L0: "
        assert sum(note.startswith(unlike) for note in answer["notes"]) == 1
    done = run_client(command, *sides, "--step", "0", "--format", "json", MSPROBE_SERVER_BINARY=binary)
    assert not [note for note in strict(done.stdout)["notes"] if "incomplete" in note or "level" in note]


def scalar(value: object, kind: str) -> dict[str, object]:
    return {"type": kind, "value": value}


SCALARS: dict[str, tuple[object, object, str, str]] = {
    # name: target, golden, as the table shows each
    "float": (scalar(0.1, "float"), scalar(0.0, "float"), "0.1", "0"),
    "int": (scalar(3, "int"), scalar(2**62, "int"), "3", str(2**62)),
    "bool": (scalar(True, "bool"), scalar(False, "bool"), "True", "False"),
    "str": (scalar("mean", "str"), scalar("sum", "str"), "mean", "sum"),
    "none": (None, scalar(1, "int"), "", "1"),
    "size": (scalar([1, 2], "torch.Size"), scalar([2, 1], "torch.Size"), "[1, 2]", "[2, 1]"),
    "slice": (scalar([None, 3, None], "slice"), scalar([None, 4, None], "slice"), "[None, 3, None]", "[None, 4, None]"),
    "dtype": (
        scalar("torch.float32", "torch.dtype"),
        scalar("torch.float64", "torch.dtype"),
        "torch.float32",
        "torch.float64",
    ),
    "format": (
        {"type": "torch.memory_format", "format": "channels_last"},
        {"type": "torch.memory_format", "format": "contiguous_format"},
        "channels_last",
        "contiguous_format",
    ),
}


@pytest.fixture
def scalar_dumps(tmp_path: Path) -> tuple[Path, Path]:
    sides = []
    for index, side in enumerate(("a", "b")):
        data = {
            f"Torch.{name}.0.forward": {"input_args": [pair[index]], "input_kwargs": {}, "output": [None]}
            for name, pair in SCALARS.items()
        }
        (tmp_path / side).mkdir()
        file = tmp_path / side / "dump.json"
        file.write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
        (tmp_path / side / "construct.json").write_text("{}")
        sides.append(tmp_path / side)
    return sides[0], sides[1]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", SCALARS)
def test_arguments_that_are_no_tensors_are_shown_as_they_are(
    name: str,
    scalar_dumps: tuple[Path, Path],
    binary: str,  # noqa: F811
    run_client: Run,
) -> None:
    target, golden, *_ = SCALARS[name]
    environment = {"MSPROBE_SERVER_BINARY": binary}
    compare = ["compare", *scalar_dumps, "--name", f"Torch.{name}.*"]
    (row,) = strict(run_client(*compare, "--format", "json", **environment).stdout)["rows"]
    texts = []
    for given, side in ((target, "target"), (golden, "golden")):
        value = given.get("value", given.get("format")) if isinstance(given, dict) else None
        kind = given["type"] if isinstance(given, dict) else "NoneType"
        shown = str(value) if isinstance(value, list) else value
        assert (row[f"{side}_value"], row[f"{side}_dtype"]) == (shown, kind)
        texts.append(None if shown is None else f"{shown:g}" if isinstance(shown, float) else str(shown))
    (line,) = csv.DictReader(run_client(*compare, "--format", "csv", **environment).stdout.splitlines())
    assert [line["target_value"], line["golden_value"]] == [
        "" if row[side] is None else str(row[side]) for side in ("target_value", "golden_value")
    ]
    table = run_client(*compare, **environment).stdout.splitlines()[1]
    assert all(text is None or text in table for text in texts), table
    divergence = run_client("first-divergence", *scalar_dumps, "--name", f"Torch.{name}.*", **environment).stdout
    assert "0 against 0" not in divergence
    assert " against " in divergence and all(text is None or text in divergence for text in texts), divergence


@pytest.mark.timeout(120)
@pytest.mark.parametrize("command", ["compare", "first-divergence", "overflow"])
def test_a_name_that_nothing_has_is_no_agreement(
    command: str,
    scalar_dumps: tuple[Path, Path],
    binary: str,  # noqa: F811
    run_client: Run,
) -> None:
    sources = scalar_dumps[: 1 if command == "overflow" else 2]
    done = run_client(command, *sources, "--name", "nosuch*", MSPROBE_SERVER_BINARY=binary)
    assert (done.returncode, "is called nosuch*" in done.stderr) == (3, True), done.stdout + done.stderr


@pytest.mark.timeout(120)
def test_a_trend_of_numbers_among_arguments(tmp_path: Path, binary: str, run_client: Run) -> None:  # noqa: F811
    for step, (value, flag) in enumerate([(0.5, True), (0.25, False)]):
        data = {
            "Functional.dropout.0.forward": {
                "input_args": [None, scalar(value, "float"), scalar(flag, "bool"), scalar("x", "str")],
                "input_kwargs": {},
                "output": [None],
            }
        }
        directory = tmp_path / "dump" / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    environment = {"MSPROBE_SERVER_BINARY": binary}
    done = run_client("trend", tmp_path / "dump", "*.input.*", "--format", "json", **environment)
    series = {row["name"].rpartition(".")[2]: row["value"] for row in strict(done.stdout)["rows"]}
    assert series == {"1": [0.5, 0.25], "2": [1.0, 0.0]}


@pytest.mark.timeout(120)
def test_masks_of_infinity_are_told_and_not_called_finite(tmp_path: Path, binary: str, run_client: Run) -> None:  # noqa: F811
    def leaf(low: float) -> dict[str, Any]:
        numbers = {"Max": 1.0, "Min": low, "Mean": low, "Norm": abs(low)}
        return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False} | numbers

    masked, finite = leaf(-math.inf), leaf(0.5)
    data = {
        "Tensor.masked_fill.0.forward": {
            "input_args": [finite, scalar(-math.inf, "float")],
            "input_kwargs": {},
            "output": [masked],
        },
        "Functional.softmax.0.forward": {"input_args": [masked], "input_kwargs": {}, "output": [finite]},
    }
    (tmp_path / "dump" / "step0" / "rank0").mkdir(parents=True)
    dump = {"task": "statistics", "level": "L1", "data": data}
    (tmp_path / "dump" / "step0" / "rank0" / "dump.json").write_text(json.dumps(dump))
    for more, said in (([], ""), (["--name", "*softmax*"], " among what is called *softmax*")):
        done = run_client("overflow", tmp_path / "dump", *more, "--format", "json", MSPROBE_SERVER_BINARY=binary)
        assert done.returncode == 0, done.stderr
        nowhere, why = strict(done.stdout)["notes"]
        assert nowhere == f"NaN or infinity began nowhere that was captured{said} in 1 step, those of each rank counted"
        assert why.startswith(f"1 step of {tmp_path / 'dump'} had NaN or infinity that no operation began: masks, ")


@pytest.mark.timeout(120)
def test_without_statistics_nothing_is_called_finite(tmp_path: Path, binary: str, run_client: Run) -> None:  # noqa: F811
    for step in (0, 1):
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
        leaf |= {"Max": None, "Min": None, "Mean": None, "Norm": None, "md5": f"0000000{step}"}
        loss = leaf | {"shape": []} | dict.fromkeys(("Max", "Min", "Mean", "Norm"), 0.5)  # a scalar's value is there
        data = {"Functional.relu.0.forward": {"input_args": [leaf], "input_kwargs": {}, "output": [leaf, loss]}}
        directory = tmp_path / "dump" / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    done = run_client("overflow", tmp_path / "dump", MSPROBE_SERVER_BINARY=binary)
    assert done.returncode == 0, done.stderr
    assert f"no statistics were captured in 2 steps of {tmp_path / 'dump'}: whether anything is NaN " in done.stdout
    assert "everything is finite" not in done.stdout
    store = {"MSPROBE_SERVER_BINARY": binary}
    done = run_client("import", tmp_path / "dump", "--run", "stored", "--data_dir", tmp_path / "store", **store)
    assert done.returncode == 0, done.stderr
    done = run_client("overflow", "run:stored", "--data_dir", tmp_path / "store", **store)
    assert "no statistics were captured in 2 steps of stored: whether anything is NaN " in done.stdout, done.stderr
    done = run_client("overflow", tmp_path / "dump", "--step", "7", MSPROBE_SERVER_BINARY=binary)
    assert done.returncode == 3 and "there is no such step and rank; there is step 0 rank0" in done.stderr


@pytest.mark.timeout(120)
def test_a_statistic_that_a_dump_lacks_is_no_nan(tmp_path: Path, binary: str, run_client: Run) -> None:  # noqa: F811
    for step, (most, norm) in enumerate([(2.0, 3.0), (math.nan, math.nan), (2.0, None)]):
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
        leaf |= {"Max": most, "Min": most, "Mean": most, "Norm": norm}
        data = {"Functional.relu.0.forward": {"input_args": [], "input_kwargs": {}, "output": [leaf]}}
        directory = tmp_path / "dump" / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    statistics = [word for name in ("norm", "std", "max") for word in ("--statistic", name)]
    environment = {"MSPROBE_SERVER_BINARY": binary}
    for diff in ([], ["--diff", tmp_path / "dump"]):
        trend = ["trend", tmp_path / "dump", "*.output.0", *statistics, *diff]
        found = {row["statistic"]: row for row in rows(run_client(*trend, "--format", "json", **environment))}
        for side in ("value", "golden") if diff else ("value",):
            assert found["norm"][side] == [3.0, "NaN", None]
            assert found["std"][side] == [None, None, None]
            assert found["max"][side] == [2.0, "NaN", 2.0]
    lines = [line.split() for line in run_client(*trend, **environment).stdout.splitlines()]
    assert [line[3:] for line in lines if "std" in line] == [["0", "0"], ["1", "0"], ["2", "0"]]


def test_checksums_of_two_functions_are_no_difference(tmp_path: Path, binary: str, run_client: Run) -> None:  # noqa: F811
    for name, checksum in (("xor", "0x0000000000000077"), ("other", "0x0000000000000078"), ("crc", "2bfa2977")):
        leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False, "md5": checksum}
        data = {"Functional.relu.0.forward": {"input_args": [], "input_kwargs": {}, "output": [leaf]}}
        directory = tmp_path / name / "step0" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    verdicts = {}
    for golden in ("xor", "other", "crc"):
        compared = run_client(
            *("compare", tmp_path / "xor", tmp_path / golden, "--all", "--format", "json"), MSPROBE_SERVER_BINARY=binary
        )
        verdicts[golden] = [row["verdict"] for row in rows(compared)]
    assert verdicts == {"xor": ["equal"], "other": ["differs"], "crc": ["unknown"]}
