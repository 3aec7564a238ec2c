"""Series drawn in a terminal, and into pictures."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from msprobe_client.output.extras import extra
from msprobe_client.output.whole_file import whole_file
from msprobe_client.tensors import TrendSeries

# Lines that can still be told apart.
_MAX_LINES = 12
_HEIGHT = 24
_TICKS = 10
_GOLDEN = " golden"


def show(series: Sequence[TrendSeries], to: TextIO) -> None:
    plotext = extra("plotext", "plot")
    plotext.clear_figure()
    size = shutil.get_terminal_size((100, _HEIGHT))
    plotext.plotsize(size.columns, min(size.lines - 1, _HEIGHT) if to.isatty() else _HEIGHT)
    plotext.theme("clear" if to.isatty() and "NO_COLOR" not in os.environ else "colorless")
    left_out = 0
    for number, (label, x, y) in enumerate(_lines(series)):
        if number >= _MAX_LINES:
            left_out += 1
        elif y:
            plotext.plot(x, y, label=label, marker="braille" if len(x) > 1 else "dot")
    places = sorted({x for _, line, _ in _lines(series) for x in line})
    plotext.xticks(places[:: max(1, -(-len(places) // _TICKS))])
    plotext.xlabel(_x_label(series))
    built = plotext.build()
    to.write((built if to.isatty() else plotext.uncolorize(built)).rstrip("\n") + "\n")
    if left_out:
        to.write(f"{left_out} more lines are not drawn; narrow the name\n")
    for absent in _not_captured(series):
        to.write(f"{absent}: not captured\n")
    for label, steps in _gaps(series):
        to.write(f"{label}: not finite at {_x_label(series)} {', '.join(map(str, steps[:10]))}\n")


def draw(series: Sequence[TrendSeries], path: Path) -> None:
    """Writes a picture; path's suffix names the format."""
    matplotlib = extra("matplotlib", "plot")
    matplotlib.use("agg")
    figure_class = extra("matplotlib.figure", "plot").Figure
    figure = figure_class(figsize=(10, 5), layout="constrained")
    axes = figure.subplots()
    for label, x, y in _lines(series):
        if x:
            style = "--" if label.endswith(_GOLDEN) else "-"
            axes.plot(x, y, style, label=label, marker="." if len(x) < 100 else None, linewidth=1)
    for label, steps in _gaps(series):
        for at in steps:
            axes.axvline(at, color="red", alpha=0.3, label=f"{label} is not finite" if at == steps[0] else None)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel(_x_label(series))
    axes.set_ylabel(", ".join(dict.fromkeys(one.statistic or "value" for one in series)))
    axes.grid(alpha=0.3)
    axes.legend(fontsize="x-small", loc="best")
    with whole_file(path) as scratch:
        figure.savefig(scratch, format=path.suffix.lower().removeprefix("."), dpi=150)


def _by_token(series: Sequence[TrendSeries]) -> bool:
    """Whether steps have several tokens: then tokens are counted over all steps."""
    return any(point.token for one in series for point in one.points)


def _x_label(series: Sequence[TrendSeries]) -> str:
    return "token" if _by_token(series) else "step"


def _x(one: TrendSeries, by_token: bool) -> list[int]:
    return list(range(len(one.points))) if by_token else [point.step for point in one.points]


def _lines(series: Sequence[TrendSeries]) -> Iterator[tuple[str, list[int], list[float]]]:
    """Label, places and values of the finite points; of two sides one line each."""
    by_token = _by_token(series)
    for one in series:
        places = _x(one, by_token)
        paired = any(point.golden is not None for point in one.points)
        for side in ("", _GOLDEN) if paired else ("",):
            values = [(point.golden if side else point.value) for point in one.points]
            finite = [(x, y) for x, y in zip(places, values, strict=True) if y is not None and math.isfinite(y)]
            yield _label(one) + side, [x for x, _ in finite], [y for _, y in finite]


def _not_captured(series: Sequence[TrendSeries]) -> list[str]:
    return [_label(one) for one in series if all(point.value is None for point in one.points)]


def _gaps(series: Sequence[TrendSeries]) -> Iterator[tuple[str, list[int]]]:
    by_token = _by_token(series)
    for one in series:
        values = [point.value for point in one.points]
        found = [x for x, y in zip(_x(one, by_token), values, strict=True) if y is not None and not math.isfinite(y)]
        if found:
            yield _label(one), found


def _label(one: TrendSeries) -> str:
    return f"{one.name} {one.rank} {one.statistic or ''}".rstrip()
