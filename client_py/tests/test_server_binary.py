"""The same against the real msprobe-server: recorded dumps in, listed, and out again unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, rows

from msprobe_client import Client, NotFound

REPOSITORY = Path(__file__).parents[2]
CASES = (
    "fwd_statistics_L1",
    "train_statistics_L0",
    "train_statistics_mix",
    "train_stat_mix_bf16",
    "train_stat_md5_mix",
    "train_stat_xor_L1",
    "train_structure_mix",
    "types_api",
    "types_debug",
)


@pytest.fixture(scope="session")
def binary() -> str:
    named = os.environ.get("MSPROBE_SERVER_BINARY", str(Path(sys.executable).parent / "msprobe-server"))
    if not os.access(named, os.X_OK):
        pytest.skip(f"no msprobe-server at {named}: run `make build` or set MSPROBE_SERVER_BINARY")
    return named


@pytest.fixture
def recorded() -> Path:
    path = Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference")) / "dump"
    if not path.is_dir():
        pytest.skip(f"no recorded dumps at {path}: set MSPROBE_REFERENCE to the directory that holds dump/")
    return path


def content(path: Path) -> Any:
    """With order of keys, and with NaN equal to itself."""
    return json.loads(path.read_text(), object_pairs_hook=list, parse_constant=lambda token: token)


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_dump_goes_in_and_comes_out_the_same(
    binary: str, recorded: Path, tmp_path: Path, run_client: Run, case: str
) -> None:
    environment = {"MSPROBE_SERVER_BINARY": binary}
    store = tmp_path / "store"
    result = run_client("import", recorded / case, "--run", case, "--data_dir", store, **environment)
    assert result.returncode == 0, result.stderr

    result = run_client("runs", "--data_dir", store, "--format", "json", **environment)
    (run,) = rows(result)
    original = recorded / case / "step0" / "proc0"
    main = "debug.json" if case == "types_debug" else "dump.json"
    names = [name for name, _ in dict(content(original / main))["data"]]
    structure = case == "train_structure_mix"
    if structure:  # its dump.json is empty; what has a stack is a record
        names = sorted(name for _, (group, _) in content(original / "stack.json") for name in group)
    assert (run["run"], run["steps"], run["ranks"], run["records"]) == (case, 1, ["proc0"], len(names))

    result = run_client(
        "records", case, "--step", 0, "--rank", "proc0", "--data_dir", store, "--format", "json", **environment
    )
    listed = [row["name"] for row in rows(result)]
    assert (sorted(listed) if structure else listed) == names

    result = run_client("export", case, "--output", tmp_path / "out", "--data_dir", store, **environment)
    assert result.returncode == 0, result.stderr
    exported = tmp_path / "out" / "step0" / "proc0"
    for file in sorted(original.glob("*.json")):
        assert content(exported / file.name) == content(file), file.name


def test_delete(binary: str, recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", binary)
    with Client(data_dir=tmp_path / "store", create=True) as client:
        client.import_dump(recorded / "fwd_statistics_L1", "first")
        client.import_dump(recorded / "fwd_statistics_L1", "second")
        assert client.delete("first").row_bytes > 0
        assert [run.run for run in client.runs()] == ["second"]
        with pytest.raises(NotFound, match="first"):
            client.steps("first")
        assert client.server_info().embedded


def test_a_backup_is_restored_with_its_pins_and_checked(
    binary: str, recorded: Path, tmp_path: Path, run_client: Run
) -> None:
    environment = {"MSPROBE_SERVER_BINARY": binary}
    store, backup, restored = tmp_path / "store", tmp_path / "backup", tmp_path / "restored"
    case = "fwd_statistics_L1"
    assert run_client("import", recorded / case, "--run", "r", "--data_dir", store, **environment).returncode == 0
    result = run_client("server", "pin", "r", "--data_dir", store, **environment)
    assert result.returncode == 0, result.stderr
    assert "no run" in run_client("server", "pin", "other", "--data_dir", store, **environment).stderr

    result = run_client("server", "backup", backup, "--data_dir", store, **environment)
    assert result.returncode == 0, result.stderr
    result = run_client("server", "restore", backup, restored)
    assert result.returncode == 0, result.stderr
    assert "not empty" in run_client("server", "restore", backup, restored).stderr

    def listed(directory: Path) -> list[dict[str, Any]]:
        result = run_client("runs", "--data_dir", directory, "--format", "json", **environment)
        return rows(result)

    assert listed(restored) == listed(store)
    assert listed(restored)[0]["pinned"] is True
    checked = subprocess.run([binary, "--check", "--data_dir", restored], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.strip().endswith("damaged: 0")
    assert checked.stdout.startswith("1 runs, 1 steps, ")
