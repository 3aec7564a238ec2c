"""Analysis over gRPC: requests and answers in terms of the model."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, Protocol, TypeAlias

from msprobe_client import decode, model
from msprobe_client.compare_options import CompareOptions
from msprobe_client.comparison import (
    BASES,
    BLAMES,
    LEVELS,
    ORIGINS,
    REPLICA_KINDS,
    SIGN_VERDICTS,
    VERDICTS,
    ComparedTensor,
    Divergence,
    DumpReport,
    ExplorerReport,
    Overflow,
    ReplicaDifference,
    RollUp,
    Scalar,
    SignSimilarity,
    TableReport,
    UnpairedStep,
)
from msprobe_client.errors import DataError, InvalidArgument, MsprobeError, ServerError
from msprobe_client.output.whole_file import closed_to_writers, directory_for
from msprobe_client.proto import analysis_pb2, gradients_pb2

if TYPE_CHECKING:
    from msprobe_client.compat.result_xlsx import TableForm
    from msprobe_client.export_writer import ExportWriter

TrainingBackend: TypeAlias = Literal["fsdp", "megatron"]
Rows: TypeAlias = Literal["different", "all", "none"]
Order: TypeAlias = Literal["significance", "execution"]
Found: TypeAlias = ComparedTensor | RollUp | UnpairedStep
StepRange: TypeAlias = tuple[int, int]

RUN_PREFIX = "run:"
_UPLOADED = ".uploaded-"  # begins the names of runs that are deleted soon


class Importer(Protocol):
    """A client, as far as dumps that it uploads need one."""

    def import_dump(self, directory: str | os.PathLike[str], run: str, *, tensors: bool = True) -> object: ...

    def delete(self, run: str) -> object: ...


def is_path(source: str | os.PathLike[str]) -> bool:
    """Whether a side of a comparison is a directory or a file here rather than a run: run:NAME is always a run."""
    text = os.fspath(source)
    return not text.startswith(RUN_PREFIX) and (os.sep in text or Path(text).exists())


@contextmanager
def sources(
    client: Importer, given: Iterable[str | os.PathLike[str]], *, local: bool
) -> Iterator[list[analysis_pb2.Source]]:
    """Both sides as the request names them. local: the server reads directories of this machine; otherwise they are
    uploaded as runs that are deleted afterwards.
    """
    with ExitStack() as cleanup:
        made = []
        for source in given:
            text = os.fspath(source)
            if not is_path(source):
                made.append(analysis_pb2.Source(run=text.removeprefix(RUN_PREFIX)))
                continue
            path = Path(text)
            if not path.exists():
                raise InvalidArgument(f"{text} does not exist; name a run, a dump directory or a dump.json")
            if local:
                made.append(analysis_pb2.Source(path=str(path.resolve())))
                continue
            made.append(analysis_pb2.Source(run=cleanup.enter_context(uploaded(client, path))))
        yield made


def as_given(text: str, sides: Iterable[analysis_pb2.Source], given: Iterable[str | os.PathLike[str]]) -> str:
    """The text with the paths that were given in place of the names under which they were uploaded."""
    for side, path in zip(sides, given, strict=True):
        if side.run.startswith(_UPLOADED):
            text = text.replace(side.run, os.fspath(path))
    return text


@contextmanager
def uploaded(client: Importer, path: Path, *, tensors: bool = True) -> Iterator[str]:
    """The dump at path as a run for as long as this takes. tensors: with the content of its tensors."""
    run = f"{_UPLOADED}{secrets.token_hex(8)}"
    try:
        try:
            client.import_dump(path.parent if path.is_file() else path, run, tensors=tensors)
        except MsprobeError as error:  # which names files by their paths below
            raise type(error)(f"{path} cannot be read: {error}") from None
        yield run
    finally:
        _forget(client, run)


def _forget(client: Importer, run: str) -> None:
    """Deletes what was uploaded; that it never arrived, or that the server is gone, was said already."""
    with suppress(MsprobeError):
        client.delete(run)


def scope(steps: Iterable[StepRange], ranks: Iterable[str | int | model.Rank], name: str | None) -> analysis_pb2.Scope:
    return analysis_pb2.Scope(
        steps=[analysis_pb2.Scope.Steps(first=first, last=last) for first, last in steps],
        ranks=[decode.rank_message(model.Rank.parse(rank)) for rank in ranks],
        name_glob=name or "",
    )


def compare_request(
    sides: list[analysis_pb2.Source],
    where: analysis_pb2.Scope,
    options: CompareOptions,
    *,
    rows: Rows,
    order: Order,
    limit: int,
) -> analysis_pb2.CompareRequest:
    return analysis_pb2.CompareRequest(
        target=sides[0],
        golden=sides[1],
        scope=where,
        rows=analysis_pb2.CompareRequest.Rows.Value(rows.upper()),
        order=analysis_pb2.CompareRequest.Order.Value(order.upper()),
        limit=limit,
        **options.fields_of(analysis_pb2.CompareRequest),
    )


def divergence(message: analysis_pb2.Divergence) -> Divergence:
    return Divergence(
        op=message.op,
        golden_op=message.golden_op,
        module=message.module,
        step=message.step,
        rank=decode.rank(message.rank),
        token=message.token,
        blame=BLAMES[message.blame],
        culprit=message.culprit,
        in_target=message.in_target,
        evidence=tuple(map(_tensor, message.evidence)),
        stack=tuple(message.stack),
        collectives_before=message.collectives_before,
        edge=decode.edge(message.edge),
        path=tuple(message.path),
        first=message.first,
    )


def overflow(message: analysis_pb2.Overflow) -> Overflow:
    return Overflow(
        op=message.op,
        module=message.module,
        step=message.step,
        rank=decode.rank(message.rank),
        token=message.token,
        origin=ORIGINS[message.origin],
        tensor=message.tensor,
        dtype=message.dtype,
        shape=message.shape,
        nan=message.nan,
        infinity=message.infinity,
        stack=tuple(message.stack),
        collectives_before=message.collectives_before,
        first=message.first,
        entry_json=message.entry_json,
        modules=tuple(message.modules),
    )


def replica_difference(message: analysis_pb2.ReplicaDifference) -> ReplicaDifference:
    return ReplicaDifference(
        kind=REPLICA_KINDS[message.kind],
        tensor=message.tensor,
        op=message.op,
        module=message.module,
        step=message.step,
        odd=tuple(map(decode.rank, message.odd)),
        others=tuple(map(decode.rank, message.others)),
        stack=tuple(message.stack),
    )


def sign_similarity(message: gradients_pb2.SignSimilarity) -> SignSimilarity:
    return SignSimilarity(
        step=message.step,
        rank=decode.rank(message.rank),
        parameter=message.parameter,
        elements=message.elements,
        equal=message.equal,
        verdict=SIGN_VERDICTS[message.verdict],
    )


def found(response: analysis_pb2.CompareResponse) -> Iterator[Found]:
    kind = response.WhichOneof("kind")
    if kind == "tensors":
        yield from map(_tensor, response.tensors.rows)
    elif kind == "roll_ups":
        yield from map(_roll_up, response.roll_ups.roll_ups)
    elif kind == "unpaired":
        yield unpaired(response.unpaired)


def unpaired(lonely: analysis_pb2.UnpairedStep) -> UnpairedStep:
    return UnpairedStep("target" if lonely.in_target else "golden", lonely.step, decode.rank(lonely.rank))


def _tensor(row: analysis_pb2.ComparedTensor) -> ComparedTensor:
    metrics: dict[str, float | int | None] = {}
    if row.HasField("metrics"):
        for field in row.metrics.DESCRIPTOR.fields:
            present = not field.has_presence or row.metrics.HasField(field.name)  # type: ignore[arg-type]
            metrics[field.name] = getattr(row.metrics, field.name) if present else None
    target_value = decode.exact(row.exact_target_value, row.target_value)
    golden_value = decode.exact(row.exact_golden_value, row.golden_value)
    if metrics:
        metrics |= {"worst_target": target_value, "worst_golden": golden_value}
    return ComparedTensor(
        name=row.name,
        golden_name=row.golden_name,
        step=row.step,
        rank=decode.rank(row.rank),
        token=row.token,
        module=row.module,
        verdict=VERDICTS[row.verdict],
        basis=BASES[row.basis],
        target_dtype=row.target_dtype,
        golden_dtype=row.golden_dtype,
        target_shape=row.target_shape,
        golden_shape=row.golden_shape,
        excess=row.excess,
        statistic=row.statistic,
        target_value=target_value,
        golden_value=golden_value,
        metrics=metrics,
        message=row.message,
        order=row.order,
        layout=row.layout,
        target_scalar=_scalar(row.target_scalar) if row.HasField("target_scalar") else None,
        golden_scalar=_scalar(row.golden_scalar) if row.HasField("golden_scalar") else None,
    )


def _scalar(message: analysis_pb2.Scalar) -> Scalar:
    kind = message.WhichOneof("value")
    return Scalar(message.type, None if kind is None else getattr(message, kind))


def _roll_up(message: analysis_pb2.RollUp) -> RollUp:
    level = LEVELS[message.level]
    tally = message.tally
    return RollUp(
        level=level,
        name=message.name,
        step=message.step if level in ("module", "layer", "step") else None,
        rank=decode.rank(message.rank) if level in ("module", "layer", "rank") else None,
        rows=tally.rows,
        verdicts={VERDICTS[i]: count for i, count in enumerate(tally.by_verdict) if count},
        worst_excess=tally.worst_excess,
        worst=tally.worst,
        first_difference=tally.first_difference,
    )


class TableFiles:
    """Writes tables in mindstudio-probe's form as they come, each whole or not at all."""

    def __init__(
        self, directory: Path, name: Callable[[analysis_pb2.TableChunk], str], form: TableForm | None = None
    ) -> None:
        self._directory = directory
        self._name = name
        self._form = form

    def write(self, chunks: Iterable[analysis_pb2.TableChunk]) -> Iterator[TableReport]:
        self._directory.mkdir(parents=True, exist_ok=True)
        scratch = self._directory / f".msprobe-{secrets.token_hex(8)}"
        try:
            file = None
            for chunk in chunks:
                if file is None:
                    file = scratch.open("xb")
                if content := chunk.content:  # each look at the field copies it
                    file.write(content)
                if not chunk.last:
                    continue
                file.close()
                file = None
                target = self._directory / self._name(chunk)
                if self._form is None:
                    scratch.replace(target)
                else:
                    self._form.write(scratch, target)
                    scratch.unlink()
                yield TableReport(
                    str(target),
                    chunk.step,
                    decode.rank(chunk.rank),
                    chunk.rows,
                    chunk.warnings,
                    chunk.errors,
                    chunk.target_only,
                )
            if file is not None:
                file.close()
                raise DataError("the server's answer ended in the middle of a table")
        finally:
            scratch.unlink(missing_ok=True)


