"""msprobe-client control RUN status | start | stop | set NAME=VALUE ... | next N | deeper N [NAME=VALUE ...] |
request ID"""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Optional

import typer

from msprobe_client.commands.options import DataDir, OutputFormat, Ranks, RunName, Server, common
from msprobe_client.exit_codes import EXIT_FAILED

_LISTS = ("list", "scope", "tensor_list", "data_mode", "step", "rank", "custom_op_namespaces")
_LONGEST_WAIT = 30


class Action(str, Enum):
    status = "status"
    start = "start"
    stop = "stop"
    set = "set"
    next = "next"
    deeper = "deeper"
    request = "request"


EXAMPLES = (
    "msprobe-client control tuesday status",
    "msprobe-client control tuesday next 3",
    "msprobe-client control tuesday set level=mix list=mlp,attn",
    "msprobe-client control tuesday deeper 2 level=mix task=tensor",
    "msprobe-client control tuesday request chatcmpl-7 --steps 20",
)


def run(
    context: typer.Context,
    run: RunName,
    action: Annotated[
        Action,
        typer.Argument(
            help="status; start and stop capturing; set fields of the configuration (level=mix list=mlp,attn); "
            "capture the next N steps; capture the next N steps with other fields, then go on as before (deeper 2 "
            "level=mix); capture only the request ID",
            show_default=False,
        ),
    ],
    arguments: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Argument(
            metavar="[NAME=VALUE ... | N | ID]", help="Of set, next, deeper and request", show_default=False
        ),
    ] = None,
    rank: Ranks = None,
    steps: Annotated[int, typer.Option("--steps", min=0, help="Of request: so many, then stop. 0: no end")] = 0,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=_LONGEST_WAIT, help="Seconds for the processes to obey")
    ] = 5.0,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
) -> None:
    """Ask the running processes of a run to capture otherwise, without a restart; they obey at their next step."""
    given = _given(action, arguments or [], steps)
    options = common(context, server, data_dir, output_format)
    from msprobe_client.output import Column, Format, show, write

    with options.connect() as client:
        answer = client.control(run, action.value, **given, ranks=rank or (), wait=wait)
    columns = (
        Column("rank", "RANK"),
        Column("host", "", in_table=False),
        Column("process_id", "PROCESS", right=True),
        Column("answer", "ANSWER"),
        Column("enabled", "ON"),
        Column("capturing", "CAPTURING"),
        Column("task", "TASK"),
        Column("level", "LEVEL"),
        Column("summary_mode", "", in_table=False),
        Column("list", "LIST"),
        Column("request", "REQUEST"),
        Column("step", "STEP", right=True),
        Column("steps_left", "LEFT", right=True),
        Column("queue_bytes", "QUEUE", show.size, right=True),
        Column("records_emitted", "", in_table=False),
        Column("records_dropped", "DROPPED", right=True),
        Column("refused", "", in_table=False),
        Column("said", "SAID"),
    )
    rows = [{column.name: getattr(item, column.name) for column in columns} for item in answer.processes]
    write(options.format or Format.table, columns, rows)
    # A status reports the last command. That one may have been refused, the status was not.
    refused = action is not Action.status and any(item.refused for item in answer.processes)
    if refused or any(item.answer in ("silent", "unable") for item in answer.processes):
        raise typer.Exit(EXIT_FAILED)


def _given(action: Action, arguments: list[str], steps: int) -> dict[str, Any]:
    if steps and action is not Action.request:
        raise typer.BadParameter("goes with request", param_hint="--steps")
    if action is Action.set:
        if not arguments:
            raise typer.BadParameter("set needs fields, as level=mix")
        return {"settings": dict(_field(text) for text in arguments)}
    if action in (Action.next, Action.deeper):
        first, more = arguments[:1], arguments[1:]
        if not first or not first[0].isdecimal() or int(first[0]) < 1 or (more and action is Action.next):
            raise typer.BadParameter(
                f"{action.value} needs a number of steps of at least 1, not {' '.join(arguments)!r}"
            )
        number = {"steps": int(first[0])}
        return number if action is Action.next else {**number, "settings": dict(_field(text) for text in more)}
    if action is Action.request:
        if len(arguments) != 1 or not arguments[0]:
            raise typer.BadParameter("request needs the id of one request")
        return {"request": arguments[0], "steps": steps}
    if arguments:
        raise typer.BadParameter(f"{action.value} takes nothing more, not {' '.join(arguments)!r}")
    return {}


def _field(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value.split(",") if name in _LISTS else value
