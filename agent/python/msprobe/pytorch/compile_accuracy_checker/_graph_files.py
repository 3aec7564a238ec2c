"""The graphs that AOTAutograd makes, a Python file each: __compiled_fn_3.Forward_graph.1a2b3c4d.py."""

from __future__ import annotations

import hashlib
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msprobe._common import log
from msprobe._common.swaps import CodeSwap

_KINDS = ("captured graph", "joint graph", "forward graph", "backward graph")


@contextmanager
def graph_files(directory: str | os.PathLike[str]) -> Iterator[None]:
    """Each graph that is compiled as long as the context lasts. The directory is made."""
    import torch._dynamo.utils

    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    count = 0

    def write(name: str, graph: Any) -> None:
        nonlocal count
        text = f"# === {name} ===\n{graph.print_readable(print_output=False)}\n"
        digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:8]
        path = folder / f"__compiled_fn_{count}.{name.replace(' ', '_')}.{digest}.py"
        count += 1
        path.write_text(text, encoding="utf-8")
        log.info(f"{name}: {path}")

    def intercept(twin: types.FunctionType) -> Callable[..., Any]:
        def formatted(name: str, gm: Any, *args: Any, **kwargs: Any) -> Any:
            if any(kind in name.lower() for kind in _KINDS):
                try:
                    write(name.strip(), gm)
                except Exception as error:  # the compiler goes on
                    log.warning(f"{name.strip()} is not written to {folder}: {error}")
            return twin(name, gm, *args, **kwargs)

        return formatted

    swap = CodeSwap(torch._dynamo.utils.lazy_format_graph_code, intercept)
    swap.install()
    try:
        yield
    finally:
        swap.restore()


__all__ = ["graph_files"]
