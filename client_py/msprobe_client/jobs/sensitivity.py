"""sensitivity: one recorded call, both directions, perturbed by the worker. docs/sensitivity.md says how."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from msprobe_client.check.calls import Call, Place, calls_of
from msprobe_client.errors import InvalidArgument
from msprobe_client.jobs import Work
from msprobe_client.jobs.check import device_of, parts_of
from msprobe_client.model import ItemResult, Rank
from msprobe_client.sensitivity.rows import Finding, SensitivityRow, gravest, repeating, rows_of

KIND = "sensitivity"


def items(place: Place, calls: Iterable[Call]) -> list[tuple[str, bytes]]:
    """Names and payloads; the name says everything: "step0/rank0/Functional.linear.0.forward"."""
    return [(f"step{place.step}/{place.rank}/{call.forward.full_name}", b"") for call in calls]


_calls: dict[tuple[object, ...], dict[str, Call]] = {}  # of one step and rank, the last


def run(work: Work) -> bytes:
    from msprobe_client.sensitivity.sensing import Sensing, Settings

    step, rank, name = parts_of(work.name)
    place = Place(work.run, step, Rank.parse(rank))
    settings = json.loads(work.options)
    settings["device"] = device_of(settings["device"], work.device)
    key = (id(work.client), work.job, place)
    if name not in _calls.get(key, {}):  # the step may be under way: it is read again
        _calls.clear()
        _calls[key] = {call.forward.full_name: call for call in calls_of(work.client, place)}
    if (call := _calls[key].get(name)) is None:
        raise InvalidArgument(f"step {step} of {rank} has no call {name}")
    sensing = Sensing(
        work.client,
        place,
        Settings(**settings),
        payload=lambda hash: work.client.jobs.payload(work.job, hash),
        again_on=work.device,
    )
    return zlib.compress(json.dumps([asdict(row) for row in sensing.measured(call)]).encode())


def rows(result: ItemResult, job_options: bytes) -> list[SensitivityRow]:
    """What became of an item: what was found; or, where nothing could be, why."""
    if result.outcome == "done":
        return rows_of(_unpacked(result.result))
    step, rank, name = parts_of(result.name)
    verdict: Finding = "crashed" if result.outcome == "crashed" else "error"
    settings: Mapping[str, Any] = json.loads(job_options)
    return [
        SensitivityRow(
            name=name,
            step=step,
            rank=rank,
            operation=name.split(".", 1)[-1].rsplit(".", 2)[0],
            verdict=verdict,
            mode=settings["mode"],
            reason=result.message,
            repeat=repeating(step, rank, name, **settings),
        )
    ]


def verdict(result: bytes) -> str:
    return gravest(row["verdict"] for row in _unpacked(result))


def show(result: bytes) -> dict[str, Any]:
    """How many rows have each verdict, and the largest amplification and rounding."""
    found = rows_of(_unpacked(result))
    counts: dict[str, Any] = {}
    for row in found:
        counts[row.verdict] = counts.get(row.verdict, 0) + 1
    for field in ("amplification", "rounding"):
        numbers = [number for row in found if (number := getattr(row, field)) is not None]
        if numbers:
            counts[field] = max(numbers)
    return counts


def _unpacked(result: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(zlib.decompress(result))
    return found
