"""Files of a dump on their way to a server: Client.import_dump."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msprobe_client import dump_files
from msprobe_client.errors import DataError, MsprobeError
from msprobe_client.proto import query_pb2

# Under gRPC's default limit of 4 MiB a message, which the receiving server may have.
_CHUNK_BYTES = 1 << 20


class Upload:
    """Chunks of files, pulled by gRPC from its own thread; what goes wrong there is kept in `error`."""

    def __init__(self, files: list[dump_files.DumpFile], run: str, progress: Callable[[int, int], None]) -> None:
        self._files = files
        self._run = run
        self._progress = progress
        self.error: MsprobeError | None = None

    def __iter__(self) -> Iterator[query_pb2.ImportChunk]:
        total = sum(file.size for file in self._files)
        done = 0
        run = self._run
        for file in self._files:
            try:
                with file.source.open("rb") as source:
                    path = file.path
                    last = False
                    content = source.read(_CHUNK_BYTES)
                    while not last:
                        following = source.read(_CHUNK_BYTES)
                        last = not following
                        yield query_pb2.ImportChunk(run=run, path=path, content=content, last=last)
                        run = path = ""
                        done += len(content)
                        self._progress(done, total)
                        content = following
            except OSError as error:
                self.error = DataError(f"{file.source} cannot be read: {error.strerror}")
                raise
