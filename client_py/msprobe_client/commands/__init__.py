"""The command line msprobe-client. A subcommand is one file here, with run and EXAMPLES, and one line in COMMANDS.

Nothing on the way to --help imports gRPC, protobuf or rich.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from msprobe_client import __version__, examples
from msprobe_client.access import Access
from msprobe_client.commands.mixins import expanded
from msprobe_client.commands.options import Ca, Cert, Common, DataDir, Key, OutputFormat, Server, TokenFile
from msprobe_client.errors import MissingShardsWarning, MsprobeError, ServerGoneWarning
from msprobe_client.exit_codes import EXIT_BROKEN_PIPE, EXIT_DIFFERS, EXIT_FAILED, EXIT_INTERRUPTED
from msprobe_client.visible import no_utf_8, visible

# Module and subcommand, in the order of --help.
COMMANDS = (
    ("runs", "runs"),
    ("environment", "environment"),
    ("steps", "steps"),
    ("records", "records"),
    ("export", "export"),
    ("import_", "import"),
    ("onnx", "onnx"),
    ("tensor", "tensor"),
    ("compare", "compare"),
    ("first_divergence", "first-divergence"),
    ("overflow", "overflow"),
    ("collectives", "collectives"),
    ("hang", "hang"),
    ("replay", "replay"),
    ("check", "check"),
    ("sensitivity", "sensitivity"),
    ("repro", "repro"),
    ("bisect", "bisect"),
    ("local_error", "local-error"),
    ("graph", "graph"),
    ("report", "report"),
    ("trend", "trend"),
    ("trend_database", "trend-database"),
    ("series", "series"),
    ("signs", "signs"),
    ("checkpoint_diff", "checkpoint-diff"),
    ("weights", "weights"),
    ("alarms", "alarms"),
    ("rules", "rules"),
    ("find", "find"),
    ("control", "control"),
    ("delete", "delete"),
    ("worker", "worker"),
    ("jobs", "jobs"),
    ("server", "server"),
    ("recover", "recover"),
    ("doctor", "doctor"),
)


class Group(TyperGroup):
    """Turns an error into one line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with _complete_answers(ctx):
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
        except MsprobeError as error:
            _fail(ctx, str(error), EXIT_FAILED)
        except BrokenPipeError:
            # The reader has seen enough. Python's flush at exit goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_BROKEN_PIPE) from None
        except KeyboardInterrupt:
            _fail(ctx, "interrupted", EXIT_INTERRUPTED)
        except OSError as error:
            _fail(ctx, f"{error.filename or 'output'}: {error.strerror or error}", EXIT_FAILED)
        except UnicodeEncodeError as error:
            _fail(ctx, no_utf_8(error), EXIT_FAILED)


@contextmanager
def _complete_answers(ctx: Any) -> Iterator[None]:
    """Names the servers of a cluster that did not answer, and ends with EXIT_FAILED if there are any. Of a server that
    is waited for it says so."""
    from msprobe_client.output import warn

    said: set[str] = set()
    show = warnings.showwarning

    def showwarning(message: Warning | str, *where: Any, **more: Any) -> None:
        if isinstance(message, ServerGoneWarning):
            warn(str(message), str(ctx.find_root().info_name))
        elif not isinstance(message, MissingShardsWarning):
            show(message, *where, **more)
        elif str(message) not in said:
            said.add(str(message))
            warn(str(message), str(ctx.find_root().info_name))

    with warnings.catch_warnings():
        for kind in (MissingShardsWarning, ServerGoneWarning):
            warnings.simplefilter("always", kind)
        warnings.showwarning = showwarning
        try:
            yield
        except typer.Exit as end:
            if said and end.exit_code in (0, EXIT_DIFFERS):
                raise typer.Exit(EXIT_FAILED) from None
            raise
    if said:
        raise typer.Exit(EXIT_FAILED)


def _fail(ctx: Any, message: str, code: int) -> NoReturn:
    print(visible(f"{ctx.find_root().info_name}: {' '.join(message.split())}"), file=sys.stderr)
    raise typer.Exit(code)


def _version(ctx: typer.Context, wanted: bool) -> None:
    if wanted:
        typer.echo(f"{ctx.find_root().info_name} {__version__}")
        raise typer.Exit()


def _root(
    context: typer.Context,
    server: Server = None,
    data_dir: DataDir = None,
    output_format: OutputFormat = None,
    ca: Ca = None,
    cert: Cert = None,
    key: Key = None,
    token_file: TokenFile = None,
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
) -> None:
    """Read, export and import what msprobe-server stores.

    The server is --server ADDRESS, else $MSPROBE_SERVER, or with --data_dir DIR one that is started for the command.
    DIR is a data directory, or the dump_path of a program that captured without one.
    """
    del version
    context.obj = Common(server, data_dir, output_format, Access(ca, cert, key, token_file))


def application(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The command line; for these arguments, where they are given, at less cost: typer reads the options of those
    subcommands alone that they name.
    """
    app = typer.Typer(
        cls=Group,
        epilog=examples.epilog(examples.GENERAL),
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for module, name in COMMANDS:
        loaded = importlib.import_module(f"{__name__}.{module}")
        if hasattr(loaded, "app"):  # subcommands of its own
            app.add_typer(loaded.app, name=name)
        elif arguments is not None and name not in arguments:
            app.command(name)(_only_listed(loaded.run))
        else:
            app.command(name, epilog=examples.epilog(loaded.EXAMPLES))(expanded(loaded.run))
    return app


def _only_listed(run: Callable[..., None]) -> Callable[[], None]:
    def listed() -> None: ...

    listed.__doc__ = run.__doc__
    return listed


def main(arguments: list[str] | None = None, name: str = "msprobe-client") -> NoReturn:
    # As Ctrl-C: no part of a file stays, and no server of one's own with what it was given.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        given = sys.argv[1:] if arguments is None else arguments
        completes = any(variable.endswith("_COMPLETE") for variable in os.environ)  # then options of others count, too
        application(None if completes else given)(arguments, prog_name=name)
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)
