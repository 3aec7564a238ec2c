"""--engine ray on a real local cluster: the local engine's answer, also where a worker is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, rows
from test_compare import binary, call, compare, dump, tensor  # noqa: F401

pytest.importorskip("ray", reason="Ray is an extra: pip install 'msprobe-client[ray]'")

from msprobe_client import Client
from msprobe_client.comparison import RollUp, UnpairedStep
from msprobe_client.errors import InvalidArgument
from msprobe_client.model import Rank
from msprobe_client.ray_engine import Place, RayEngine, merged, pair


def sides(root: Path, steps: int = 3, calls: int = 3) -> tuple[Path, Path]:
    """The golden side lacks a step of a rank; one step of one rank differs."""
    for side in ("a", "b"):
        for step in range(steps):
            for rank in (0, 1):
                if (side, step, rank) == ("b", 1, 0):
                    continue
                other = 2.0 if (side, step, rank) == ("b", 2, 1) else 0.0
                data = {f"Torch.f.{i}.forward": call(tensor(1.0 + i + other * i)) for i in range(calls)}
                dump(root / side / f"step{step}" / f"rank{rank}", data)
    return root / "a", root / "b"


@pytest.fixture(scope="module")
def engine() -> Iterator[RayEngine]:
    """One cluster of three workers for all tests."""
    with RayEngine(None, None, None, cpus=3) as made:
        yield made


@pytest.fixture
def server(binary: str, monkeypatch: pytest.MonkeyPatch) -> str:  # noqa: F811
    monkeypatch.setenv("MSPROBE_SERVER_BINARY", binary)
    return binary


def asked(**more: Any) -> dict[str, Any]:
    return {"name": None, "matching": "exact", "mapping": None, "rows": "different", "limit": 0, **more}


@pytest.mark.timeout(120)
def test_the_command_answers_as_with_the_local_engine(compare: Run, tmp_path: Path) -> None:  # noqa: F811
    a, b = sides(tmp_path)
    local, spread = (compare(a, b, "--format", "json", "--all", "--engine", name) for name in ("local", "ray"))
    assert spread.returncode == local.returncode == 1, spread.stderr
    assert spread.stdout == local.stdout and len(rows(spread)) == 5 * 3
    assert spread.stderr == ""


@pytest.mark.timeout(120)
def test_the_answer_is_the_local_engine_s(engine: RayEngine, server: str, tmp_path: Path) -> None:
    a, b = sides(tmp_path)
    with Client(data_dir=tmp_path / "store", create=True) as client:
        for client_asked in (
            asked(rows="all", order="execution"),
            asked(rows="none"),
            asked(steps=[(1, 2)], ranks=[Rank("rank", 1)]),
            asked(name="*.f.1.*", rtol=1e3),
        ):
            expected = list(client.compare(a, b, **client_asked))
            assert list(engine.compare(str(a), str(b), **client_asked)) == expected and len(expected) > 3
        one = str(a / "step0" / "rank1" / "dump.json"), str(b / "step2")
        assert list(engine.compare(*one, **asked(ranks=[Rank("rank", 1)]))) == list(
            client.compare(*one, **asked(ranks=[Rank("rank", 1)]))
        )


@pytest.mark.timeout(180)
def test_a_killed_worker_changes_nothing(engine: RayEngine, server: str, tmp_path: Path) -> None:
    a, b = sides(tmp_path, steps=8, calls=8000)
    expected = list(engine.compare(str(a), str(b), **asked()))
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        while not done.is_set() and len(killed) < 2:
            for process in workers():
                if process not in killed:
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
                    break
            time.sleep(0.2)

    killer = threading.Thread(target=kill)
    killer.start()
    found = list(engine.compare(str(a), str(b), **asked()))
    done.set()
    killer.join()
    assert len(killed) == 2, "no worker was seen at work"
    assert found == expected
    assert any(isinstance(item, UnpairedStep) for item in found)
    total = found[-1]
    assert isinstance(total, RollUp) and (total.level, total.rows, total.differences) == ("run", 15 * 8000, 7999)


def workers() -> list[int]:
    """Processes that have a task of ours."""
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if line.split(None, 1)[1].startswith("ray::run_task")]


@pytest.mark.timeout(120)
def test_runs_on_a_server_are_compared_there(engine: RayEngine, server: str, tmp_path: Path) -> None:
    a, b = sides(tmp_path)
    with Client(data_dir=tmp_path / "store", create=True) as client:
        client.import_dump(a, "a")
        client.import_dump(b, "b")
        spread = RayEngine(client.address, None, None)
        spread.use(engine)
        for golden in ("b", str(b)):
            found = list(spread.compare("a", golden, **asked()))
            assert (
                found == list(client.compare("a", golden, **asked()))
                and UnpairedStep("target", 1, Rank("rank", 0)) in found
            )


@pytest.mark.timeout(120)
def test_what_is_wrong_in_a_worker_is_one_line(engine: RayEngine, server: str, tmp_path: Path) -> None:
    a, b = sides(tmp_path)
    (b / "step0" / "rank1" / "dump.json").write_text("{")
    with pytest.raises(InvalidArgument, match=r"step0/rank1/dump.json: line 1"):
        list(engine.compare(str(a), str(b), **asked()))


def test_what_is_wrong_with_the_command_is_one_line(compare: Run, tmp_path: Path) -> None:  # noqa: F811
    a, b = sides(tmp_path)
    result = compare(a, b, "--engine", "ray", "--compatible")
    assert result.returncode == 2 and "--engine ray" in result.stderr
    result = compare(a, b, "--engine", "ray", "--ray-address", "127.0.0.1:1")
    assert result.returncode == 3 and result.stderr.count("\n") == 1
    assert "the Ray cluster at 127.0.0.1:1 cannot be reached" in result.stderr


def place(step: int, rank: str) -> Place:
    return Place(step, Rank.parse(rank), "")


def test_places_are_paired_as_the_server_does() -> None:
    pairs, lonely = pair([place(3, "rank0")], [place(5, "proc7")])
    assert pairs == [(place(3, "rank0"), place(5, "proc7"))] and not lonely
    target = [place(0, "proc1"), place(1, "proc1"), place(2, "rank0")]
    golden = [place(0, "proc9"), place(1, "proc9"), place(1, "proc10"), place(2, "rank1")]
    pairs, lonely = pair(target, golden)
    assert pairs == [(target[0], golden[0])]
    assert lonely == [UnpairedStep("target", item.step, item.rank) for item in target[1:]] + [
        UnpairedStep("golden", item.step, item.rank) for item in golden[1:]
    ]
    with pytest.raises(InvalidArgument, match=r"step 2 rank0.*step 1 proc9"):
        pair([target[2], target[1]], golden[1:3])


def test_roll_ups_are_merged_with_earlier_ones_first() -> None:
    def part(rows: int, worst: float, name: str, **verdicts: int) -> RollUp:
        return RollUp("run", "", None, None, rows, verdicts, worst, name, name)

    parts = [part(2, 0.0, "", equal=2), part(3, 5.0, "x", differs=1, equal=2), part(1, 5.0, "y", differs=1)]
    total = merged("run", None, None, parts)
    assert (total.rows, total.worst_excess, total.worst, total.first_difference) == (6, 5.0, "x", "x")
    assert list(total.verdicts.items()) == [("equal", 4), ("differs", 2)]
