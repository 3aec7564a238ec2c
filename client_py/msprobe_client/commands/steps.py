"""msprobe-client steps RUN"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Request, RunName, Server, common

if TYPE_CHECKING:
    from msprobe_client.model import StepSummary

EXAMPLES = (
    "msprobe-client steps tuesday",
    "msprobe-client steps tuesday --request chatcmpl-7 --token 12",
)


def run(
    context: typer.Context,
    run: RunName,
    request: Request = None,
    token: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--token", min=0, help="With --request: only the pass that held this token of it"),
    ] = None,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """List the steps of a run, each with its ranks; with --request those that held it, and where."""
    if token is not None and request is None:
        raise typer.BadParameter("says which token of a request; give --request too", param_hint="--token")
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    columns: tuple[Column, ...] = (
        Column("step", "STEP", right=True),
        Column("rank", "RANK"),
        Column("state", "STATE"),
        Column("records", "RECORDS", right=True),
        Column("tensors", "TENSORS", right=True),
        Column("nan_tensors", "NaN", right=True),
        Column("inf_tensors", "Inf", right=True),
        Column("bytes", "BYTES", show.size, right=True),
        Column("gap_fragments", "", in_table=False),
        Column("gap_payloads", "", in_table=False),
        Column("gaps", "GAPS", show.gaps),
        Column("tokens", "", in_table=False),
        Column("faults", "", in_table=False),
        Column("epoch", "", in_table=False),
    )
    if request is not None:
        columns += (
            Column("pass", "PASS", right=True),
            Column("positions", "POSITIONS", right=True),
            Column("rows", "ROWS", right=True),
            Column("counted", "", in_table=False),
        )
    with options.connect() as client:
        rows = [
            {
                "run": run,
                "step": item.step,
                "rank": item.rank,
                "state": item.state,
                "records": item.records,
                "tensors": item.tensors,
                "nan_tensors": item.nan_tensors,
                "inf_tensors": item.inf_tensors,
                "bytes": item.row_bytes + item.payload_bytes,
                "row_bytes": item.row_bytes,
                "payload_bytes": item.payload_bytes,
                "tokens": item.tokens,
                "gap_fragments": sum(gap.fragments for gap in item.gaps),
                "gap_payloads": sum(gap.payloads for gap in item.gaps),
                "gaps": item.gaps,
                "faults": item.faults,
                "epoch": item.epoch,
                "earlier_epochs": item.earlier_epochs,
                **span,
            }
            for item in client.steps(run, request=request, position=token)
            for span in _spans(item)
        ]
    write(options.format or Format.table, columns, rows)


def _spans(item: StepSummary) -> list[dict[str, Any]]:
    """A line for each pass of the step that held the request; without a request, one line for the step."""
    return [
        {
            "pass": span.token,
            "positions": f"{span.first_position}-{span.last_position}",
            "rows": f"{span.first_row}-{span.first_row + span.last_position - span.first_position}",
            "counted": span.counted,
        }
        for span in item.token_spans
    ] or [{}]
