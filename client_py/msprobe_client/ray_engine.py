"""compare over a Ray cluster: each pair of steps of a rank is a task, whose worker reads it with a server of its own.

Every machine of the cluster needs msprobe-client and msprobe-server, and sees the directories under the same path. Runs
are compared by the server that has them. A task whose worker dies is run again. The answer is that of Client.compare,
in the same order.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from msprobe_client import dump_files
from msprobe_client.analysis_client import RUN_PREFIX, Found, is_path
from msprobe_client.client import Client
from msprobe_client.comparison import VERDICTS, RollUp, UnpairedStep
from msprobe_client.errors import InvalidArgument, MsprobeError, ServerUnavailable
from msprobe_client.model import Rank
from msprobe_client.output.extras import extra
from msprobe_client.scratch import scratch_directory

# Tasks handed out for each that can run: the next one is ready when one ends, and few wait.
_AHEAD = 2
_RETRIES = 3
_CANCEL_SECONDS = 10.0
_LOOK_SECONDS = 0.2
CONNECT_SECONDS = 5.0
_HOST_AND_PORT = re.compile(r"(?P<host>[^:/]+|\[[0-9a-fA-F:]+\]):(?P<port>[0-9]+)")


@dataclass(frozen=True, slots=True)
class Place:
    """A step of a rank on one side. source: what a worker opens for it."""

    step: int
    rank: Rank
    source: str


@dataclass(frozen=True, slots=True)
class Task:
    target: Place
    golden: Place
    address: str  # of the server that has the runs; empty: both are directories
    asked: dict[str, Any]


class RayEngine:
    """Compares by a Ray cluster. Use as a context; leaving it cancels what is under way.

    address: that of the cluster; else $RAY_ADDRESS, else a cluster of this machine that is ended afterwards.
    """

    def __init__(
        self, server: str | None, data_dir: str | os.PathLike[str] | None, address: str | None, cpus: int | None = None
    ) -> None:
        if data_dir is not None and address is not None:
            raise InvalidArgument(
                "a cluster does not see a data directory; start a msprobe-server on it, name it --server"
            )
        self._server = server
        self._data_dir = data_dir
        self._address = address
        self._cpus = cpus
        self._cleanup = ExitStack()
        self._ray: Any = None

    def __enter__(self) -> RayEngine:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._ray = extra("ray", "ray")
        _must_listen(self._address or os.environ.get("RAY_ADDRESS", ""))
        try:
            self._ray.init(
                address=self._address,
                num_cpus=self._cpus if self._address is None and "RAY_ADDRESS" not in os.environ else None,
                include_dashboard=False if self._address is None else None,
                logging_level="ERROR",
                log_to_driver=False,
            )
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            raise ServerUnavailable(f"the Ray cluster cannot be reached: {error}") from None
        self._cleanup.callback(self._ray.shutdown)
        _say_on_stderr(self._ray)
        return self

    def use(self, other: RayEngine) -> None:
        """Uses the cluster of another engine, which is entered, instead of entering."""
        self._ray = other._ray

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def keep_running(
        self, work: Callable[[Any], None], argument: Any, copies: int, ending: threading.Event, **resources: Any
    ) -> None:
        """Runs work(argument) so many times at once, each again where its process or machine dies.

        Until all return, one raises, or ending is set.
        """
        remote = self._ray.remote(max_retries=-1, **resources)(work)
        under_way = [remote.remote(argument) for _ in range(copies)]
        try:
            waiting = under_way
            while waiting and not ending.is_set():
                done, waiting = self._ray.wait(waiting, timeout=_LOOK_SECONDS)
                for reference in done:
                    self._get(reference)
        finally:
            for reference in under_way:
                self._ray.cancel(reference)  # as Ctrl-C in it
            self._ray.wait(under_way, num_returns=len(under_way), timeout=_CANCEL_SECONDS)

    def count(self, resource: str) -> int:
        """How many of "CPU", "GPU" or "NPU" the cluster has."""
        return int(self._ray.cluster_resources().get(resource, 0))

    def compare(
        self,
        target: str,
        golden: str,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[Rank] = (),
        note: Callable[[str], None] = lambda text: None,
        progress: Callable[[int, int], None] = lambda done, total: None,
        **asked: Any,
    ) -> Iterator[Found]:
        """As Client.compare."""
        with ExitStack() as connections:
            client = self._connected(connections, target, golden)
            wanted = list(steps), list(ranks)
            sides = [_in_scope(_places(client, source), *wanted) for source in (target, golden)]
            pairs, lonely = pair(*sides)
            address = client.address if client is not None else ""
            totals = _Totals()
            noted: dict[str, None] = {}
            for done, answer in enumerate(self._results([Task(a, b, address, asked) for a, b in pairs]), 1):
                noted |= dict.fromkeys(answer.notes)
                for item in answer.found:
                    if isinstance(item, RollUp) and item.level == "run":
                        totals.add(item, pairs[done - 1][0])
                    elif not isinstance(item, RollUp) or item.level in ("module", "layer"):
                        yield item
                progress(done, len(pairs))
            for text in noted:
                note(text)
            yield from lonely
            yield from totals.roll_ups()

    def _connected(self, connections: ExitStack, *sources: str) -> Client | None:
        """The server that has the runs; None where all are directories."""
        if all(map(is_path, sources)):
            return None
        return connections.enter_context(Client(self._server, data_dir=self._data_dir))

    def _results(self, tasks: list[Task]) -> Iterator[Answer]:
        """In order of tasks."""
        work = self._ray.remote(num_cpus=1, max_retries=_RETRIES)(run_task)
        max_tasks = _AHEAD * max(1, self.count("CPU"))
        waiting = iter(tasks)
        under_way: deque[Any] = deque()
        try:
            while True:
                while len(under_way) < max_tasks and (task := next(waiting, None)) is not None:
                    under_way.append(work.remote(task))
                if not under_way:
                    return
                answer = self._get(under_way[0])
                under_way.popleft()
                if isinstance(answer, Failure):
                    raise answer.error()
                yield answer
        finally:
            for reference in under_way:
                self._ray.cancel(reference, force=True)

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            last = str(error).strip().splitlines()[-1]
            raise ServerUnavailable(f"a worker of the Ray cluster failed: {type(error).__name__}: {last}") from None


def _say_on_stderr(ray: Any) -> None:
    """What Ray notices, such as a worker's death, it prints on stdout, among our answer."""
    module = ray._private.worker
    printed = getattr(module, "print_to_stdstream", None)
    if printed is not None:
        module.print_to_stdstream = lambda message, **more: printed({**message, "is_err": True}, **more)


