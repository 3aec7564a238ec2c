"""msprobe-client alarms RUN"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common
from msprobe_client.exit_codes import EXIT_DIFFERS

if TYPE_CHECKING:
    from msprobe_client.monitor_client import Alarm

EXAMPLES = (
    "msprobe-client alarms tuesday",
    "msprobe-client alarms tuesday --follow --format json",
    "msprobe-client alarms tuesday --to anomaly --output anomalies",
)


class Files(str, Enum):
    """What --to writes."""

    anomaly = "anomaly"


def run(
    context: typer.Context,
    run: RunName,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on as alarms are raised or change, until the run has ended")
    ] = False,
    to: Annotated[
        Optional[Files],  # noqa: UP045
        typer.Option(
            "--to", help="Write files into --output as well; anomaly: mindstudio-probe's anomaly.json of each rank"
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option("--output", "-o", metavar="DIR", help="Directory of the files that --to writes"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """List what the rules found. Ends with 0 where there is no alarm, with 1 where there is."""
    if (to is None) != (output is None):
        raise typer.BadParameter("--to and --output go together", param_hint="--to" if output else "--output")
    options = common(context, server, data_dir, output_format)
    raised: list[Alarm] = []
    with options.connect() as client:
        from msprobe_client.output import Column, Ending, Format, show, write

        columns = (
            Column("number", "", right=True, width=3),
            Column("rule", "RULE", width=18),
            Column("step", "STEP", right=True, width=6),
            Column("rank", "RANK", width=6),
            Column("series", "SERIES", width=30),
            Column("others", "ALSO IN", _further, width=14),
            Column("value", "VALUE", show.number, right=True, width=10),
            Column("why", "WHY"),
            Column("offences", "OFFENCES", right=True),
            Column("last_step", "", in_table=False),
            Column("kind", "", in_table=False),
            Column("limit", "", in_table=False),
            Column("raised", "", in_table=False),
            Column("ended", "", in_table=False),
            Column("captured", "CAPTURED"),
        )

        def rows() -> Iterator[dict[str, Any]]:
            for alarm in client.monitor.alarms(run, follow=follow):
                raised.append(alarm)
                yield _row(alarm)

        def ending() -> Ending:
            shown = [] if not raised else [line for alarm in raised[:1] for line in _stack(alarm)]
            notes = [] if raised else ["no alarm"]
            if output is not None:
                from msprobe_client.output import anomaly_files

                latest = {alarm.number: alarm for alarm in raised}
                notes += [f"{path} is written" for path in anomaly_files.write(latest.values(), output)]
            return Ending(notes=notes, shown=shown)

        write(options.format or Format.table, columns, rows(), live=follow, ending=ending)
    if raised:
        raise typer.Exit(EXIT_DIFFERS)


def _further(others: Sequence[str]) -> str:
    return f"{len(others)} more series" if others else ""


def _stack(alarm: Alarm) -> list[str]:
    from msprobe_client.output import show

    return [f"first: {alarm.series}", *(f"  {line}" for line in show.stack(alarm.stack))] if alarm.stack else []


def _row(alarm: Alarm) -> dict[str, Any]:
    return {
        "number": alarm.number,
        "rule": alarm.rule,
        "kind": alarm.kind,
        "step": alarm.step,
        "rank": alarm.rank,
        "series": alarm.series,
        "value": alarm.value,
        "why": alarm.why,
        "limit": alarm.limit,
        "offences": alarm.offences,
        "last_step": alarm.last_step,
        "ranks": list(alarm.ranks),
        "others": list(alarm.others),
        "recent": [list(point) for point in alarm.recent],
        "stack": list(alarm.stack),
        "raised": _time(alarm.raised_unix_us),
        "ended": _time(alarm.ended_unix_us) if alarm.ended_unix_us else None,
        "captured": _captured(alarm),
    }


def _time(unix_us: int) -> str:
    return datetime.fromtimestamp(unix_us * 1e-6, timezone.utc).isoformat(timespec="seconds")


def _captured(alarm: Alarm) -> str | None:
    captured = alarm.captured
    if captured is None:
        return None
    if captured.steps is None:
        return captured.refused or f"{captured.asked}: asked for"
    first, last = captured.steps
    return f"steps {first} to {last}" + (f"; {captured.refused}" if captured.refused else "")
