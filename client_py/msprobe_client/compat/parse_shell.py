"""msprobe -f pytorch parse: the interactive shell of mindstudio-probe 1.0 to 8.3."""

from __future__ import annotations

import argparse
import cmd
import csv
import math
import os
import struct
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from msprobe_client.compat.parsed_records import statistics_of
from msprobe_client.errors import InvalidArgument, MsprobeError
from msprobe_client.scratch import scratch_directory
from msprobe_client.visible import no_utf_8, visible

if TYPE_CHECKING:
    from msprobe_client.tensor_files import ElementPair, TensorFiles
    from msprobe_client.tensors import TensorPreview

_DATA = Path("parse_data")
_ROWS, _COLUMNS = 16, 8  # of elements that pt shows
_COMMANDS = "cad/vc/dc/pk/cn/pt"
_MSACCUCMP = "without effect: kernel dumps are read here, without CANN's msaccucmp.py"
_TITLES = (
    "NPU File Name",
    "Bench File Name",
    "Mean",
    "Bench Mean",
    "Md5 Consistency",
    "Max Abs Error",
    "Max Relative Error",
)


class _Usage(Exception):
    """The arguments of a command are wrong; argparse has said how."""


class _Parser(argparse.ArgumentParser):
    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            print(message, end="", file=sys.stderr)
        raise _Usage(status)


def _path(text: str) -> Path:
    return Path(text.strip("'\""))


def _npy(text: str) -> Path:
    path = _path(text)
    if path.suffix != ".npy":
        raise argparse.ArgumentTypeError(f"{path} is no .npy file; `msprobe-client tensor` reads other files")
    return path


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 1000")
    return int(text)


