"""Graph databases of runs that go on: steps are appended while TensorBoard has the file open."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, TypeAlias

from msprobe_client.errors import DataError, NotFound
from msprobe_client.scratch import scratch_directory

if TYPE_CHECKING:
    from msprobe_client.comparison import GraphReport
    from msprobe_client.model import Rank, RunSummary, StepSummary

    Place: TypeAlias = tuple[int, Rank]  # step and rank

_POLL_S = 0.5
_LOCK_S = 60  # how long another writer, such as the plugin's manual match, may hold the file


class AwaitedRun:
    """A run that may not have begun yet.

    runs: all of the server. tell: gets a line for people where the run is waited for.
    """

    def __init__(self, name: str, runs: Callable[[], list[RunSummary]], tell: Callable[[str], None]) -> None:
        self._name = name
        self._runs = runs
        self._tell = tell
        self._begun = self._told = False

    def look(self) -> RunSummary:
        """The run, once it has begun. NotFound: it was there and is no more."""
        while (found := next((each for each in self._runs() if each.run == self._name), None)) is None:
            if self._begun:
                raise NotFound(f"run {self._name} was deleted; the file has the steps that were ready before")
            if not self._told:
                self._tell(f"waiting for run {self._name}: no process has begun it yet")
                self._told = True
            Event().wait(_POLL_S)
        self._begun = True
        return found


def follow(
    run: Callable[[], RunSummary],
    steps: Callable[[], list[StepSummary]],
    write: Callable[[list[int], list[Rank], Path], GraphReport],
    output: Path,
) -> Iterator[GraphReport]:
    """Writes the steps that are there to output, then appends others as they complete; ends with the run.

    write: makes a whole database of these steps and ranks. One report for each change of output, of the steps that it
    brought and of the whole file's size.
    """
    shown: set[Place] = set()
    while True:
        told = run()  # before its steps: of a run that has ended all are there
        ready = _ready(told, steps()) - shown
        for ranks, numbers in _by_ranks(ready):
            if not shown:
                yield write(numbers, ranks, output)
            else:
                with scratch_directory() as scratch:
                    part = Path(scratch) / output.name
                    report = write(numbers, ranks, part)
                    append(part, output)
                yield replace(report, path=str(output), bytes=output.stat().st_size)
            shown.update((number, rank) for number in numbers for rank in ranks)
        if told.open_sessions == 0:
            return
        if shown and not output.exists():
            raise DataError(f"{output} is gone; begin again with --follow, or name another file")
        Event().wait(_POLL_S)


def _ready(run: RunSummary, steps: list[StepSummary]) -> set[Place]:
    """Of steps that every rank has ended: a rank without the step has a later one, or the run has ended."""
    ended = {(each.step, each.rank) for each in steps if each.state != "open"}
    known = {(each.step, each.rank) for each in steps}
    last = {rank: max((step for step, other in ended if other == rank), default=-1) for rank in run.ranks}

    def passed(step: int) -> bool:
        return all(
            (step, rank) in ended if (step, rank) in known else last[rank] > step or run.open_sessions == 0
            for rank in run.ranks
        )

    return {place for place in ended if passed(place[0])}


def _by_ranks(places: set[Place]) -> Iterator[tuple[list[Rank], list[int]]]:
    """Steps of the same ranks together."""
    ranks: dict[int, set[Rank]] = {}
    for step, rank in places:
        ranks.setdefault(step, set()).add(rank)
    steps: dict[frozenset[Rank], list[int]] = {}
    for step in sorted(ranks):
        steps.setdefault(frozenset(ranks[step]), []).append(step)
    for same, numbers in steps.items():
        yield list(same), numbers


def append(part: Path, output: Path) -> None:
    """Adds the steps of a database to another one in one transaction, whoever reads it meanwhile.

    DataError: the file cannot be written, or has these steps.
    """
    try:
        there = f"{output.resolve().as_uri()}?mode=rw"  # never an empty file in place of one that was removed
        with closing(sqlite3.connect(there, uri=True, timeout=_LOCK_S, isolation_level=None)) as file:
            file.execute("ATTACH ? AS part", (str(part),))
            file.execute("BEGIN IMMEDIATE")
            file.execute("INSERT INTO nodes SELECT * FROM part.nodes")
            for table in ("paths", "tb_stack"):
                file.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM part.{table}")
            _widen(file)
            file.execute("COMMIT")
    except sqlite3.IntegrityError:
        raise DataError(f"{output} has these steps already: something else writes it; name another file") from None
    except sqlite3.Error as error:
        raise DataError(f"{output} cannot take more steps: {error}") from None


def _widen(file: sqlite3.Connection) -> None:
    columns = ("rank_list", "step_list")
    query = f"SELECT {', '.join(columns)}, micro_steps FROM {{}}.tb_config"
    (mine, other) = (file.execute(query.format(schema)).fetchone() for schema in ("main", "part"))
    lists = [json.dumps(sorted({*json.loads(a), *json.loads(b)})) for a, b in zip(mine[:2], other[:2], strict=True)]
    file.execute(
        "UPDATE main.tb_config SET rank_list = ?, step_list = ?, micro_steps = ?", (*lists, max(mine[2], other[2]))
    )
