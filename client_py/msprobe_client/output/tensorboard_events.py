"""Series as TensorBoard's event files: a directory for each rank, a tag for each series."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_client.errors import InvalidArgument
from msprobe_client.output.extras import extra

if TYPE_CHECKING:
    from msprobe_client.monitor_client import ScalarSeries


def write(series: Iterable[ScalarSeries], directory: Path) -> None:
    """InvalidArgument: the directory has something in it."""
    writers = extra("tensorboard.summary.writer.event_file_writer", "tensorboard")
    events = extra("tensorboard.compat.proto.event_pb2", "tensorboard")
    summaries = extra("tensorboard.compat.proto.summary_pb2", "tensorboard")
    if directory.exists() and any(directory.iterdir()):
        raise InvalidArgument(f"{directory} is not empty; name a directory that is, or a new one")
    open_: dict[str, Any] = {}
    try:
        for one in series:
            rank = str(one.rank)
            if rank not in open_:
                open_[rank] = writers.EventFileWriter(str(directory / rank))
            for step, value in zip(one.steps, one.values, strict=True):
                summary = summaries.Summary(value=[summaries.Summary.Value(tag=one.name, simple_value=value)])
                open_[rank].add_event(events.Event(wall_time=0.0, step=step, summary=summary))
    finally:
        for writer in open_.values():
            writer.close()