class Shell(cmd.Cmd):
    prompt = "Parse >>> "

    def __init__(self) -> None:
        super().__init__()
        self._held = ExitStack()
        self._started: TensorFiles | None = None

    def close(self) -> None:
        self._held.close()

    @property
    def _files(self) -> TensorFiles:
        if self._started is None:
            os.environ.setdefault("GRPC_VERBOSITY", "NONE")
            from msprobe_client.client import Client

            scratch = self._held.enter_context(scratch_directory())
            self._started = self._held.enter_context(Client(data_dir=scratch, create=True)).tensor_files
        return self._started

    def onecmd(self, line: str) -> bool:
        """What goes wrong is one line, and the shell goes on."""
        try:
            return bool(super().onecmd(line))
        except _Usage:
            pass
        except MsprobeError as error:
            self._say(f"[ERROR] {' '.join(str(error).split())}")
        except OSError as error:
            self._say(f"[ERROR] {error.filename or 'output'}: {error.strerror or error}")
        except UnicodeEncodeError as error:
            self._say(f"[ERROR] {no_utf_8(error)}")
        return False

    def emptyline(self) -> bool:
        return False

    def default(self, line: str) -> None:
        self._say(f"Command invalid, Only support command start with {_COMMANDS}")

    def do_EOF(self, line: str) -> bool:
        """End."""
        del line
        return True

    do_exit = do_quit = do_EOF

    def do_pt(self, line: str) -> None:
        """pt -n FILE.npy: statistics and first elements; writes FILE.npy.txt."""
        parser = _Parser(prog="pt")
        parser.add_argument("-n", "--name", dest="path", required=True, type=_npy)
        path: Path = parser.parse_args(line.split()).path
        preview = self._preview(path)
        text = self._as_text(path)
        from rich.columns import Columns
        from rich.table import Table

        table = Table("Index", "Data")
        from msprobe_client.tensor_files import TensorPlace

        first = self._files.diff(TensorPlace(path), TensorPlace(path), top=_ROWS * _COLUMNS).first
        values = [_number(each.target, preview.dtype) for each in first]
        for at in range(0, len(values), _COLUMNS):
            table.add_row(str(at), " ".join(values[at : at + _COLUMNS]))
        summary = [
            f"[yellow]{_escaped(_spec(preview))}[/yellow]",
            _escaped(f"Path: {path}"),
            _escaped(f"TextFile: {text}"),
        ]
        self._panel(Columns([table, "\n".join(summary)]), str(path))

    def do_cn(self, line: str) -> None:
        """cn -m MINE.npy -g GOLDEN.npy [-p 20] [-s] [-al 0.001] [-rl 0.001]: compare two tensors."""
        parser = _Parser(prog="cn")
        parser.add_argument("-m", "--my_dump_path", required=True, type=_npy)
        parser.add_argument("-g", "--golden_dump_path", required=True, type=_npy)
        parser.add_argument("-p", "--print", dest="count", default=20, type=_count, help="elements in each table")
        parser.add_argument("-s", "--save", action="store_true", help="write both as .txt")
        parser.add_argument("-al", "--atol", default=0.001, type=_positive)
        parser.add_argument("-rl", "--rtol", default=0.001, type=_positive)
        given = parser.parse_args(line.split())
        from msprobe_client.tensor_files import TensorPlace

        left, right = given.my_dump_path, given.golden_dump_path
        limits = {"rtol": given.rtol, "atol": given.atol, "top": given.count}
        found = self._files.diff(TensorPlace(left), TensorPlace(right), **limits)
        if found.metrics is None:
            self._say(f"[WARNING] Data shape not equal: {found.target.shape} vs {found.golden.shape}")
            flat = (math.prod(found.golden.shape),)  # as many elements in another shape are compared one by one
            found = self._files.diff(TensorPlace(left, sizes=flat), TensorPlace(right, sizes=flat), **limits)
        previews = self._preview(left), self._preview(right)
        self._tables(found.over, found.first, found.target.dtype, found.golden.dtype, found.target.shape)
        lines = []
        for title, path, preview in (("Left:", left, previews[0]), ("Right:", right, previews[1])):
            lines += [title, _escaped(f" ├─ NpyFile: {path}")]
            if given.save:
                lines.append(f" ├─ TxtFile: [green]{_escaped(str(self._as_text(path)))}[/green]")
            lines.append(f" └─ NpySpec: [yellow]{_escaped(_spec(preview))}[/yellow]")
        metrics = found.metrics
        assert metrics is not None
        wrong = metrics.over_tolerance + metrics.inf_mismatches + metrics.inf_sign_mismatches
        close = wrong == 0 and metrics.nan_mismatches == 0 and previews[0].nan_count == 0
        share = wrong / metrics.elements if metrics.elements else 0.0
        lines.append(f"NumCnt:   {metrics.elements}")
        lines.append(f"AllClose: {close}")
        lines.append(f"CosSim:   {_number(metrics.cosine, 'torch.float32')}")
        lines.append(f"ErrorPer: {share}  (rl= {given.rtol}, al= {given.atol})")
        self._panel("\n".join(lines))

    def do_pk(self, line: str) -> None:
        """pk -f dump.json -n API: statistics of an operation's tensors, and its stack."""
        parser = _Parser(prog="pk")
        parser.add_argument("-f", "--file", dest="file", required=True, type=_path)
        parser.add_argument("-n", "--name", dest="name", required=True)
        given = parser.parse_args(line.split())
        for said in statistics_of(given.file, given.name):
            self._say(said)

    def do_dc(self, line: str) -> None:
        """dc -n FILE_OR_DIR [-f LAYOUT] [-out DIR]: kernel dumps as .npy."""
        parser = _Parser(prog="dc")
        parser.add_argument("-n", "--name", dest="path", required=True, type=_path)
        parser.add_argument("-f", "--format", dest="layout", default="", help="NCHW, NHWC, ND, HWCN, FRACTAL_Z, ...")
        parser.add_argument("-out", "--output_path", dest="output", default=_DATA / "dump_convert", type=_path)
        parser.add_argument("-cmp_path", "--msaccucmp_path", help=_MSACCUCMP)
        given = parser.parse_args(line.split())
        from msprobe_client.compat.kernel_dumps import files_below

        for file in files_below(given.path):
            self._convert(file, given.output, given.layout)
        self._say(f"[INFO] Transfer result is saved in : {given.output.resolve()}")

    def do_cad(self, line: str) -> None:
        """cad -m DIR [-out DIR]: kernel dumps as .npy, in directories OPERATOR/TIMESTAMP."""
        parser = _Parser(prog="cad")
        parser.add_argument("-m", "--my_dump_path", required=True, type=_path)
        parser.add_argument("-out", "--output_path", dest="output", type=_path)
        parser.add_argument("-asc", "--msaccucmp_path", help=_MSACCUCMP)
        given = parser.parse_args(line.split())
        from msprobe_client.compat.kernel_dumps import files_below

        output = given.output or _DATA / "batch_dump_convert" / time.strftime("%Y%m%d%H%M%S")
        done = 0
        for file in files_below(given.my_dump_path):
            parts = file.name.split(".")
            if len(parts) >= 5:  # {type}.{operator}.{task}.{stream}.{timestamp}
                self._convert(file, output / parts[1] / parts[-1], "")
                done += 1
        if done == 0:
            raise InvalidArgument(f"{given.my_dump_path} holds no file TYPE.OPERATOR.TASK.STREAM.TIMESTAMP")
        self._say(f"[INFO] Transfer result is saved in : {output.resolve()}")

    def do_vc(self, line: str) -> None:
        """vc -m DIR -g DIR [-out DIR]: compare two directories that cad wrote."""
        parser = _Parser(prog="vc")
        parser.add_argument("-m", "--my_dump_path", required=True, type=_path)
        parser.add_argument("-g", "--golden_dump_path", required=True, type=_path)
        parser.add_argument("-out", "--output_path", dest="output", default=_DATA / "batch_compare_result", type=_path)
        parser.add_argument("-cmp_path", "--msaccucmp_path", help="refused: it is a program of CANN")
        given = parser.parse_args(line.split())
        from msprobe_client.compat.kernel_dumps import files_below

        mine, golden = given.my_dump_path, given.golden_dump_path
        if mine == golden:
            raise InvalidArgument(f"{mine} is given as -m and as -g; two directories are right")
        for path in (mine, golden):
            raw = next((file for file in files_below(path) if file.suffix != ".npy"), None)
            if given.msaccucmp_path or raw is not None:
                raise InvalidArgument(
                    f"vc of raw dumps ({raw or path}) is a job of CANN's msaccucmp.py, which is not part of this; "
                    "convert both sides with cad, then vc the two directories"
                )
        rows = [_TITLES, *(self._compared(*pair) for pair in _pairs(mine, golden, 3))]
        given.output.mkdir(parents=True, exist_ok=True)
        path = given.output / f"batch_compare_{int(time.time())}.csv"
        from msprobe_client.output.whole_file import whole_file

        with whole_file(path) as scratch, scratch.open("w", encoding="utf-8-sig", newline="") as file:
            csv.writer(file).writerows(rows)
        self._say(f"[INFO] Compare result is saved in : {path}")

    def _compared(self, mine: Path, golden: Path) -> tuple[Any, ...]:
        from msprobe_client.tensor_files import TensorPlace

        found = self._files.diff(TensorPlace(mine), TensorPlace(golden), top=0)
        if found.metrics is None or found.target.dtype != found.golden.dtype:
            raise InvalidArgument(f"{mine} and {golden} have other shapes or dtypes")
        means = (_number(self._preview(path).mean, found.target.dtype) for path in (mine, golden))
        errors = (_number(each, found.target.dtype) for each in (found.metrics.max_abs, found.metrics.max_rel))
        return (mine.name, golden.name, *means, found.kind == "equal", *errors)

    def _convert(self, file: Path, output: Path, layout: str) -> None:
        from msprobe_client.compat.kernel_dumps import converted

        written = converted(self._files, file, output, "npy", layout, lambda line: self._say(f"[WARNING] {line}"))
        self._panel("\n".join([_escaped(f"SrcFile: {file}"), *(_escaped(f" - {path.name}") for path in written)]))

    def _preview(self, path: Path) -> TensorPreview:
        from msprobe_client.tensor_files import TensorPlace

        return self._files.preview(TensorPlace(path), bins=1, top=1)

    def _as_text(self, path: Path) -> Path:
        """FILE.npy.txt, written unless it is there."""
        from msprobe_client.tensor_files import TensorPlace

        text = path.with_name(f"{path.name}.txt")
        if not text.exists():
            self._files.convert(TensorPlace(path), text)
        return text

    def _tables(
        self,
        over: tuple[ElementPair, ...],
        first: tuple[ElementPair, ...],
        target: str,
        golden: str,
        shape: tuple[int, ...],
    ) -> None:
        from rich.columns import Columns
        from rich.table import Table

        tables = []
        for title, pairs in (("Error Item Table", over), ("Top Item Table", first)):
            table = Table("Index", "Left", "Right", "Diff", title=title)
            for pair in pairs:
                difference = abs(pair.target - pair.golden)
                cells = (
                    _number(pair.target, target),
                    _number(pair.golden, golden),
                    _number(difference, "torch.float32"),
                )
                table.add_row(str(_flat(pair.index, shape)), *cells)
            tables.append(table)
        self._print(Columns(tables))

    def _panel(self, content: Any, title: str = "") -> None:
        from rich.panel import Panel

        self._print(Panel.fit(content, title=_escaped(title)))

    def _print(self, content: Any) -> None:
        from rich.console import Console

        Console(file=self.stdout).print(content)

    def _say(self, line: str) -> None:
        self.stdout.write(visible(line) + "\n")


