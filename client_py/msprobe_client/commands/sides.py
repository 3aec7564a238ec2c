"""Options of the subcommands over runs and dumps, and their way to a server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from msprobe_client.commands.mixins import mixin
from msprobe_client.commands.options import Common, Ranks, Selection, Steps

if TYPE_CHECKING:
    from msprobe_client.client import Client
    from msprobe_client.compare_options import CompareOptions
    from msprobe_client.name_mapping import ToleranceRule
    from msprobe_client.proto.analysis_pb2 import NameMapping


class Mode(str, Enum):
    best = "best"
    statistics = "statistics"
    checksum = "checksum"
    content = "content"


Rtol = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--rtol", min=0, help="Relative tolerance of every floating dtype; default: by dtype"),
]
Atol = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option("--atol", min=0, help="Absolute tolerance of every floating dtype; default: by dtype"),
]
ToleranceOf = Annotated[
    Optional[list[str]],  # noqa: UP045
    typer.Option("--tolerance", metavar="DTYPE=RTOL[,ATOL]", help="For one dtype; several times", show_default=False),
]
Policy = Annotated[
    Optional[Path],  # noqa: UP045
    typer.Option("--policy", metavar="FILE", help="Tolerances by name and dtype, YAML or JSON", show_default=False),
]
AcrossLayouts = Annotated[
    bool, typer.Option("--across-layouts", help="The sides have other numbers of ranks: join shards of a tensor")
]
NameGlob = Annotated[
    Optional[str],  # noqa: UP045
    typer.Option("--name", metavar="GLOB", help="Shell pattern over full names of records: 'Functional.*'"),
]
ModeOf = Annotated[Mode, typer.Option("--mode", help="What is compared; best: contents, else checksums")]
SourceOf = Annotated[
    str, typer.Argument(help="A run, a dump directory, or a dump.json (run:NAME: surely a run)", show_default=False)
]


@mixin
class Where:
    """Which steps, ranks and records are meant."""

    step: Steps = None
    rank: Ranks = None
    name: NameGlob = None

    def arguments(self) -> dict[str, Any]:
        """The client's arguments."""
        selection = Selection(self.step, self.rank)
        return {"steps": selection.ranges, "ranks": selection.ranks, "name": self.name}


@mixin
class Judging:
    """What is compared, and within which tolerances it is equal."""

    mode: ModeOf = Mode.best
    rtol: Rtol = None
    atol: Atol = None
    tolerance: ToleranceOf = None
    policy: Policy = None

    def options(self, **more: Any) -> CompareOptions:
        """more: the other fields."""
        from msprobe_client.compare_options import CompareOptions

        tolerances = dict(map(_tolerance, self.tolerance or []))
        policy: list[ToleranceRule] = []
        if (file := self.policy) is not None:
            policy = read_file("--policy", lambda module: module.tolerance_policy(file))
        return CompareOptions(
            mode=self.mode.value, rtol=self.rtol, atol=self.atol, tolerances=tolerances, policy=policy, **more
        )


def _mapping_option(name: str, help: str) -> Any:
    return typer.Option(f"--{name}-mapping", f"--{name}_mapping", metavar="FILE", help=help, show_default=False)


_BUILT_IN = "builtin"


@mixin
class Mapped:
    """Which names differ on the golden side."""

    data_mapping: Annotated[Optional[Path], _mapping_option("data", "Full names: {target: golden}")] = None  # noqa: UP045
    cell_mapping: Annotated[
        Optional[Path],  # noqa: UP045
        _mapping_option("cell", "Names of modules: {target: golden}; `builtin`: Cell is Module"),
    ] = None
    api_mapping: Annotated[
        Optional[Path],  # noqa: UP045
        _mapping_option("api", "MindSpore's APIs to PyTorch's; `builtin`: the known ones alone"),
    ] = None
    layer_mapping: Annotated[
        Optional[Path],  # noqa: UP045
        _mapping_option("layer", "Paths of modules by class: {class: {target: golden}}"),
    ] = None

    def mapping(self) -> NameMapping | None:
        """The content of the files; None: no option was given."""
        files = {
            "data": self.data_mapping,
            "cell": self.cell_mapping,
            "api": self.api_mapping,
            "layer": self.layer_mapping,
        }
        if not any(files.values()):
            return None
        given = {
            name: True if name in ("cell", "api") and str(file) == _BUILT_IN else file for name, file in files.items()
        }
        read: NameMapping = read_file("a mapping file", lambda module: module.mapping(**given))
        return read


def read_file(option: str, read: Any) -> Any:
    """read(name_mapping); a wrong file becomes an error of the command line."""
    from msprobe_client import name_mapping
    from msprobe_client.errors import MsprobeError

    try:
        return read(name_mapping)
    except MsprobeError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _tolerance(text: str) -> tuple[str, tuple[float | None, float | None]]:
    dtype, _, values = text.partition("=")
    relative, _, absolute = values.partition(",")
    try:
        parsed = float(relative) if relative else None, float(absolute) if absolute else None
    except ValueError:
        parsed = None, None
    if not dtype or parsed == (None, None) or any(value is not None and not value >= 0 for value in parsed):
        raise typer.BadParameter(
            f"{text!r} is not understood; write DTYPE=RTOL or DTYPE=RTOL,ATOL, as in bfloat16=0.02,1e-4",
            param_hint="--tolerance",
        )
    return dtype, parsed


def server_of(options: Common, *sources: str) -> bool:
    """Whether a named server has to answer; a server of our own reads directories."""
    from msprobe_client.address import ENVIRONMENT
    from msprobe_client.analysis_client import is_path

    if options.server is not None or options.data_dir is not None:
        return True
    runs = [source for source in sources if not is_path(source)]
    if runs and not os.environ.get(ENVIRONMENT):
        raise typer.BadParameter(
            f"{runs[0]} is no directory and no file here; for a run give --server ADDRESS or --data_dir DIR"
        )
    return bool(runs)


@contextmanager
def as_run(client: Client, source: str) -> Iterator[str]:
    """The name of a run; a dump directory is one while the context lasts."""
    from msprobe_client import analysis_client

    if not analysis_client.is_path(source):
        yield source.removeprefix(analysis_client.RUN_PREFIX)
        return
    with analysis_client.uploaded(client, Path(source)) as run:
        yield run


@contextmanager
def connected(options: Common, *sources: str) -> Iterator[Client]:
    """The named server; for directories alone, one of our own while the context lasts."""
    if server_of(options, *sources):
        with options.connect() as client:
            yield client
        return
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from msprobe_client.client import Client
    from msprobe_client.scratch import scratch_directory

    with scratch_directory() as scratch, Client(data_dir=scratch, create=True) as client:
        yield client
