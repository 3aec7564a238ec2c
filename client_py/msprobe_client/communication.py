"""Calls between ranks: which do not fit together, and where a run hangs. docs/communication.md has the rules."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Literal, TypeAlias, get_args

from msprobe_client import decode
from msprobe_client.model import Rank
from msprobe_client.proto import communication_pb2

MismatchKind: TypeAlias = Literal["", "missed", "extra", "reordered", "differs"]
MISMATCH_KINDS: tuple[MismatchKind, ...] = get_args(MismatchKind)


@dataclass(frozen=True, slots=True)
class Communication:
    """A collective or a message, as one rank called it."""

    op: str
    operation: str
    step: int
    rank: Rank
    group: str
    members: tuple[int, ...]
    sequence: int
    peer: int | None  # of a message; -1: any rank
    bytes: int
    dtype: str
    shape: str
    reduce_op: str
    root: int | None
    is_async: bool
    began: datetime | None
    ended: bool
    stack: tuple[str, ...]

    def __str__(self) -> str:
        """ "all_reduce SUM float32 [2, 16]", "recv from 1 float32 [4]" """
        words = [self.operation, self.reduce_op]
        if self.peer is not None:
            to = "to" if self.operation.endswith("send") else "from"
            words += [to, "any rank" if self.peer < 0 else f"rank{self.peer}"]
        if self.root is not None:
            words.append(f"root rank{self.root}")
        return " ".join(word for word in (*words, self.dtype.removeprefix("torch."), self.shape) if word)


@dataclass(frozen=True, slots=True)
class CollectiveMismatch:
    """Ranks that did something else than the others of their group."""

    kind: MismatchKind
    step: int
    group: str
    odd: tuple[Rank, ...]
    others: tuple[Rank, ...]
    differing: tuple[str, ...]
    of_odd: Communication | None  # of missed: the next call that it made in the group
    of_others: Communication | None

    def __str__(self) -> str:
        """One sentence: what happened."""
        odd, others = _names(self.odd), _names(self.others)
        if self.kind == "missed":
            next_ = f"; its next call there is {self.of_odd}" if self.of_odd is not None else ""
            did = f"{odd} missed {self.of_others}, which {others} called{next_}"
        elif self.kind == "extra":
            did = f"{odd} called {self.of_odd}, which {others} did not"
        elif self.kind == "reordered":
            did = f"{odd} called {self.of_odd} at another place than {others}"
        else:
            what = " and ".join(self.differing)
            did = f"{odd} called {self.of_odd} where {others} called {self.of_others}: another {what}"
        return f"step {self.step}, group {self.group}: {did}"


@dataclass(frozen=True, slots=True)
class StandingRank:
    """Where a rank stands in its last step."""

    rank: Rank
    step: int
    over: bool  # it stood there last: its process has ended
    calls: tuple[Communication, ...]  # calls between ranks that have not ended, the innermost first
    op: str
    stack: tuple[str, ...]
    last_op: str
    last_stack: tuple[str, ...]
    waits_for: tuple[Rank, ...]

    def __str__(self) -> str:
        if self.calls:
            call = self.calls[0]
            began = f" since {call.began.astimezone():%H:%M:%S}" if call.began is not None else ""
            launched = "has launched" if call.is_async else "stands in"
            where = f"{launched} {call} ({call.op}){began}"
        elif self.op:
            where = f"stands in {self.op}"
        elif self.last_op:
            where = f"is behind {self.last_op}"
        else:
            where = "has called nothing"
        stood = where.replace("stands", "stood").replace("is behind", "was behind") if self.over else where
        return f"{self.rank} {stood}, step {self.step}"


@dataclass(frozen=True, slots=True)
class Hang:
    """Who waits for whom."""

    hangs: bool
    ranks: tuple[StandingRank, ...]
    unknown: tuple[int, ...]  # members of groups of which the run has nothing
    cycle: tuple[Rank, ...]  # each waits for the next, the last for the first
    blamed: tuple[Rank, ...]  # who is waited for, and waits for nobody
    first: CollectiveMismatch | None  # of the steps in which the ranks stand

    def sentences(self) -> list[str]:
        """The cause, as far as it is known."""
        said = []
        if self.first is not None:
            said.append(str(self.first))
        of = {standing.rank: standing for standing in self.ranks}
        said += [f"the others wait for {of[rank]}" for rank in self.blamed if rank in of]
        if self.cycle:
            said.append("each waits for the next: " + " -> ".join(map(str, (*self.cycle, self.cycle[0]))))
        if self.unknown:
            said.append(f"nothing is known of the ranks {', '.join(map(str, self.unknown))}: they are not captured")
        return said


def mismatch(message: communication_pb2.CollectiveMismatch) -> CollectiveMismatch:
    return CollectiveMismatch(
        kind=MISMATCH_KINDS[message.kind],
        step=message.step,
        group=message.group,
        odd=tuple(map(decode.rank, message.odd)),
        others=tuple(map(decode.rank, message.others)),
        differing=tuple(message.differing),
        of_odd=_communication(message.of_odd) if message.HasField("of_odd") else None,
        of_others=_communication(message.of_others) if message.HasField("of_others") else None,
    )


def hang(message: communication_pb2.FindHangResponse) -> Hang:
    return Hang(
        hangs=message.hangs,
        ranks=tuple(map(_standing, message.ranks)),
        unknown=tuple(message.unknown),
        cycle=tuple(map(decode.rank, message.cycle)),
        blamed=tuple(map(decode.rank, message.blamed)),
        first=mismatch(message.first) if message.HasField("first") else None,
    )


def _standing(message: communication_pb2.StandingRank) -> StandingRank:
    return StandingRank(
        rank=decode.rank(message.rank),
        step=message.step,
        over=message.over,
        calls=tuple(map(_communication, message.calls)),
        op=message.op,
        stack=tuple(message.stack),
        last_op=message.last_op,
        last_stack=tuple(message.last_stack),
        waits_for=tuple(map(decode.rank, message.waits_for)),
    )


def _communication(message: communication_pb2.Communication) -> Communication:
    began = message.began_unix_us
    return Communication(
        op=message.op,
        operation=message.operation,
        step=message.step,
        rank=decode.rank(message.rank),
        group=message.group,
        members=tuple(message.members),
        sequence=message.sequence,
        peer=message.peer if message.HasField("peer") else None,
        bytes=message.bytes,
        dtype=message.dtype,
        shape=message.shape,
        reduce_op=message.reduce_op,
        root=message.root if message.HasField("root") else None,
        is_async=message.is_async,
        began=datetime.fromtimestamp(began * 1e-6, timezone.utc) if began else None,
        ended=message.ended,
        stack=tuple(message.stack),
    )


def _names(ranks: tuple[Rank, ...]) -> str:
    from msprobe_client.output import show

    return show.ranks(ranks) or "no rank"
