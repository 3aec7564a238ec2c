"""A progress bar on stderr, only where stderr is a terminal. It goes away when rows come to the same terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

T = TypeVar("T")

# The visible bar: there is one at a time.
_shown: list[Any] = []


@contextmanager
def bar(
    title: str, unit: Literal["files", "bytes", "calls", "steps", "tensors", "runs"]
) -> Iterator[Callable[[int, int], None]]:
    """Gives a function to call with done and total (0: not known)."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn(binary_units=True) if unit == "bytes" else MofNCompleteColumn()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as progress:
        task = progress.add_task(title, total=None)
        _shown.append(progress)
        try:
            yield lambda done, total: progress.update(task, completed=done, total=total or None)
        finally:
            _shown.clear()


def gone_before(rows: Iterable[T]) -> Iterator[T]:
    """The rows. The bar goes before the first row, or at the end if there is none."""
    remaining = iter(rows)
    first = next(remaining, None)
    while _shown:
        _shown.pop().stop()
    if first is not None:
        yield first
        yield from remaining
