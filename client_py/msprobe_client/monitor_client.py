"""Scalar series, rules and alarms of a run. Client.monitor gives it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msprobe_client.decode import rank, rank_message
from msprobe_client.errors import ServerGoneWarning, ServerUnavailable
from msprobe_client.model import Rank
from msprobe_client.proto import monitor_pb2, monitor_pb2_grpc

if TYPE_CHECKING:
    from msprobe_client.connection import Connection


_PAUSE_SECONDS = 1.0  # between two looks for a server that went away


@dataclass(frozen=True, slots=True)
class ScalarSeries:
    """One scalar of one rank. steps grow; values may be NaN or infinite."""

    name: str
    rank: Rank
    steps: tuple[int, ...]
    values: tuple[float, ...]
    points: int  # of the whole series, where only some were asked for


@dataclass(frozen=True, slots=True)
class Captured:
    """What the run's processes were asked to capture for an alarm (Rule.capture), and what became of it."""

    asked: str  # empty: nothing, and refused says why
    steps: tuple[int, int] | None  # first and last of all processes that obeyed; None: none did
    processes: int
    bytes: int  # of these steps, as far as they have ended
    refused: str


@dataclass(frozen=True, slots=True)
class Alarm:
    """What a rule found: its first offence, and how far it went."""

    number: int
    rule: str
    kind: str
    step: int
    rank: Rank
    series: str
    value: float
    why: str
    limit: float
    recent: tuple[tuple[int, float], ...]  # the series up to the offence: step and value
    stack: tuple[str, ...]
    raised_unix_us: int
    offences: int
    last_step: int
    ranks: tuple[Rank, ...]
    others: tuple[str, ...]  # further series
    ended_unix_us: int  # 0: the episode goes on
    captured: Captured | None  # None: its rule asks for nothing


class Monitor:
    """Calls of msprobe.v1.Monitor. Thread safe. Errors are MsprobeError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._stub = monitor_pb2_grpc.MonitorStub(connection.channel)

    def series(
        self,
        run: str,
        name: str | None = None,
        *,
        ranks: Iterable[Rank] = (),
        steps: tuple[int, int] | None = None,
        max_points: int = 0,
    ) -> Iterator[ScalarSeries]:
        """Scalars whose names a shell pattern takes, by name, then rank. steps: first and last. max_points: of each
        series the extremes of so many stretches; 0: every point."""
        request = monitor_pb2.ReadSeriesRequest(
            run=run, name_glob=name or "", ranks=[rank_message(each) for each in ranks], max_points=max_points
        )
        if steps is not None:
            request.first_step, request.last_step = steps
        part: Any = None
        for message in self._connection.items(lambda: self._stub.ReadSeries(request)):
            if part is not None and (part.name, part.rank) == (message.name, message.rank):
                part.step.extend(message.step)
                part.value.extend(message.value)
                continue
            if part is not None:
                yield _series(part)
            part = message
        if part is not None:
            yield _series(part)

    def alarms(self, run: str, *, follow: bool = False) -> Iterator[Alarm]:
        """By number. follow: as they are raised or change, until none of the run's sessions is open. A server that goes
        away meanwhile is waited for (ServerGoneWarning), and what it told before is not told again."""
        request = monitor_pb2.ListAlarmsRequest(run=run)
        told: dict[int, bytes] = {}
        waits = False
        while True:
            try:
                for message in self._connection.items(lambda: self._stub.ListAlarms(request)):
                    waits = False
                    said = message.SerializeToString(deterministic=True)  # equal with NaN too
                    if told.get(message.number) != said:
                        told[message.number] = said
                        yield _alarm(message)
                if request.follow or not follow:
                    return
                request.follow = True  # it answered: from now on it is waited for
            except ServerUnavailable as error:
                if not request.follow:
                    raise
                if not waits:
                    warnings.warn(ServerGoneWarning(f"{error}; waiting for it"), stacklevel=2)
                waits = True
                time.sleep(_PAUSE_SECONDS)

    def rules(self, run: str) -> monitor_pb2.RuleSet:
        """The rules that watch the run now."""
        request = monitor_pb2.GetRulesRequest(run=run)
        found: monitor_pb2.RuleSet = self._connection.result(lambda: self._stub.GetRules.future(request))
        return found

    def set_rules(self, run: str, rules: monitor_pb2.RuleSet | None) -> monitor_pb2.RuleSet:
        """Replaces them, from the next points on. None: the server's own again."""
        request = monitor_pb2.SetRulesRequest(run=run, rules=rules)
        found: monitor_pb2.RuleSet = self._connection.result(lambda: self._stub.SetRules.future(request))
        return found


def _series(message: monitor_pb2.Series) -> ScalarSeries:
    return ScalarSeries(message.name, rank(message.rank), tuple(message.step), tuple(message.value), message.points)


def _alarm(message: monitor_pb2.Alarm) -> Alarm:
    return Alarm(
        number=message.number,
        rule=message.rule,
        kind=message.kind,
        step=message.step,
        rank=rank(message.rank),
        series=message.series,
        value=message.value,
        why=message.why,
        limit=message.limit,
        recent=tuple(zip(message.recent_step, message.recent_value, strict=True)),
        stack=tuple(message.stack),
        raised_unix_us=message.raised_unix_us,
        offences=message.offences,
        last_step=message.last_step,
        ranks=tuple(map(rank, message.ranks)),
        others=tuple(message.others),
        ended_unix_us=message.ended_unix_us,
        captured=_captured(message.captured) if message.HasField("captured") else None,
    )


def _captured(message: monitor_pb2.Alarm.Captured) -> Captured:
    return Captured(
        asked=message.asked,
        steps=(message.first_step, message.last_step) if message.processes else None,
        processes=message.processes,
        bytes=message.bytes,
        refused=message.refused,
    )
