"""msprobe-client steps RUN"""

from __future__ import annotations

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, RunName, Server, common


def run(
    context: typer.Context,
    run: RunName,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """List the steps of a run, each with its ranks."""
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    columns = (
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
            }
            for item in client.steps(run)
        ]
    write(options.format or Format.table, columns, rows)
