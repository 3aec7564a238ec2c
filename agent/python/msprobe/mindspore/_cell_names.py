"""What the cells of a model are called."""

from __future__ import annotations

from collections.abc import Iterator

from mindspore import nn


def named_cells(model: nn.Cell | list[nn.Cell]) -> Iterator[tuple[nn.Cell, str, int | None]]:
    """(cell, name of its records, index of the model if it is one) of every cell, each once.

    "Cell.net.conv1.Conv2d"; of a list of models "Cell.{index}.net.conv1.Conv2d". The name of a model itself is empty.
    """
    for index, root in enumerate(model if isinstance(model, list) else [model]):
        prefix = f"Cell.{index}" if isinstance(model, list) else "Cell"
        for name, cell in root.cells_and_names():
            if cell is root:
                yield cell, "", index
            else:
                yield cell, f"{prefix}.{name}.{type(cell).__name__}", None
