"""Another policy's verdicts on what an earlier check measured and wrote as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.check.rows import CheckRow, Outcome, rows_of
from msprobe_client.errors import InvalidArgument
from msprobe_client.given_file import json_of
from msprobe_client.proto import check_pb2

if TYPE_CHECKING:
    from msprobe_client.client import Client

_OUTCOMES: dict[int, Outcome] = {
    check_pb2.Verdict.PASS: "pass",
    check_pb2.Verdict.WARNING: "warning",
    check_pb2.Verdict.FAIL: "fail",
    check_pb2.Verdict.UNDECIDED: "undecided",
}


def judged_again(
    client: Client, rows: list[CheckRow], policy: str, beside: list[CheckRow] | None = None
) -> Iterator[CheckRow]:
    """Rows without numbers (skips, shapes, distributions) stay as they were.

    beside: the result of another device, against the same golden values, which takes the plain implementation's place.
    """
    if beside is not None:
        # Where both have one process only, its name does not matter.
        by_rank = max(len({row.rank for row in side}) for side in (rows, beside)) > 1
        others = {_key(row, by_rank): row.accuracy for row in beside}
        rows = [replace(row, plain=others.get(_key(row, by_rank), {})) for row in rows]
    request = check_pb2.JudgeRequest(policy=policy)
    for row in rows:
        if row.accuracy:
            output = request.outputs.add(operation=row.operation.rsplit(".", 1)[-1], accuracy=_message(row.accuracy))
            if row.plain:
                output.plain.CopyFrom(_message(row.plain))
    verdicts = iter(client.judge(request).verdicts)
    for row in rows:
        if not row.accuracy or row.rule == "equal_elements":
            if row.accuracy:
                next(verdicts)
            yield row
            continue
        verdict = next(verdicts)
        yield replace(
            row,
            verdict=_OUTCOMES[verdict.outcome],
            policy=verdict.policy,
            rule=verdict.rule,
            measured=verdict.measured,
            limit=verdict.limit,
        )


def is_result(source: str) -> bool:
    """Whether the source is what check --format json wrote."""
    path = Path(source)
    return path.suffix == ".json" and path.is_file() and b'"accuracy"' in path.read_bytes()


def saved_rows(file: Path) -> list[CheckRow]:
    """Of a file that check --format json wrote."""
    try:
        return rows_of(json_of(file)["rows"])
    except (InvalidArgument, KeyError, TypeError, ValueError, OSError) as error:
        raise InvalidArgument(f"{file} is not the result of msprobe-client check --format json: {error!r}") from None


def _key(row: CheckRow, by_rank: bool) -> tuple[object, ...]:
    return row.step, row.rank if by_rank else "", row.name, row.variant


def _message(numbers: Mapping[str, Any]) -> check_pb2.Accuracy:
    message = check_pb2.Accuracy()
    for key, value in numbers.items():
        # JSON has NaN and infinities as strings.
        setattr(message, key, float(value) if isinstance(value, str) else value)
    return message
