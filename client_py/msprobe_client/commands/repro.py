"""msprobe-client repro SOURCE NAME -o DIR"""

from __future__ import annotations

import difflib
import re
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from msprobe_client.commands.options import Connection, Selection
from msprobe_client.commands.sides import SourceOf, connected

if TYPE_CHECKING:
    from msprobe_client.check.calls import Call, Place
    from msprobe_client.client import Client
    from msprobe_client.model import Record

EXAMPLES = (
    "msprobe-client repro tuesday Functional.linear.0.forward --step 3 --rank 0 -o bug",
    "msprobe-client repro dump_a Functional.linear.0.forward --step 3 --rank 0 --policy torch -o bug_by_torch",
)


class Direction(str, Enum):
    forward = "forward"
    backward = "backward"


class PolicyName(str, Enum):
    """Those of check that fit into a script."""

    default = "default"
    torch = "torch"
    fp64_ratio = "fp64-ratio"
    cann = "cann"


def run(
    context: typer.Context,
    source: SourceOf,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of a call: Functional.linear.0.forward", show_default=False)
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Where the two files go", show_default=False)
    ],
    direction: Annotated[
        Optional[Direction],  # noqa: UP045
        typer.Option("--direction", help="Default: as NAME ends, else forward"),
    ] = None,
    policy: Annotated[PolicyName, typer.Option("--policy", help="What is right; see docs/checking.md")] = (
        PolicyName.default
    ),
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of what is drawn where no tensor was saved")] = 1234,
    step: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option("--step", min=0, help="Needed where several steps hold the name", show_default=False),
    ] = None,
    rank: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option("--rank", metavar="RANK", help="Needed where several ranks hold the name", show_default=False),
    ] = None,
    connection: Connection,
) -> None:
    """Write one recorded call as a script that needs torch alone, with its tensors beside it.

    The script runs the call on --device, holds it against float64, and ends with 1 where the policy says fail.
    """
    from importlib.util import find_spec

    from msprobe_client import analysis_client
    from msprobe_client.errors import InvalidArgument
    from msprobe_client.output import Column, Format, show, write

    if find_spec("torch") is None:
        raise InvalidArgument("repro computes in torch, and this environment has none; install it here")
    base, _, end = name.rpartition(".")
    base, chosen = (base, end) if end in ("forward", "backward") else (name, "forward")
    if direction is not None:
        chosen = direction.value
    options = connection.common(context)
    with connected(options, source) as client:
        selection = Selection(None if step is None else [str(step)], None if rank is None else [rank])
        if analysis_client.is_path(source):
            with analysis_client.uploaded(client, Path(source)) as stored:
                written = _write(client, stored, source, base, chosen, policy.value, seed, selection, output)
        else:
            stored = source.removeprefix(analysis_client.RUN_PREFIX)
            written = _write(client, stored, source, base, chosen, policy.value, seed, selection, output)
    columns = (Column("path", "FILE"), Column("bytes", "BYTES", show.size, right=True))
    rows = [{"path": str(path), "bytes": path.stat().st_size} for path in written]
    write(options.format or Format.table, columns, rows)


def _write(
    client: Client,
    stored: str,
    source: str,
    base: str,
    direction: str,
    policy: str,
    seed: int,
    selection: Selection,
    output: Path,
) -> list[Path]:
    from msprobe_client.check.arguments import Loader, NotReplayable
    from msprobe_client.check.standards import Standards
    from msprobe_client.errors import FailedPrecondition, InvalidArgument
    from msprobe_client.repro.bundle import write_script
    from msprobe_client.repro.script import script_of

    place, call = _call(client, stored, source, base, selection)
    full = f"{base}.{direction}"
    try:
        level = Standards(client).of(base.split(".")[-2] if base.count(".") > 1 else base, "float32").level
        made = script_of(
            call,
            Loader(client, stored, seed),
            place,
            direction="backward" if direction == "backward" else "forward",
            policy=policy,
            level=level,
            seed=seed,
            shown=source,
        )
    except NotReplayable as reason:
        raise InvalidArgument(f"{full} cannot be a script: {reason}") from None
    script, bundle = output / f"{made.name}.py", output / f"{made.name}.safetensors"
    for path in (script, bundle):
        if path.exists() or path.is_symlink():
            raise FailedPrecondition(f"{path} exists already; remove it, or name another directory with -o")
    write_script(script, bundle, made.text, made.contents)
    return [script, bundle]


def _call(client: Client, stored: str, source: str, base: str, selection: Selection) -> tuple[Place, Call]:
    """The only one of that name."""
    from msprobe_client.check.calls import Place, paired
    from msprobe_client.errors import FailedPrecondition, InvalidArgument, NotFound

    pattern = re.sub(r"([*?\[])", r"[\1]", base) + ".*"
    summaries = selection.of(source, client.steps(stored))
    found: list[tuple[Place, Call]] = []
    modules: list[tuple[Place, Record]] = []
    for summary in summaries:
        place = Place(stored, summary.step, summary.rank)
        records = list(client.records(stored, step=place.step, rank=place.rank, name=pattern, with_stack=True))
        found += [(place, call) for call in paired(records) if call.forward.full_name == f"{base}.forward"]
        modules += [(place, record) for record in records if record.kind == "module"]
    if len(found) > 1:
        there = ", ".join(f"step {place.step} {place.rank}" for place, _ in found[:10])
        raise FailedPrecondition(f"several steps or ranks hold {base}; give --step and --rank of one of: {there}")
    if found:
        return found[0]
    if modules or base.startswith("Module."):
        raise InvalidArgument(
            f"{base} is a module, and a script is of one operator; name a call inside it, such as "
            f"{_operator_inside(client, modules)}"
        )
    names = [
        record.full_name
        for record in client.records(stored, step=summaries[0].step, rank=summaries[0].rank)
        if record.kind == "api"
    ]
    near = difflib.get_close_matches(f"{base}.forward", names, 3, 0.5)
    hint = f"; near are {', '.join(near)}" if near else "; capture its calls at level L1 or mix" if not names else ""
    raise NotFound(f"{source} has no call {base} there{hint}")


def _operator_inside(client: Client, modules: list[tuple[Place, Record]]) -> str:
    for place, module in modules[:1]:
        for record in client.records(place.run, step=place.step, rank=place.rank):
            if record.kind == "api" and record.parent == module.full_name:
                return record.full_name
    return "Functional.linear.0.forward (level L1 or mix has them)"
