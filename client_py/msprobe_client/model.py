"""Plain values that the client returns. Frozen; nothing here knows protobuf."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from msprobe_client.errors import InvalidArgument

Number: TypeAlias = int | float | bool
# None, bool, int, float, str, TensorStats, and lists and dicts of these.
FieldValue: TypeAlias = Any

_RANK = re.compile(r"(?:(?P<kind>rank|proc))?(?P<number>[0-9]{1,10})")
_UINT32_MAX = 2**32 - 1


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """The source of records: a global rank, or a process that never learned its rank."""

    kind: Literal["rank", "proc"]
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"

    @classmethod
    def parse(cls, text: str | int | Rank) -> Rank:
        """Reads 0, "0", "rank0" or "proc123"."""
        if isinstance(text, Rank):
            return text
        match = _RANK.fullmatch(str(text))
        if match is None or int(match["number"]) > _UINT32_MAX:
            raise InvalidArgument(f"rank {text!r} is not a rank: write 0, rank0 or proc123")
        return cls("proc" if match["kind"] == "proc" else "rank", int(match["number"]))


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """The run's settings of capture."""

    task: str
    level: str
    summary_mode: str
    framework: str
    dump_path: str
    stack_and_construct: bool
    config_json: str


@dataclass(frozen=True, slots=True)
class RunSummary:
    run: str
    created: datetime
    steps: int
    ranks: tuple[Rank, ...]
    records: int
    tensors: int
    nan_tensors: int
    inf_tensors: int
    row_bytes: int
    payload_bytes: int
    open_sessions: int
    settings: CaptureSettings
    pinned: bool = False
    # Who made it; nobody else but admins may send to it: "token NAME", "certificate SUBJECT", "uid NUMBER"; empty:
    # everybody may.
    owner: str = ""


@dataclass(frozen=True, slots=True)
class ControlledProcess:
    """A process of a running job, and its answer to a command."""

    rank: Rank
    host: str
    process_id: int
    # obeyed: it did, or refused. waits: it heard, and obeys at its next step. silent: no answer in time. unable: its
    # agent is too old.
    answer: Literal["obeyed", "waits", "silent", "unable"]
    said: str  # what became of the last command; empty: there was none but for its status
    refused: bool
    enabled: bool  # steps that begin now are captured, as far as step, rank and request of its configuration allow
    capturing: bool  # now
    task: str
    level: str
    summary_mode: str
    list: str
    request: str
    step: int  # the present one, or the next
    steps_left: int | None
    queue_bytes: int  # not durable yet
    records_emitted: int
    records_dropped: int


@dataclass(frozen=True, slots=True)
class ControlNote:
    """A command that somebody sent to a run."""

    at: datetime
    asked_by: str
    asked: str


@dataclass(frozen=True, slots=True)
class ControlAnswer:
    processes: tuple[ControlledProcess, ...]
    notes: tuple[ControlNote, ...]  # the latest of the run, oldest first


@dataclass(frozen=True, slots=True)
class Gap:
    """Records that were lost before they reached the server."""

    step: int
    fragments: int
    payloads: int
    reason: str


@dataclass(frozen=True, slots=True)
class TokenSpan:
    """The positions of a request in forward pass `token` of a step, and their rows of the batch."""

    token: int
    request: str
    first_position: int
    last_position: int  # included
    first_row: int
    counted: bool  # from the first captured token of the request on, since its positions lay on a device


@dataclass(frozen=True, slots=True)
class StepSummary:
    step: int
    rank: Rank
    state: Literal["open", "complete", "incomplete"]
    records: int
    tensors: int
    nan_tensors: int
    inf_tensors: int
    tokens: int
    row_bytes: int
    payload_bytes: int
    gaps: tuple[Gap, ...]
    epoch: int
    earlier_epochs: tuple[int, ...]
    faults: int
    token_spans: tuple[TokenSpan, ...] = ()  # of the request that was asked for


@dataclass(frozen=True, slots=True)
class Frame:
    path: str
    line: int
    function: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} in {self.function}: {self.source}"


@dataclass(frozen=True, slots=True)
class PayloadRef:
    """Names stored content by its hash."""

    hash: str
    size: int


EdgeKind: TypeAlias = Literal["unknown", "outside", "same", "view", "changed", "unversioned", "sum"]
EDGE_KINDS: tuple[EdgeKind, ...] = get_args(EdgeKind)


@dataclass(frozen=True, slots=True)
class Edge:
    """The record of the step that made a tensor which another takes; docs/edges.md defines every kind."""

    kind: EdgeKind
    record: str = ""  # empty: no record made it
    tensor: str = ""  # the record's output

    def __str__(self) -> str:
        if not self.tensor:
            return self.kind
        return self.tensor if self.kind == "same" else f"{self.tensor} ({self.kind})"


