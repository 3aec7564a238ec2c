"""compare against the real msprobe-server."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, rows, strict

from msprobe_client import Client

REPOSITORY = Path(__file__).parents[2]
EQUAL, DIFFERS, USAGE, FAILED = 0, 1, 2, 3


@pytest.fixture
def binary() -> str:
    named = os.environ.get("MSPROBE_SERVER_BINARY", str(Path(sys.executable).parent / "msprobe-server"))
    if not os.access(named, os.X_OK):
        pytest.skip(f"no msprobe-server at {named}: run `make build` or set MSPROBE_SERVER_BINARY")
    return named


@pytest.fixture
def compare(binary: str, run_client: Run) -> Run:
    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_client("compare", *arguments, MSPROBE_SERVER_BINARY=binary)

    return run


def recorded(name: str) -> Path:
    path = Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference")) / "compare" / name
    if not path.is_dir():
        pytest.skip(f"no recorded dumps at {path}: set MSPROBE_REFERENCE to the directory that holds compare/")
    return path


def tensor(norm: float | None = 2.0, dtype: str = "torch.float32", **more: Any) -> dict[str, Any]:
    leaf = {"type": "torch.Tensor", "dtype": dtype, "shape": [4], "Max": 1.0, "Min": -1.0, "Mean": 0.5, "Norm": norm}
    return {**leaf, "requires_grad": False, **more}


def dump(directory: Path, data: dict[str, Any], construct: dict[str, str | None] | None = None) -> Path:
    directory.mkdir(parents=True)
    (directory / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L1", "data": data}))
    (directory / "construct.json").write_text(json.dumps(construct or {}))
    return directory


def call(*outputs: object, inputs: tuple[object, ...] = ()) -> dict[str, Any]:
    return {"input_args": list(inputs), "input_kwargs": {}, "output": list(outputs)}


def test_a_dump_equals_itself(compare: Run) -> None:
    path = recorded("tensor_golden")
    result = compare(path, path, "--all", "--format", "json")
    assert result.returncode == EQUAL, result.stderr
    assert {row["verdict"] for row in rows(result)} == {"equal"}
    summary = strict(result.stdout)["summary"]
    assert summary["rows"] == 165 and summary["differences"] == 0


def test_the_first_difference_is_the_changed_weight(compare: Run) -> None:
    for mode in ("statistics", "md5", "tensor"):
        result = compare(recorded(f"{mode}_perturb"), recorded(f"{mode}_golden"))
        assert result.returncode == DIFFERS, result.stderr
        assert "first difference in order of execution: Functional.linear.6.forward.input.1\n" in result.stdout


def test_what_nobody_knows_is_not_called_equal(compare: Run, tmp_path: Path) -> None:
    known, unknown = call(tensor()), call(tensor(None, Max=None, Min=None, Mean=None))
    some = dump(tmp_path / "some", {"Torch.add.0.forward": known, "Torch.mul.0.forward": unknown})
    none = dump(tmp_path / "none", {"Torch.mul.0.forward": unknown})
    result = compare(some, some)
    assert result.returncode == EQUAL, result.stderr
    assert "\nequal within tolerance, as far as known: 1 are unknown\n" in result.stdout
    result = compare(none, none)
    assert result.returncode == EQUAL, result.stderr
    assert "nothing could be compared: every verdict is unknown\n" in result.stdout
    assert "equal within" not in result.stdout


def test_tolerances_decide(compare: Run, tmp_path: Path) -> None:
    a = dump(tmp_path / "a", {"Torch.add.0.forward": call(tensor(2.0), tensor(2.0, "torch.bfloat16"))})
    b = dump(tmp_path / "b", {"Torch.add.0.forward": call(tensor(2.02), tensor(2.02, "torch.bfloat16"))})
    result = compare(a, b, "--all", "--format", "json")
    assert [row["verdict"] for row in rows(result)] == ["differs", "within"]
    assert rows(result)[0]["statistic"] == "Norm" and rows(result)[0]["target_value"] == 2.0
    assert compare(a, b, "--rtol", "0.02").returncode == EQUAL
    assert compare(a, b, "--tolerance", "float32=0.02").returncode == EQUAL
    assert compare(a, b, "--tolerance", "float32=0.02", "--tolerance", "bfloat16=0,0").returncode == DIFFERS
    wrong = compare(a, b, "--tolerance", "float99=1")
    assert wrong.returncode == FAILED and "float99" in wrong.stderr and wrong.stderr.count("\n") == 1
    assert compare(a, b, "--tolerance", "much").returncode == USAGE


def test_every_kind_of_difference_has_its_verdict(compare: Run, tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")
    pairs: dict[str, tuple[Any, Any]] = {
        "non-finite": (tensor(nan), tensor(1.0)),
        "non-finite sign": (tensor(inf), tensor(-inf)),
        "equal": (tensor(nan), tensor(nan)),
        "dtype": (tensor(dtype="torch.int64"), tensor()),
        "shape": (tensor(shape=[5]), tensor()),
        "scalar": ({"type": "int", "value": 1}, {"type": "int", "value": 2}),
        "scalar none": (None, {"type": "int", "value": 2}),
        "within checksum": (tensor(md5="01234567"), tensor(md5="01234568")),
        "differs checksum": (
            tensor(dtype="torch.int64", md5="01234567"),
            tensor(dtype="torch.int64", md5="01234568"),
        ),
        "equal checksum": (tensor(3.0, md5="01234567"), tensor(9.0, md5="01234567")),
        "unknown": (tensor(None, Max=None, Min=None, Mean=None), tensor(None, Max=None, Min=None, Mean=None)),
    }
    a = dump(tmp_path / "a", {f"Torch.f.{i}.forward": call(x) for i, (x, _) in enumerate(pairs.values())})
    b = dump(tmp_path / "b", {f"Torch.f.{i}.forward": call(y) for i, (_, y) in enumerate(pairs.values())})
    result = compare(a, b, "--all", "--order", "execution", "--format", "json")
    assert result.returncode == DIFFERS, result.stderr
    assert [row["verdict"] for row in rows(result)] == [name.split()[0] for name in pairs]


def test_rows_without_a_partner_are_shown_of_both_sides(compare: Run, tmp_path: Path) -> None:
    a = dump(tmp_path / "a", {"Torch.x.0.forward": call(tensor()), "Torch.a.0.forward": call(tensor())})
    b = dump(tmp_path / "b", {"Torch.x.0.forward": call(tensor()), "Torch.b.0.forward": call(tensor(), tensor())})
    result = compare(a, b, "--format", "csv")
    assert result.returncode == DIFFERS
    found = {row["name"]: row["verdict"] for row in csv.DictReader(result.stdout.splitlines())}
    assert found == {
        "Torch.a.0.forward.output.0": "target only",
        "Torch.b.0.forward.output.0": "golden only",
        "Torch.b.0.forward.output.1": "golden only",
    }


def test_shifted_calls_match_fuzzily(compare: Run, tmp_path: Path) -> None:
    a = dump(tmp_path / "a", {f"Torch.f.{i}.forward": call(tensor(float(i))) for i in range(1, 5)})
    b = dump(tmp_path / "b", {f"Torch.f.{i - 1}.forward": call(tensor(float(i))) for i in range(1, 5)})
    assert compare(a, b).returncode == DIFFERS
    result = compare(a, b, "--fuzzy", "--all", "--order", "execution", "--format", "json")
    assert result.returncode == EQUAL
    assert [row["golden_name"] for row in rows(result)] == [f"Torch.f.{i}.forward.output.0" for i in range(4)]


@pytest.mark.parametrize("damage", ["deleted", "truncated", "junk", "bits"])
def test_damaged_contents_are_an_error(compare: Run, tmp_path: Path, damage: str) -> None:
    golden = recorded("tensor_golden")
    target = tmp_path / "target"
    shutil.copytree(golden, target)
    name = "Functional.linear.0.forward.input.1"
    file = target / "step0" / "proc1" / "dump_tensor_data" / f"{name}.pt"
    content = file.read_bytes()
    if damage == "deleted":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[:-100])
    elif damage == "junk":
        file.write_bytes(b"x" * 100)
    else:
        middle = content.index(b"data/0") + 200
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    result = compare(target, golden, "--format", "json")
    assert result.returncode == DIFFERS, result.stderr
    (row,) = rows(result)
    assert (row["name"], row["verdict"]) == (name, "unreadable")
    assert f"{name}.pt" in row["message"]


def test_runs_directories_and_files_mix(compare: Run, binary: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    directory = recorded("statistics_golden")
    os.environ["MSPROBE_SERVER_BINARY"] = binary
    with Client(data_dir=store, create=True) as client:
        client.import_dump(directory, "golden")
    file = directory / "step0" / "proc1" / "dump.json"
    for a, b in (("golden", directory), (file, "run:golden"), (file, directory / "step0"), ("golden", "golden")):
        result = compare(a, b, "--data_dir", store)
        assert result.returncode == EQUAL, (a, b, result.stdout, result.stderr)
    result = compare("golden", recorded("statistics_perturb"), "--data_dir", store, "--roll-up", "layer")
    assert result.returncode == DIFFERS
    assert "model.layers.0 " in result.stdout


def test_directories_are_uploaded_to_a_server_that_others_use(run_client: Run, binary: str, tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/s"
    command = [binary, f"--data_dir={tmp_path / 'store'}", f"--listen={address}", "--log_level=off"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            deadline = time.monotonic() + 30
            while run_client("runs", "--server", address).returncode != 0:
                assert time.monotonic() < deadline, "the server does not answer"
            golden, target = recorded("statistics_golden"), recorded("statistics_perturb")
            result = run_client("compare", target, golden, "--server", address)
            assert result.returncode == DIFFERS, result.stderr
            assert "first difference in order of execution: Functional.linear.6.forward.input.1\n" in result.stdout
            assert rows(run_client("runs", "--server", address, "--format", "json")) == []
            bad = dump(tmp_path / "bad" / "rank0", {})
            (bad / "dump.json").write_text("{")
            result = run_client("compare", target, bad, "--server", address)
            assert result.returncode == FAILED and result.stderr.count("\n") == 1 and "dump.json" in result.stderr
            cut = dump(tmp_path / "cut" / "step0" / "rank0", {"Torch.f.0.forward": call(tensor(1.0))})
            (cut / "INCOMPLETE").write_text("killed")
            for sides in (["overflow", tmp_path / "cut"], ["compare", target, tmp_path / "cut"]):
                result = run_client(*sides, "--server", address)
                assert f"step 0 of {tmp_path / 'cut'}, rank 0: incomplete, " in result.stdout, result.stderr
            assert rows(run_client("runs", "--server", address, "--format", "json")) == []
        finally:
            server.terminate()


def test_steps_and_ranks_are_paired_by_number(compare: Run, tmp_path: Path) -> None:
    for step in (0, 1):
        for rank in (0, 1):
            dump(tmp_path / "a" / f"step{step}" / f"rank{rank}", {"Torch.f.0.forward": call(tensor(step + rank + 1.0))})
            if (step, rank) != (1, 0):
                dump(
                    tmp_path / "b" / f"step{step}" / f"rank{rank}",
                    {"Torch.f.0.forward": call(tensor(step + rank + 1.0 + (rank == 1 and step == 1)))},
                )
    result = compare(tmp_path / "a", tmp_path / "b")
    assert result.returncode == DIFFERS
    assert "only the target has step 1 rank0" in result.stdout
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("differs")]
    assert line.split()[2:4] == ["1", "rank1"]
    assert compare(tmp_path / "a", tmp_path / "b", "--step", "0").returncode == EQUAL
    result = compare(tmp_path / "a", tmp_path / "b", "--rank", "1", "--roll-up", "step", "--format", "json")
    assert [(row["step"], row["differences"]) for row in rows(result)] == [(0, 0), (1, 1)]
    result = compare(tmp_path / "a", tmp_path / "b", "--step", "9")
    assert result.returncode == FAILED and "step 0 rank0" in result.stderr


def test_modules_and_layers_are_counted(compare: Run, tmp_path: Path) -> None:
    module = "Module.model.layers.3.mlp.MLP.forward.0"
    construct = {"Torch.mul.0.forward": module, module: None}
    a = dump(tmp_path / "a", {"Torch.mul.0.forward": call(tensor(9.0)), module: call(tensor(9.0))}, construct)
    b = dump(tmp_path / "b", {"Torch.mul.0.forward": call(tensor()), module: call(tensor())}, construct)
    result = compare(a, b, "--roll-up", "module", "--roll-up", "layer", "--format", "json")
    found = [(row["level"], row["name"], row["differences"]) for row in rows(result)]
    assert found == [("module", "model.layers.3.mlp", 2), ("layer", "model.layers.3", 2)]


def test_bad_input_is_one_line(compare: Run, tmp_path: Path) -> None:
    good = dump(tmp_path / "good", {"Torch.f.0.forward": call(tensor())})
    bad = dump(tmp_path / "bad", {})
    (bad / "dump.json").write_text('{"data": {\n "Torch.f.0.forward": [1, }\n}')
    result = compare(good, bad)
    assert result.returncode == FAILED and result.stderr.count("\n") == 1
    assert "bad/dump.json: line 2, column" in result.stderr
    result = compare(good, tmp_path / "nowhere")
    assert result.returncode == FAILED and "nowhere" in result.stderr
    result = compare(good, "some_run")
    assert result.returncode == USAGE and "some_run" in result.stderr


def test_an_interruption_cancels_the_work(binary: str, tmp_path: Path) -> None:
    data = {f"Torch.f.{i}.forward": call(*[tensor(float(i))] * 4) for i in range(10000)}
    first = dump(tmp_path / "step0" / "rank0", data) / "dump.json"
    for step in range(1, 200):
        directory = tmp_path / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").hardlink_to(first)
    process = subprocess.Popen(
        [sys.executable, "-m", "msprobe_client", "compare", tmp_path, tmp_path, "--all", "--format", "json"],
        env={**os.environ, "MSPROBE_SERVER_BINARY": binary},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    begun_with = process.stdout.readline() + process.stdout.readline()
    assert '"step": 0' in begun_with  # the answer has begun, and there is much of it left
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted" in errors
    assert '"step": 199' not in output
    assert time.monotonic() - begun < 15


def test_names_are_mapped_by_files_on_either_command(compare: Run, binary: str, tmp_path: Path) -> None:
    module = {"a": "Module.net.fc1.Linear.forward.0", "b": "Module.net.fc2.Linear.forward.0"}
    api = {"a": "Torch.mul.0.forward", "b": "Torch.mm.0.forward"}
    sides = [dump(tmp_path / side, {api[side]: call(tensor()), module[side]: call(tensor())}) for side in ("a", "b")]
    (tmp_path / "rows.yaml").write_text(f"{api['a']}.output.0: {api['b']}.output.0\n")
    (tmp_path / "cells.yaml").write_text("fc1: fc2\n")
    for ours, old, name, paired in (
        ("--data-mapping", "-dm", "rows.yaml", api["a"]),
        ("--cell-mapping", "-cm", "cells.yaml", module["a"]),
    ):
        result = compare(*sides, "--all", "--format", "json", ours, tmp_path / name)
        assert [row["name"] for row in rows(result) if row["verdict"] == "equal"] == [f"{paired}.output.0"]
        output = tmp_path / name.removesuffix(".yaml")
        files = [str(side / "dump.json") for side in sides]
        command = ["compare", "-tp", files[0], "-gp", files[1], "-o", str(output), old, str(tmp_path / name)]
        program = "from msprobe_client.compat.legacy import main; main()"
        environment = {**os.environ, "MSPROBE_SERVER_BINARY": binary}
        subprocess.run([sys.executable, "-c", program, *command], env=environment, check=True, capture_output=True)
        (table,) = output.glob("compare_result_*.csv")
        with table.open(newline="") as file:
            matched = [row["NPU Name"] for row in csv.DictReader(file) if row["Bench Name"] != "N/A"]
        assert matched == [f"{paired}.output.0"]
    wrong = compare(*sides, "--data-mapping", tmp_path / "rows.yaml", "--cell-mapping", "builtin")
    assert wrong.returncode == USAGE and "data and cell mapping at once" in " ".join(wrong.stderr.split())


def test_a_policy_sets_tolerances_by_name(compare: Run, tmp_path: Path) -> None:
    a = dump(tmp_path / "a", {f"Torch.{name}.0.forward": call(tensor(2.0)) for name in ("mul", "add")})
    b = dump(tmp_path / "b", {f"Torch.{name}.0.forward": call(tensor(2.02)) for name in ("mul", "add")})
    policy = tmp_path / "policy.yaml"
    policy.write_text("tolerances:\n  - {name: 'Torch.mul*', rtol: 0.02}\n")
    result = compare(a, b, "--policy", policy, "--all", "--order", "execution", "--format", "json")
    assert [row["verdict"] for row in rows(result)] == ["within", "differs"]
    policy.write_text("tolerances:\n  - {name: 'Torch.mul*', rtol: -1}\n")
    wrong = compare(a, b, "--policy", policy)
    assert wrong.returncode == USAGE and "rtol -1 is not allowed" in " ".join(wrong.stderr.split())


def test_joined_shards_say_so_in_the_table(compare: Run, tmp_path: Path) -> None:
    for rank in (0, 1):
        shard = tensor(3.0, shape=[2, 4])
        dump(tmp_path / "a" / "step0" / f"rank{rank}", {"Torch.mm.0.forward": call(shard, inputs=(tensor(2.0),))})
    whole = tensor(18**0.5, shape=[4, 4])
    dump(tmp_path / "b" / "step0" / "rank0", {"Torch.mm.0.forward": call(whole, inputs=(tensor(2.0),))})
    sides = tmp_path / "a", tmp_path / "b"
    assert compare(*sides).returncode == DIFFERS
    result = compare(*sides, "--across-layouts", "--all")
    assert result.returncode == EQUAL, result.stdout
    assert "LAYOUT" in result.stdout.splitlines()[0]
    assert "joined along axis 0 from 2 ranks" in result.stdout and "replicated on 2 ranks" in result.stdout
