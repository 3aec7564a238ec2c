"""export: one step of one rank as a dump directory, written by the worker. Every worker sees the output directory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from msprobe_client.jobs import Work
from msprobe_client.model import StepSummary


def options(output: Path, *, extended: bool, strict_json: bool, tensors: bool) -> bytes:
    given = {"output": str(output.absolute()), "extended": extended, "strict_json": strict_json, "tensors": tensors}
    return json.dumps(given).encode()


def items(steps: Iterable[StepSummary]) -> list[tuple[str, bytes]]:
    """Names and payloads."""
    return [
        (f"step{step.step}/{step.rank}", json.dumps({"step": step.step, "rank": str(step.rank)}).encode())
        for step in steps
    ]


def run(work: Work) -> bytes:
    asked, place = json.loads(work.options), json.loads(work.payload)
    # What is there is of an earlier attempt: whoever made the job has looked.
    report = work.client.export(
        work.run,
        asked["output"],
        steps=[place["step"]],
        ranks=[place["rank"]],
        extended=asked["extended"],
        strict_json=asked["strict_json"],
        tensors=asked["tensors"],
        force=True,
    )
    return json.dumps({"directory": str(report.directories[0]), "files": report.files, "bytes": report.bytes}).encode()


def show(result: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(result)
    return shown