@dataclass(frozen=True, slots=True)
class TensorStats:
    """A tensor as it was at the call. None: nothing was computed. NaN and infinities stand as they are."""

    type: str
    dtype: str
    shape: tuple[int, ...]
    requires_grad: bool
    device: str
    max: Number | None = None
    min: Number | None = None
    mean: float | None = None
    norm: float | None = None
    variance: float | None = None
    nan_count: int = 0
    positive_inf_count: int = 0
    negative_inf_count: int = 0
    zero_count: int = 0
    finite_max: float | None = None
    finite_min: float | None = None
    finite_mean: float | None = None
    finite_norm: float | None = None
    crc32: int | None = None
    xor64: int | None = None
    payload: PayloadRef | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    edge: Edge | None = None  # of an input; None: not known

    @property
    def inf_count(self) -> int:
        return self.positive_inf_count + self.negative_inf_count

    @property
    def checksum(self) -> str | None:
        """The checksum as dump.json spells it under "md5"."""
        if self.crc32 is not None:
            return f"{self.crc32:08x}"
        return None if self.xor64 is None else f"0x{self.xor64:016x}"


# Characters that a file's name cannot hold.
_UNFIT = re.compile(r"[/\x00-\x1f\x7f]")
# The word that stands for a field in the names of tensors and of their files.
_FIELD_WORDS = {"input_args": "input", "input_kwargs": "kwargs"}


@dataclass(frozen=True, slots=True)
class Record:
    """An entry of dump.json."""

    full_name: str
    step: int
    rank: Rank
    token: int
    ordinal: int
    kind: Literal["api", "module", "parameters_grad", "debug", "unspecified"]
    direction: Literal["forward", "backward"]
    complete: bool  # the call ended; otherwise the process died in it, or it is still running
    raised: bool
    fault: bool  # our own fault while capturing it: the fields may be partial
    recompute: bool
    fields: Mapping[str, FieldValue]
    parent: str | None
    stack: tuple[Frame, ...] = ()
    touched: bool = False  # by a stage that is not an observer (load): its values may not be the program's own

    def tensors(self) -> Iterator[tuple[str, TensorStats]]:
        """Every tensor with the name of its file: Functional.linear.0.forward.input.1"""
        for key, value in self.fields.items():
            if self.kind == "debug":  # its full name ends in the field's word already
                leaves = _leaves(self.full_name, value)
            elif self.kind == "parameters_grad" and isinstance(value, list):
                # The items of its list share one name.
                leaves = (leaf for item in value for leaf in _leaves(f"{self.full_name}.{key}", item))
            else:
                leaves = _leaves(f"{self.full_name}.{_FIELD_WORDS.get(key, key)}", value)
            for name, stats in leaves:
                yield _UNFIT.sub("_", name), stats


def _leaves(name: str, value: FieldValue) -> Iterator[tuple[str, TensorStats]]:
    if isinstance(value, TensorStats):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{name}.{key}", item)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}.{index}", item)


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the work queue. items = waiting + leased + done + failed + crashed, unless it was cancelled."""

    job: int
    run: str
    kind: str
    title: str
    state: str  # open, sealed, finished or cancelled
    created: datetime
    ended: datetime | None
    created_by: str
    items: int
    waiting: int
    leased: int
    done: int
    failed: int
    crashed: int
    attempts_lost: int
    options: bytes  # where this job alone was asked for


@dataclass(frozen=True, slots=True)
class ItemResult:
    item: int
    order: int  # among the results of its job
    name: str
    outcome: str  # done, failed or crashed
    result: bytes
    message: str
    worker: str
    attempts: int
    seconds: float  # that it ran
    verdict: str = ""  # the kind's one word for it


@dataclass(frozen=True, slots=True)
class ExportReport:
    directories: tuple[Path, ...]  # in place: step{N}/rank{R}, or of another format its files
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class ImportReport:
    steps: int
    records: int
    payloads: int
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteReport:
    row_bytes: int
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class MissingShard:
    """A server of the cluster that did not answer. run: empty: every run. ranks: those that are known or supposed to be
    there; others may be there too.
    """

    shard: str
    why: str
    run: str
    ranks: tuple[Rank, ...]

    def __str__(self) -> str:
        ranks = ", ".join(map(str, self.ranks[:20])) + (", ..." if len(self.ranks) > 20 else "")
        of = f" of run {self.run}" if self.run else ""
        lost = f"without {ranks}{of}" if ranks else f"without its part{of}"
        return f"{lost}: the server {self.shard} cannot be reached ({self.why})"


@dataclass(frozen=True, slots=True)
class Shard:
    """A server of the cluster. here: the one that answers."""

    address: str
    here: bool
    reachable: bool
    why: str


@dataclass(frozen=True, slots=True)
class ServerInfo:
    server_id: str
    version: str
    durability: str
    embedded: bool
    data_dir: str
    started: datetime
    open_sessions: int
    storage_format: int
    shards: tuple[Shard, ...] = ()  # of the cluster; none: the server is alone
    # None: the server is older than 0.1.0 and does not say.
    now: datetime | None = None
    disk_free_bytes: int | None = None
    refusing: str = ""