def _pairs(mine: Path, golden: Path, level: int) -> list[tuple[Path, Path]]:
    """Files of two directories of one structure, OPERATOR/TIMESTAMP/FILE; timestamps and files pair in their order."""
    ours, theirs = sorted(mine.iterdir()), sorted(golden.iterdir())
    same = len(ours) == len(theirs) and (level < 3 or [each.name for each in ours] == [each.name for each in theirs])
    if not same or any(path.is_dir() == (level == 1) for path in (*ours, *theirs)):
        raise InvalidArgument(f"{mine} and {golden} do not hold the same; both sides are directories that cad wrote")
    if level == 1:
        return list(zip(ours, theirs, strict=True))
    return [pair for each in zip(ours, theirs, strict=True) for pair in _pairs(*each, level - 1)]


def _flat(index: tuple[int, ...], shape: tuple[int, ...]) -> int:
    place = 0
    for at, size in zip(index, shape, strict=True):
        place = place * size + at
    return place


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(visible(text))


def _spec(preview: TensorPreview) -> str:
    """As NumPy has it: a NaN is the max, min and mean of its tensor."""

    def over_all(finite: float | None, infinite: float) -> str:
        if preview.nan_count:
            return "nan"
        return _number(infinite if math.isinf(infinite) else finite, preview.dtype)

    up, down = preview.positive_inf_count > 0, preview.negative_inf_count > 0
    if preview.elements == 0:
        raise InvalidArgument("Invalid data, data is empty")
    high = over_all(preview.max, math.inf if up else -math.inf if down and not preview.finite else 0.0)
    low = over_all(preview.min, -math.inf if down else math.inf if up and not preview.finite else 0.0)
    mean = "nan" if up and down else over_all(preview.mean, math.inf if up else -math.inf if down else 0.0)
    dtype = preview.dtype.removeprefix("torch.")
    return f"[Shape: {preview.shape}] [Dtype: {dtype}] [Max: {high}] [Min: {low}] [Mean: {mean}]"


_PACKED = {"torch.float32": "<f", "torch.float16": "<e"}


def _number(value: float | None, dtype: str) -> str:
    """The shortest digits that give the number back in its dtype."""
    if value is None:
        return "nan"
    if not dtype.startswith(("torch.float", "torch.bfloat")):
        return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)
    form = _PACKED.get(dtype)
    if form is None or not math.isfinite(value):
        return str(value)
    try:
        packed = struct.pack(form, value)
    except OverflowError:
        return str(value)

    def fits(text: str) -> bool:
        try:
            return struct.pack(form, float(text)) == packed
        except OverflowError:  # a shorter text rounds up beyond the largest
            return False

    return str(float(next(text for text in (f"{value:.{digits}g}" for digits in range(1, 18)) if fits(text))))


def main(arguments: list[str]) -> NoReturn:
    argparse.ArgumentParser(
        prog="msprobe -f pytorch parse", description=f"A shell with the commands {_COMMANDS}."
    ).parse_args(arguments)
    shell = Shell()
    try:
        shell.cmdloop("Start Parsing........")
    except KeyboardInterrupt:
        print("\nExit parsing.......")
    finally:
        shell.close()
    sys.exit(0)