class DatabaseFile:
    """Writes a database for TensorBoard as it comes, whole or not at all."""

    def __init__(self, target: Path, progress: Callable[[int, int], None]) -> None:
        self.target = target
        self.bytes = self.steps = 0
        self.unpaired: list[UnpairedStep] = []
        self.warnings: list[str] = []
        self._progress = progress

    def write(self, parts: Iterable[analysis_pb2.GraphResponse | analysis_pb2.TrendDatabaseResponse]) -> None:
        # The plugins refuse what others may write.
        with directory_for(self.target.parent, 0o750):
            self._write(parts)

    def _write(self, parts: Iterable[analysis_pb2.GraphResponse | analysis_pb2.TrendDatabaseResponse]) -> None:
        scratch = self.target.parent / f".msprobe-{secrets.token_hex(8)}"
        try:
            scratch.touch(0o640, exist_ok=False)
            with scratch.open("wb") as file:
                for part in parts:
                    kind = part.WhichOneof("kind")
                    if kind == "content":
                        self.bytes += file.write(part.content)
                    elif kind == "progress":
                        self.steps = part.progress.steps_done
                        self._progress(self.steps, part.progress.steps_total)
                    elif kind == "warning":
                        self.warnings.append(part.warning)
                    elif isinstance(part, analysis_pb2.GraphResponse) and kind == "unpaired":
                        self.unpaired.append(unpaired(part.unpaired))
            if self.bytes == 0:
                raise DataError("the server's answer ended before the database")
            for left in ("-wal", "-shm"):  # of a file of this name that was open
                self.target.with_name(self.target.name + left).unlink(missing_ok=True)
            scratch.replace(self.target)
        finally:
            scratch.unlink(missing_ok=True)