def _must_listen(address: str) -> None:
    """Ray itself tries for minutes. It judges other forms of addresses than host:port."""
    match = _HOST_AND_PORT.fullmatch(address)
    if match is None:
        return
    try:
        socket.create_connection((match["host"].strip("[]"), int(match["port"])), CONNECT_SECONDS).close()
    except OSError as error:
        raise ServerUnavailable(f"the Ray cluster at {address} cannot be reached: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Failure:
    """Our error from a worker, without its place in the worker's code."""

    kind: type[MsprobeError]
    text: str

    def error(self) -> MsprobeError:
        return self.kind(self.text)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker found about its pair."""

    found: list[Found]
    notes: list[str]


def run_task(task: Task) -> Answer | Failure:
    """In a worker."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    places = task.target, task.golden
    where: dict[str, Any] = {
        "steps": sorted({(place.step, place.step) for place in places}),
        "ranks": list({place.rank: None for place in places}),
    }
    try:
        with ExitStack() as cleanup:
            if task.address:
                client = cleanup.enter_context(Client(task.address))
            else:
                scratch = cleanup.enter_context(scratch_directory())
                client = cleanup.enter_context(Client(data_dir=scratch, create=True))
            notes: list[str] = []
            found = client.compare(task.target.source, task.golden.source, **where, note=notes.append, **task.asked)
            return Answer(list(found), notes)
    except MsprobeError as error:
        return Failure(type(error), str(error))


def _places(client: Client | None, source: str) -> list[Place]:
    """In order of step, then rank."""
    if not is_path(source):
        assert client is not None
        run = source.removeprefix(RUN_PREFIX)
        return [Place(item.step, item.rank, f"{RUN_PREFIX}{run}") for item in client.steps(run)]
    path = Path(source).resolve()
    if path.is_file():
        path = path.parent if path.name in dump_files.ENTRIES else path
    found = []
    for directory, name in dump_files.rank_directories(path):
        step, _, rank = name.partition("/")
        found.append(Place(int(step.removeprefix("step")), Rank.parse(rank), str(directory)))
    if not found:
        raise InvalidArgument(
            f"{source} holds no dump: no step{{N}}/rank{{R}} or step{{N}}/proc{{PID}} with a dump.json"
        )
    return sorted(found, key=_order)


def _order(place: Place) -> tuple[int, str, int]:
    return place.step, "" if place.rank.kind == "rank" else place.rank.kind, place.rank.number


def _in_scope(places: list[Place], steps: list[tuple[int, int]], ranks: list[Rank]) -> list[Place]:
    return [
        place
        for place in places
        if (not steps or any(first <= place.step <= last for first, last in steps))
        and (not ranks or place.rank in ranks)
    ]


def pair(target: list[Place], golden: list[Place]) -> tuple[list[tuple[Place, Place]], list[UnpairedStep]]:
    """Pairs by step and rank, by the server's rules."""
    if len(target) == 1 and len(golden) == 1:
        return [(target[0], golden[0])], []
    partners = {(place.step, place.rank): place for place in golden}
    pairs: list[tuple[Place, Place]] = []
    lonely: list[UnpairedStep] = []
    for place in target:
        partner = partners.get((place.step, place.rank))
        if partner is None:
            one, other = ([each for each in side if each.step == place.step] for side in (target, golden))
            # A step's only process on each side, whose numbers are process ids.
            if len(one) == len(other) == 1 and "proc" in (place.rank.kind, other[0].rank.kind):
                partner = other[0]
        if partner is None:
            lonely.append(UnpairedStep("target", place.step, place.rank))
        else:
            pairs.append((place, partner))
    taken = {id(partner) for _, partner in pairs}
    lonely += [UnpairedStep("golden", place.step, place.rank) for place in golden if id(place) not in taken]
    if not pairs:
        raise InvalidArgument(
            f"there is no step and rank that both sides have: the target has {_text(target)}; "
            f"the golden side has {_text(golden)}"
        )
    return pairs, lonely


def _text(places: list[Place]) -> str:
    return ", ".join(f"step {place.step} {place.rank}" for place in places[:10]) or "nothing"


class _Totals:
    """Adds up the pairs to roll-ups of ranks, steps and the run."""

    def __init__(self) -> None:
        self._ranks: dict[Rank, list[RollUp]] = {}
        self._steps: dict[int, list[RollUp]] = {}
        self._all: list[RollUp] = []

    def add(self, total: RollUp, place: Place) -> None:
        self._ranks.setdefault(place.rank, []).append(total)
        self._steps.setdefault(place.step, []).append(total)
        self._all.append(total)

    def roll_ups(self) -> Iterator[RollUp]:
        for rank in sorted(self._ranks, key=lambda rank: _order(Place(0, rank, ""))):
            yield merged("rank", None, rank, self._ranks[rank])
        for step in sorted(self._steps):
            yield merged("step", step, None, self._steps[step])
        yield merged("run", None, None, self._all)


def merged(level: Any, step: int | None, rank: Rank | None, parts: list[RollUp]) -> RollUp:
    """Earlier ones go first: the worst of equals and the first difference are theirs."""
    worst = max(parts, key=lambda part: part.worst_excess)
    counts = {verdict: sum(part.verdicts.get(verdict, 0) for part in parts) for verdict in VERDICTS}
    return RollUp(
        level=level,
        name="",
        step=step,
        rank=rank,
        rows=sum(part.rows for part in parts),
        verdicts={verdict: count for verdict, count in counts.items() if count},
        worst_excess=worst.worst_excess,
        worst=next((part.worst for part in parts if part.worst_excess == worst.worst_excess and part.worst), ""),
        first_difference=next((part.first_difference for part in parts if part.first_difference), ""),
    )
