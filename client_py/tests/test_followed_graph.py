"""Which steps of a run that goes on are ready to be shown."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from msprobe_client import followed_graph
from msprobe_client.comparison import GraphReport
from msprobe_client.errors import DataError, NotFound
from msprobe_client.model import Rank

ZERO, ONE = Rank("rank", 0), Rank("rank", 1)


Look = tuple[int, dict[Rank, list[str]]]


def followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *looks: Look) -> list[tuple[list[int], list[int]]]:
    """What is written for each look at a run: (open sessions, {rank: [states of its steps]})."""
    left = list(looks)
    written: list[tuple[list[int], list[int]]] = []
    appended: list[Path] = []

    def look() -> Look:
        return left[0]

    def run() -> Any:
        return SimpleNamespace(ranks=(*look()[1],), open_sessions=look()[0])

    def steps() -> Any:
        _, states = left.pop(0)
        return [
            SimpleNamespace(step=step, rank=rank, state=state)
            for rank, of in states.items()
            for step, state in enumerate(of)
            if state
        ]

    def write(numbers: list[int], ranks: list[Rank], file: Path) -> GraphReport:
        written.append((numbers, sorted(rank.number for rank in ranks)))
        file.write_bytes(b"?" * len(written))
        return GraphReport(str(file), len(written), len(numbers), len(ranks), (), ())

    monkeypatch.setattr(followed_graph, "append", lambda part, output: appended.append(output))
    monkeypatch.setattr(followed_graph, "_POLL_S", 0)
    reports = [*followed_graph.follow(run, steps, write, tmp_path / "a.vis.db")]
    assert len(reports) == len(written) and not left
    # The user's file, not the one that was appended to it.
    assert [(report.path, report.bytes) for report in reports] == [(str(tmp_path / "a.vis.db"), 1)] * len(written)
    assert appended == [tmp_path / "a.vis.db"] * max(0, len(written) - 1)
    return written


def test_a_step_waits_for_every_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(
        tmp_path,
        monkeypatch,
        (2, {ZERO: ["complete"], ONE: ["open"]}),
        (2, {ZERO: ["complete", "complete"], ONE: ["complete", "open"]}),
        (0, {ZERO: ["complete", "complete"], ONE: ["complete", "incomplete"]}),
    ) == [([0], [0, 1]), ([1], [0, 1])]


def test_a_rank_that_comes_late_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(
        tmp_path,
        monkeypatch,
        (1, {ZERO: ["complete"]}),
        (2, {ZERO: ["complete", "complete"], ONE: ["complete"]}),
        (0, {ZERO: ["complete", "complete"], ONE: ["complete", "complete"]}),
    ) == [([0], [0]), ([0], [1]), ([1], [0, 1])]


def test_a_rank_that_skips_a_step_holds_up_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(
        tmp_path,
        monkeypatch,
        (2, {ZERO: ["complete"], ONE: [""]}),
        (2, {ZERO: ["complete"], ONE: ["", "complete"]}),
        (0, {ZERO: ["complete"], ONE: ["", "complete"]}),
    ) == [([0], [0]), ([1], [1])]


def test_a_run_is_waited_for_and_its_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_graph, "_POLL_S", 0)
    other: Any = SimpleNamespace(run="monday")
    mine: Any = SimpleNamespace(run="tuesday")
    looks: list[list[Any]] = [[], [other], [other], [other, mine], [other]]
    lines: list[str] = []
    awaited = followed_graph.AwaitedRun("tuesday", lambda: looks.pop(0), lines.append)
    assert awaited.look() is mine
    assert lines == ["waiting for run tuesday: no process has begun it yet"]
    with pytest.raises(NotFound, match="run tuesday was deleted"):
        awaited.look()


def test_a_file_that_is_gone_ends_it(tmp_path: Path) -> None:
    output = tmp_path / "a.vis.db"
    step = SimpleNamespace(step=0, rank=ZERO, state="complete")

    def write(numbers: list[int], ranks: list[Rank], file: Path) -> GraphReport:
        file.write_bytes(b"?")
        return GraphReport(str(file), 1, len(numbers), len(ranks), (), ())

    run: Any = SimpleNamespace(ranks=(ZERO,), open_sessions=1)
    steps: list[Any] = [step]
    reports = followed_graph.follow(lambda: run, lambda: steps, write, output)
    next(reports)
    output.unlink()
    with pytest.raises(DataError, match=r"a\.vis\.db is gone; begin again"):
        next(reports)


def database(path: Path, step: int) -> Path:
    """The tables of a graph database, with one node of this step."""
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            f"CREATE TABLE nodes (id INTEGER PRIMARY KEY); INSERT INTO nodes VALUES ({step});"
            "CREATE TABLE paths (id INTEGER PRIMARY KEY, path); CREATE TABLE tb_stack (id INTEGER PRIMARY KEY, stack);"
            "CREATE TABLE tb_config (rank_list, step_list, micro_steps);"
            f"INSERT INTO tb_config VALUES ('[0]', '[{step}]', 1);"
        )
    return path


def test_steps_come_into_the_file_once(tmp_path: Path) -> None:
    output, part = database(tmp_path / "a?b#.vis.db", 0), database(tmp_path / "part.vis.db", 1)
    followed_graph.append(part, output)
    with closing(sqlite3.connect(output)) as file:
        assert file.execute("SELECT id FROM nodes ORDER BY id").fetchall() == [(0,), (1,)]
        assert file.execute("SELECT step_list FROM tb_config").fetchone() == ("[0, 1]",)
    with pytest.raises(DataError, match="has these steps already: something else writes it"):
        followed_graph.append(part, output)


def test_a_file_that_was_removed_is_not_made_anew(tmp_path: Path) -> None:
    output = tmp_path / "a.vis.db"
    with pytest.raises(DataError, match=r"a\.vis\.db cannot take more steps: unable to open"):
        followed_graph.append(database(tmp_path / "part.vis.db", 1), output)
    assert not output.exists()