def merged_dump(
    parts: Iterable[analysis_pb2.GraphResponse], writer: ExportWriter, progress: Callable[[int, int], None]
) -> DumpReport:
    """Puts the directories of a dump in place as they come."""
    warnings: list[str] = []
    path, content = "", b""

    def end_file() -> None:
        if path:
            writer.write(path, content, last=True)

    for part in parts:
        kind = part.WhichOneof("kind")
        if kind == "file":
            end_file()
            path, content = part.file, b""
        elif kind == "content":
            if content:
                writer.write(path, content, last=False)
            content = part.content
        elif kind == "progress":
            progress(part.progress.steps_done, part.progress.steps_total)
        elif kind == "warning":
            warnings.append(part.warning)
    end_file()
    writer.finish()
    return DumpReport(tuple(map(str, writer.directories)), writer.bytes, tuple(warnings))


class ExplorerFiles:
    """Writes files of Model Explorer as they come: all of them or none."""

    def __init__(self, directory: Path, progress: Callable[[int, int], None]) -> None:
        self._directory = directory
        self._progress = progress

    def write(self, parts: Iterable[analysis_pb2.GraphResponse]) -> ExplorerReport:
        with directory_for(self._directory, 0o755):
            return self._write(parts)

    def _write(self, parts: Iterable[analysis_pb2.GraphResponse]) -> ExplorerReport:
        size = 0
        lonely: list[UnpairedStep] = []
        warnings: list[str] = []
        names: list[str] = []
        with tempfile.TemporaryDirectory(prefix=".msprobe-", dir=self._directory) as scratch, ExitStack() as opened:
            file: IO[bytes] | None = None
            for part in parts:
                kind = part.WhichOneof("kind")
                if kind == "file":
                    # A name and no path, whatever a server says.
                    names.append(Path(part.file).name)
                    opened.close()
                    path = Path(scratch) / names[-1]
                    file = opened.enter_context(open(path, "xb", opener=closed_to_writers))
                elif kind == "content":
                    if file is None:  # a graph database, which is all that earlier servers make
                        raise ServerError(
                            "the server does not know this request (graphs for Model Explorer); "
                            "is it a msprobe-server of this version?"
                        )
                    size += file.write(part.content)
                elif kind == "progress":
                    self._progress(part.progress.steps_done, part.progress.steps_total)
                elif kind == "unpaired":
                    lonely.append(unpaired(part.unpaired))
                elif kind == "warning":
                    warnings.append(part.warning)
            opened.close()
            if not names:
                raise DataError("the server's answer ended before the graph")
            for target in (self._directory / name for name in names):
                if target.is_dir():
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
            for name in names:
                (Path(scratch) / name).replace(self._directory / name)
        paths = tuple(str(self._directory / name) for name in names)
        return ExplorerReport(paths, size, tuple(lonely), tuple(warnings))
