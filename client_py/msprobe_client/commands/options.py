"""Options of several subcommands, and their way to the server."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TypeVar

import typer

from msprobe_client.access import Access
from msprobe_client.address import ENVIRONMENT
from msprobe_client.commands.mixins import mixin
from msprobe_client.errors import InvalidArgument, NotFound
from msprobe_client.output import Format

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.model import Rank, StepSummary

# typer reads annotations at run time, where Python 3.10 with older typers wants Optional.
Server = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--server",
        metavar="ADDRESS",
        help=f"host:port or unix:/path of a msprobe-server. Default: ${ENVIRONMENT}",
        show_default=False,
    ),
]
Ca = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--ca",
        metavar="FILE",
        help="The server is TLS, and its certificate's authority in this PEM file; system: this machine's roots. "
        "Default: $MSPROBE_SERVER_CA",
        show_default=False,
    ),
]
Cert = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--cert", metavar="FILE", help="Certificate to show. Default: $MSPROBE_SERVER_CERT", show_default=False
    ),
]
Key = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--key", metavar="FILE", help="Its private key. Default: $MSPROBE_SERVER_KEY", show_default=False),
]
TokenFile = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option(
        "--token_file",
        "--token-file",
        metavar="FILE",
        help="File with the token to show. Default: $MSPROBE_SERVER_TOKEN_FILE",
        show_default=False,
    ),
]
DataDir = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option(
        "--data_dir",
        "--data-dir",
        metavar="DIR",
        help="Start a server on this data directory, or on the one of this dump_path, and end it afterwards",
        show_default=False,
    ),
]
OutputFormat = Annotated[
    Optional[Format],  # noqa: UP045
    typer.Option(
        "--format",
        help="table (default), json: one document, csv, csv-safe: no cell a formula, xlsx, parquet",
        show_default=False,
    ),
]
Request = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--request", metavar="ID", help="Only forward passes that held tokens of this request"),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Name of the run", show_default=False)]
Steps = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--step", metavar="STEP", help="3 or 3-5; may be given several times", show_default=False),
]
Ranks = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--rank", metavar="RANK", help="0, rank0 or proc123; may be given several times", show_default=False),
]

T = TypeVar("T")


class PolicyName(str, Enum):
    """As server/analysis/check/policy.cc lists them."""

    default = "default"
    documented = "documented"
    torch = "torch"
    fp64_ratio = "fp64-ratio"
    acc_check = "acc-check"
    cann = "cann"


@mixin
class Connection:
    """The server, and how its answer is shown: before the subcommand or after it; after it wins."""

    server: Server = None
    data_dir: DataDir = None
    output_format: OutputFormat = None

    def common(self, context: typer.Context) -> Common:
        return common(context, self.server, self.data_dir, self.output_format)


_STEP = re.compile(r"(?P<first>[0-9]{1,10})(?:-(?P<last>[0-9]{1,10}))?")
_UINT32_MAX = 2**32 - 1


class Common:
    """--server, --data_dir and --format: before the subcommand or after it; after it wins."""

    def __init__(
        self, server: str | None, data_dir: Path | None, chosen: Format | None, access: Access | None = None
    ) -> None:
        self.server = server
        self.data_dir = data_dir
        self.format = chosen
        self.access = access
        self.run: str | None = None  # the argument RUN of the command, if it has one

    def overridden(self, server: str | None, data_dir: Path | None, chosen: Format | None) -> Common:
        if server is not None or data_dir is not None:
            return Common(server, data_dir, chosen or self.format, self.access)
        return Common(self.server, self.data_dir, chosen or self.format, self.access)

    def connect(self, *, create: bool = False) -> Client:
        if self.server is not None and self.data_dir is not None:
            raise typer.BadParameter("--server and --data_dir exclude each other; give one of them")
        if self.server is None and self.data_dir is None and not os.environ.get(ENVIRONMENT):
            if not create:  # there RUN is a name to give
                self._refuse_a_dump_path()
            raise typer.BadParameter(f"no server: give --server ADDRESS or --data_dir DIR, or set {ENVIRONMENT}")
        # A failure is one line of ours, without gRPC's own log beside it.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from msprobe_client.address import target_of
        from msprobe_client.client import Client

        address = None if self.data_dir is not None else self.server or os.environ[ENVIRONMENT]
        if address is not None:
            usage(target_of, address, "--server" if self.server else ENVIRONMENT)
        return Client(address, data_dir=self.data_dir, create=create, access=self.access)

    def _refuse_a_dump_path(self) -> None:
        from msprobe_client.embedded import data_directories

        if self.run and Path(self.run).is_dir() and data_directories(Path(self.run)):
            where = f"--data_dir {shlex.quote(self.run)}"
            raise typer.BadParameter(
                f"{self.run} is a dump_path, not the name of a run: give {where} and a run that "
                f"`msprobe-client runs {where}` lists"
            )


def common(context: typer.Context, server: str | None, data_dir: Path | None, chosen: Format | None = None) -> Common:
    root = context.find_root().obj
    found = (root if isinstance(root, Common) else Common(None, None, None)).overridden(server, data_dir, chosen)
    found.run = context.params.get("run")
    return found


def usage(check: Callable[[str], T], value: str, option: str) -> T:
    """check(value); its InvalidArgument becomes an error of the command line."""
    try:
        return check(value)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


class Selection:
    """The steps and ranks of --step and --rank; without these options, all."""

    def __init__(self, steps: list[str] | None, ranks: list[str] | None) -> None:
        self._texts = (steps or [], ranks or [])
        self.ranges = [_range(text) for text in steps or []]
        self.ranks: list[Rank] = [_rank(text) for text in ranks or []]

    @property
    def single(self) -> tuple[int, Rank] | None:
        """The one step and rank that were named."""
        if len(self.ranges) == 1 and len(self.ranks) == 1 and self.ranges[0][0] == self.ranges[0][1]:
            return self.ranges[0][0], self.ranks[0]
        return None

    def has(self, summary: StepSummary) -> bool:
        return (not self.ranges or any(first <= summary.step <= last for first, last in self.ranges)) and (
            not self.ranks or summary.rank in self.ranks
        )

    def of(self, run: str, summaries: list[StepSummary]) -> list[StepSummary]:
        """The run's steps and ranks that are meant; NotFound lists those that there are."""
        chosen = [summary for summary in summaries if self.has(summary)]
        if not chosen:
            steps, ranks = (" ".join(texts) for texts in self._texts)
            asked = " of ".join(word for word in (steps and f"step {steps}", ranks and f"rank {ranks}") if word)
            there = [f"step {summary.step} {summary.rank}" for summary in summaries[:10]]
            more = ", ..." if len(summaries) > len(there) else ""
            raise NotFound(f"run {run} has no {asked or 'steps'}; it has {', '.join(there) or 'none'}{more}")
        return chosen


def _range(text: str) -> tuple[int, int]:
    match = _STEP.fullmatch(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a step: write 3 or 3-5", param_hint="--step")
    first = int(match["first"])
    last = int(match["last"] or first)
    if first > last:
        raise typer.BadParameter(f"in {text!r} the first step is after the last", param_hint="--step")
    if last > _UINT32_MAX:
        raise typer.BadParameter(f"{text!r} is beyond the last possible step, {_UINT32_MAX}", param_hint="--step")
    return first, last


def _rank(text: str) -> Rank:
    from msprobe_client.model import Rank

    return usage(Rank.parse, text, "--rank")
