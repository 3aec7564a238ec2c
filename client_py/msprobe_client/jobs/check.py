"""check: one recorded call in one direction, run again by the worker. docs/checking.md says what is measured.

The result has every row with what was measured, so that another policy can judge it without running anything again.
"""

from __future__ import annotations

import atexit
import json
import zlib
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from msprobe_client.check.calls import Call, Place, calls_of
from msprobe_client.check.rows import CheckRow, Outcome, repeating, rows_of, worst
from msprobe_client.errors import InvalidArgument
from msprobe_client.jobs import Work
from msprobe_client.model import ItemResult, Rank

if TYPE_CHECKING:
    from msprobe_client.check.checker import Checker
    from msprobe_client.client import Client

# After so long a call hangs: it is ended like one that crashes.
ITEM_TIMEOUT = 600.0
_FORWARD, _BACKWARD = ".forward", ".backward"


def options(**settings: Any) -> bytes:
    """Of checker.Settings, or of another kind's, the fields."""
    return json.dumps(settings).encode()


def items(place: Place, calls: Iterable[Call]) -> list[tuple[str, bytes]]:
    """Names and payloads; the name says everything: "step0/rank0/Functional.linear.0.backward"."""
    return [
        (f"step{place.step}/{place.rank}/{record.full_name}", b"")
        for call in calls
        for record in (call.forward, call.backward)
        if record is not None
    ]


class _Bench:
    """What a worker process keeps from item to item: the records of one step and rank, and a stream to the server."""

    def __init__(self, client: Client, job: int, place: Place, settings: Mapping[str, Any], device: str) -> None:
        from msprobe_client.check.checker import Checker, Settings
        from msprobe_client.check.measuring import Measuring

        self._client = client
        self._place = place
        self._calls: dict[str, Call] = {}
        self._open = ExitStack()
        made = Settings(**settings)
        measuring = self._open.enter_context(Measuring(client, made.policy))
        self.checker: Checker = Checker(
            client, place, made, measuring, payload=lambda hash: client.jobs.payload(job, hash), again_on=device
        )

    def call(self, name: str, backward: bool) -> Call | None:
        """name: of the forward record. The records are read again where they lack it: the step may be under way."""
        found = self._calls.get(name)
        if found is None or (backward and found.backward is None):
            self._calls = {call.forward.full_name: call for call in calls_of(self._client, self._place)}
            found = self._calls.get(name)
        return found

    def close(self) -> None:
        self._open.close()


_kept: dict[tuple[object, ...], _Bench] = {}  # one at most


def run(work: Work) -> bytes:
    """An item with a payload is not checked: {"skip": why}."""
    step, rank, name = parts_of(work.name)
    if work.payload:
        reason = json.loads(work.payload)["skip"]
        return _packed([CheckRow(name, step, rank, _operation(name), "skip", reason=reason)])
    place = Place(work.run, step, Rank.parse(rank))
    settings = json.loads(work.options)
    settings["device"] = device_of(settings["device"], work.device)
    key = (id(work.client), work.job, place, json.dumps(settings))
    try:
        if key not in _kept:
            _drop()
            _kept[key] = _Bench(work.client, work.job, place, settings, work.device)
        bench = _kept[key]
        backward = name.endswith(_BACKWARD)
        if (call := bench.call(_forward(name), backward)) is None:
            raise InvalidArgument(f"step {step} of {rank} has no call {_forward(name)}")
        found = list(bench.checker.check(call.forward, call.backward, "backward" if backward else "forward"))
    except BaseException:
        _drop()  # its stream may be broken
        raise
    return _packed(found)


@atexit.register
def _drop() -> None:
    for bench in _kept.values():
        bench.close()
    _kept.clear()


def device_of(asked: str, own: str) -> str:
    """The job names the kind; which one of them is the worker's."""
    if asked == "recorded":
        return asked
    if asked.partition(":")[0] != own.partition(":")[0]:
        raise InvalidArgument(f"the job is for device {asked}, and this worker has {own}; start one with --device")
    return own


def rows(result: ItemResult, job_options: bytes) -> list[CheckRow]:
    """What became of an item: what was found; or, where nothing could be, why."""
    if result.outcome == "done":
        return rows_of(json.loads(zlib.decompress(result.result)))
    step, rank, name = parts_of(result.name)
    verdict: Outcome = "crashed" if result.outcome == "crashed" else "error"
    return [
        CheckRow(
            name=name,
            step=step,
            rank=rank,
            operation=_operation(name),
            verdict=verdict,
            reason=result.message,
            repeat=repeating(step, rank, _forward(name), **json.loads(job_options)),
        )
    ]


def verdict(result: bytes) -> str:
    return worst(row["verdict"] for row in json.loads(zlib.decompress(result)))


def show(result: bytes) -> dict[str, Any]:
    counts: dict[str, Any] = {}
    for row in json.loads(zlib.decompress(result)):
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    return counts


def _packed(rows: Iterable[CheckRow]) -> bytes:
    return zlib.compress(json.dumps([asdict(row) for row in rows]).encode())


def _operation(name: str) -> str:
    return name.split(".", 1)[-1].rsplit(".", 2)[0]


def _forward(name: str) -> str:
    return name.removesuffix(_BACKWARD) + _FORWARD if name.endswith(_BACKWARD) else name


def parts_of(item: str) -> tuple[int, str, str]:
    step, rank, name = item.split("/", 2)
    return int(step.removeprefix("step")), rank, name
