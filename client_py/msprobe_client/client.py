"""The typed API over gRPC."""

from __future__ import annotations

import getpass
import json
import os
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TypeVar, overload

from msprobe_client import (
    analysis_client,
    communication,
    decode,
    dump_files,
    model,
    run_environment,
    tensor_questions,
    trend_file,
    vis_file,
)
from msprobe_client.access import Access
from msprobe_client.address import ENVIRONMENT
from msprobe_client.backup import BackupReport
from msprobe_client.backup import write as write_backup
from msprobe_client.checkpoints_client import Checkpoints
from msprobe_client.communication import CollectiveMismatch, Hang
from msprobe_client.compare_options import DEFAULTS, CompareOptions, Matching
from msprobe_client.comparison import (
    Divergence,
    DumpReport,
    ExplorerReport,
    GraphReport,
    Overflow,
    ReplicaDifference,
    SignSimilarity,
    TableReport,
    TrendReport,
    UnpairedStep,
)
from msprobe_client.connection import Connection
from msprobe_client.embedded import EmbeddedServer
from msprobe_client.errors import DataError, InvalidArgument, MsprobeError
from msprobe_client.export_writer import ExportWriter
from msprobe_client.jobs_client import Jobs
from msprobe_client.monitor_client import Monitor
from msprobe_client.output.whole_file import closed_to_writers, unwritable, whole_file
from msprobe_client.patience import patiently
from msprobe_client.proto import (
    analysis_pb2,
    analysis_pb2_grpc,
    check_pb2,
    communication_pb2,
    communication_pb2_grpc,
    control_pb2,
    control_pb2_grpc,
    environment_pb2,
    environment_pb2_grpc,
    gradients_pb2,
    gradients_pb2_grpc,
    ingest_pb2,
    query_pb2,
    query_pb2_grpc,
    report_pb2,
    report_pb2_grpc,
)
from msprobe_client.run_environment import ProcessEnvironment
from msprobe_client.tensor_files import TensorFiles
from msprobe_client.tensors import FoundTensor, Predicate, Statistic, TensorPreview, TrendSeries
from msprobe_client.upload import Upload

if TYPE_CHECKING:
    from msprobe_client.compat.result_xlsx import TableForm

# Done and total; total is 0 where it is not known. May be called from another thread.
Progress = Callable[[int, int], None]
PathLike = str | os.PathLike[str]
RankLike = str | int | model.Rank

T = TypeVar("T")


def _nothing(done: int, total: int) -> None:
    del done, total


def _silent(line: str) -> None:
    del line


class Client:
    """A connection to one server. Thread safe; use as a context, or call close().

    address: "host:port" or "unix:/path". data_dir: start a server of one's own on this directory, or on the one
    below this dump_path, instead, ended by close(); create makes the directory and its store. Neither: the environment
    variable MSPROBE_SERVER.
    access: certificates and token for a server that asks for them; None: those of the environment, if any.
    Calls connect when first needed and raise MsprobeError only. An answer that lacks the part of a server of the
    cluster comes with a MissingShardsWarning (module warnings; a filter "error" makes it an exception).
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        data_dir: PathLike | None = None,
        create: bool = False,
        access: Access | None = None,
    ) -> None:
        if address is not None and data_dir is not None:
            raise InvalidArgument("a server address and a data directory exclude each other; give one of them")
        self._cleanup = ExitStack()
        if data_dir is not None:
            address = self._cleanup.enter_context(EmbeddedServer(data_dir, create=create)).address
        elif address is None:
            address = os.environ.get(ENVIRONMENT)
        if not address:
            raise InvalidArgument(f"no server: give an address, a data directory, or set {ENVIRONMENT}")
        self.address = address
        self._connection = Connection(address, is_local=data_dir is not None, access=access)
        self._cleanup.callback(self._connection.close)
        channel = self._connection.channel
        self._query = query_pb2_grpc.QueryStub(channel)
        self._analysis = analysis_pb2_grpc.AnalysisStub(channel)
        self._report = report_pb2_grpc.ReportStub(channel)
        self._gradients = gradients_pb2_grpc.GradientsStub(channel)
        self._communications = communication_pb2_grpc.CommunicationsStub(channel)
        self._environments = environment_pb2_grpc.EnvironmentsStub(channel)
        self._control = control_pb2_grpc.ControlStub(channel)
        self.checkpoints = Checkpoints(self._connection)
        self.jobs = Jobs(self._connection)
        self.monitor = Monitor(self._connection)
        self.tensor_files = TensorFiles(self._connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Cancels what is under way; ends the server this client started."""
        self._cleanup.close()

    def server_info(self) -> model.ServerInfo:
        return decode.server_info(
            self._connection.result(lambda: self._control.GetServerInfo.future(control_pb2.GetServerInfoRequest()))
        )

    def pin(self, run: str, *, pinned: bool = True) -> None:
        """A pinned run is not removed by the server's retention."""
        self._connection.result(lambda: self._control.PinRun.future(control_pb2.PinRunRequest(run=run, pinned=pinned)))

    def control(
        self,
        run: str,
        action: Literal["status", "start", "stop", "set", "next", "deeper", "request"],
        *,
        settings: Mapping[str, object] | None = None,
        steps: int = 0,
        request: str = "",
        ranks: Iterable[str | int | model.Rank] = (),
        wait: float = 5.0,
        asked_by: str = "",
    ) -> model.ControlAnswer:
        """Asks the running processes of a run to capture otherwise; they obey where their next step begins or ends.

        settings: of "set" and "deeper", fields of the configuration. steps: of "next" and "deeper", and of "request"
        where it is to end. wait: seconds for the processes to obey; what they have not done then they do later.
        """
        asked = control_pb2.ControlRunRequest(
            run=run,
            ranks=[decode.rank_message(model.Rank.parse(each)) for each in ranks],
            command=ingest_pb2.ControlCommand(
                action=ingest_pb2.ControlCommand.Action.Value(action.upper()),
                settings_json=json.dumps(dict(settings)) if settings is not None else "",
                steps=_uint32("steps", steps),
                request=request,
                asked_by=asked_by or _whoami(),
            ),
            wait_ms=_uint32("wait", round(wait * 1000)) or 1,
        )
        return decode.control_answer(self._connection.result(lambda: self._control.ControlRun.future(asked)))

    def backup(self, directory: PathLike) -> BackupReport:
        """Everything the server holds, as of one moment, into a new directory. See backup.restore."""
        with _disk(directory):
            return write_backup(
                self._connection.items(lambda: self._control.Backup(control_pb2.BackupRequest())), Path(directory)
            )

    def runs(self) -> list[model.RunSummary]:
        return self._runs()

    def _runs(self, *, whole: bool = False) -> list[model.RunSummary]:
        response = self._connection.result(
            lambda: self._query.ListRuns.future(query_pb2.ListRunsRequest()), whole=whole
        )
        return [decode.run_summary(item) for item in response.runs]

    def steps(self, run: str, *, request: str | None = None, position: int | None = None) -> list[model.StepSummary]:
        """In order of step, then rank.

        request: only steps in which a served model was given tokens of this request, with token_spans; position: only
        those of this position of it, 0 being its first token.
        """
        asked = query_pb2.ListStepsRequest(run=run, request=request or "")
        if position is not None:
            asked.position = position
        return [decode.step_summary(item) for item in self._connection.items(lambda: self._query.ListSteps(asked))]

    def records(
        self,
        run: str,
        *,
        step: int,
        rank: RankLike,
        name: str | None = None,
        token: int | None = None,
        with_stack: bool = False,
        epoch: int | None = None,
    ) -> Iterator[model.Record]:
        """Records of one step and rank in order of ordinal. name is a shell pattern over full names."""
        request = query_pb2.ReadRecordsRequest(
            run=run,
            step=_uint32("step", step),
            rank=decode.rank_message(model.Rank.parse(rank)),
            name_glob=name or "",
            with_stack=with_stack,
        )
        if token is not None:
            request.token = _uint32("token", token)
        if epoch is not None:
            request.epoch = _uint32("epoch", epoch)
        return (decode.record(item) for item in self._connection.items(lambda: self._query.ReadRecords(request)))

    def export(
        self,
        run: str,
        output: PathLike,
        *,
        steps: Iterable[int] = (),
        ranks: Iterable[RankLike] = (),
        extended: bool = False,
        strict_json: bool = False,
        tensors: bool = True,
        to: str = "dump",
        force: bool = False,
        progress: Progress = _nothing,
    ) -> model.ExportReport:
        """Writes output/step{N}/rank{R}, each whole or not at all. progress counts files.

        steps, ranks: empty means all. extended adds statistics mindstudio-probe does not have; strict_json writes
        null for NaN and infinities. An existing step{N}/rank{R} is refused without force.

        to: another format of the server's, such as "vis" (a graph database), "trend" (a trend database) and
        "model-explorer". Its files appear in output, which may also be the name of a database.
        """
        wanted_steps = [_uint32("step", step) for step in steps]
        wanted_ranks = [model.Rank.parse(rank) for rank in ranks]
        directories = [
            f"step{summary.step}/{summary.rank}"
            for summary in self.steps(run)
            if (not wanted_steps or summary.step in wanted_steps) and (not wanted_ranks or summary.rank in wanted_ranks)
        ]
        request = query_pb2.ExportRequest(
            run=run,
            steps=wanted_steps,
            ranks=[decode.rank_message(rank) for rank in wanted_ranks],
            extended=extended,
            strict_json=strict_json,
            omit_tensors=not tensors,
            output_directory=str(Path(output).absolute()),
            format=to,
        )
        folder, only = Path(output), ""
        if folder.name.endswith((vis_file.SUFFIX, trend_file.SUFFIX)) and to != "dump" and not folder.is_dir():
            folder, only = folder.parent, folder.name
        with ExportWriter(folder, force=force) as writer, _disk(output):
            if to == "dump" or only:
                writer.refuse_existing([only] if only else directories)
            for chunk in self._connection.items(lambda: self._query.Export(request)):
                writer.write((only or chunk.path) if chunk.path else "", chunk.content, chunk.last)
                if chunk.last:
                    progress(writer.files, chunk.files_total)
            writer.finish()
            return model.ExportReport(writer.directories, writer.files, writer.bytes)

    def import_dump(
        self, directory: PathLike, run: str, *, tensors: bool = True, progress: Progress = _nothing
    ) -> model.ImportReport:
        """Uploads a dump directory as a run. tensors=False: without their content. progress counts bytes."""
        if not run:
            raise InvalidArgument("the run has no name; give one")
        files = dump_files.find(Path(directory), tensors=tensors)
        upload = Upload(files, run, progress)
        try:
            response = self._connection.result(lambda: self._query.Import.future(iter(upload)))
        except MsprobeError:
            if upload.error is not None:  # the reason why the call was given up
                raise upload.error from None
            raise
        return model.ImportReport(response.steps, response.records, response.payloads, tuple(response.warnings))

    @overload
    def tensor(
        self,
        run: str,
        name: str,
        output: None = None,
        *,
        format: Literal["pt", "npy"] | None = None,
        step: int | None = None,
        rank: RankLike | None = None,
        slices: Iterable[slice | int] = (),
        progress: Progress = _nothing,
    ) -> bytes: ...

    @overload
    def tensor(
        self,
        run: str,
        name: str,
        output: PathLike,
        *,
        format: Literal["pt", "npy"] | None = None,
        step: int | None = None,
        rank: RankLike | None = None,
        slices: Iterable[slice | int] = (),
        progress: Progress = _nothing,
    ) -> Path: ...

    def tensor(
        self,
        run: str,
        name: str,
        output: PathLike | None = None,
        *,
        format: Literal["pt", "npy"] | None = None,
        step: int | None = None,
        rank: RankLike | None = None,
        slices: Iterable[slice | int] = (),
        progress: Progress = _nothing,
    ) -> bytes | Path:
        """One tensor's file: written whole to output, or returned. progress counts bytes.

        name is that of a file in dump_tensor_data without its suffix. step and rank are needed where several hold the
        name. format: by default that of output's suffix, without output npy. slices: a part of it, one of each
        dimension from the first on, as tensor[slices] would; the rest is neither sent nor read.
        """
        request = query_pb2.ReadTensorRequest(run=run, name=name, format=_tensor_format(format, output))
        request.slices.extend(tensor_questions.slices(slices))
        if step is not None:
            request.step = _uint32("step", step)
        if rank is not None:
            request.rank.CopyFrom(decode.rank_message(model.Rank.parse(rank)))
        if output is None:
            return b"".join(self._whole_file(request, progress))
        target = Path(output)
        with _disk(output), _whole(target) as scratch:
            for content in self._whole_file(request, progress):
                scratch.write(content)
        return target

    def compare(
        self,
        target: PathLike,
        golden: PathLike,
        options: CompareOptions = DEFAULTS,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        rows: analysis_client.Rows = "different",
        order: analysis_client.Order = "significance",
        limit: int = 0,
        note: Callable[[str], None] = _silent,
        progress: Progress = _nothing,
        **given: Any,
    ) -> Iterator[analysis_client.Found]:
        """Rows, roll-ups and steps without a partner, as the server finds them; the roll-up of level run is the last.

        target, golden: a run, or a dump directory or dump.json of this machine ("run:NAME" where both exist). given:
        fields of CompareOptions, each by its name; they win over options. steps: first and last of each range. limit:
        rows of each step and rank, 0 for all. note hears what the sides lack or are unlike in: steps that never ended,
        levels. progress counts pairs of steps. Leaving the iterator cancels the work on the server.
        """
        asked = options.but(given)
        with analysis_client.sources(self, (target, golden), local=self._connection.is_local) as sides:
            where = analysis_client.scope(steps, ranks, name)
            request = analysis_client.compare_request(sides, where, asked, rows=rows, order=order, limit=limit)
            for response in self._connection.items(lambda: self._analysis.Compare(request)):
                kind = response.WhichOneof("kind")
                if kind == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)
                elif kind == "note":
                    note(analysis_client.as_given(response.note, sides, (target, golden)))
                yield from analysis_client.found(response)

    def first_divergence(
        self,
        target: PathLike,
        golden: PathLike,
        options: CompareOptions = DEFAULTS,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        ignore_missing: bool = False,
        golden_step_offset: int = 0,
        note: Callable[[str], None] = _silent,
        progress: Progress = _nothing,
        **given: Any,
    ) -> Iterator[Divergence | UnpairedStep]:
        """Where each rank diverged in the first step in which any did, then the first of these again, with first set.

        The arguments are those of compare; of the options, matching is not for this question.
        ignore_missing passes over operations that one side lacks. With golden_step_offset, step N of the target is held
        against step N + golden_step_offset of the golden side.
        """
        asked = options.but(given)
        with analysis_client.sources(self, (target, golden), local=self._connection.is_local) as sides:
            request = analysis_pb2.FirstDivergenceRequest(
                target=sides[0],
                golden=sides[1],
                scope=analysis_client.scope(steps, ranks, name),
                ignore_missing=ignore_missing,
                golden_step_offset=golden_step_offset,
                **asked.fields_of(analysis_pb2.FirstDivergenceRequest),
            )
            for response in self._connection.items(lambda: self._analysis.FirstDivergence(request)):
                kind = response.WhichOneof("kind")
                if kind == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)
                elif kind == "unpaired":
                    yield analysis_client.unpaired(response.unpaired)
                elif kind == "note":
                    note(analysis_client.as_given(response.note, sides, (target, golden)))
                elif kind == "divergence":
                    yield analysis_client.divergence(response.divergence)

    def replicas(
        self,
        source: PathLike,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        progress: Progress = _nothing,
    ) -> Iterator[ReplicaDifference]:
        """Parameters and results of collectives that ranks must have alike, and have not: docs/replay.md."""
        with analysis_client.sources(self, (source,), local=self._connection.is_local) as sides:
            request = analysis_pb2.ReplicasRequest(source=sides[0], scope=analysis_client.scope(steps, ranks, name))
            for response in self._connection.items(lambda: self._analysis.Replicas(request)):
                kind = response.WhichOneof("kind")
                if kind == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)
                elif kind == "difference":
                    yield analysis_client.replica_difference(response.difference)

    def collectives(
        self,
        run: str,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        progress: Progress = _nothing,
    ) -> Iterator[CollectiveMismatch]:
        """Calls between ranks that do not fit together, the first one first: docs/communication.md."""
        request = communication_pb2.FindMismatchesRequest(run=run, scope=analysis_client.scope(steps, ranks, name))
        for response in self._connection.items(lambda: self._communications.FindMismatches(request)):
            kind = response.WhichOneof("kind")
            if kind == "progress":
                progress(response.progress.steps_done, response.progress.steps_total)
            elif kind == "mismatch":
                yield communication.mismatch(response.mismatch)

    def hang(self, run: str, *, least_seconds: int = 10) -> Hang:
        """Where each rank stands, or stood when it died, and for whom it waits: docs/communication.md.

        least_seconds: of a run that goes on, calls that have stood for less are left out.
        """
        request = communication_pb2.FindHangRequest(run=run, least_seconds=_uint32("least_seconds", least_seconds))
        return communication.hang(self._connection.result(lambda: self._communications.FindHang.future(request)))

    def signs(
        self,
        run: str,
        golden: str,
        *,
        name: str | None = None,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        least: float = 0.97,
        drop: float = 0.03,
        note: Callable[[str], None] = lambda text: None,
        progress: Progress = _nothing,
    ) -> Iterator[SignSimilarity]:
        """How alike the signs of gradients are (task grad_probe), by step, rank and parameter: docs/monitoring.md.

        name: a shell pattern over names of parameters. The last of each step and rank is "summary", of all that match.
        note: hears what cannot be compared, and why.
        """
        request = gradients_pb2.CompareSignsRequest(
            run=run,
            golden=golden,
            scope=analysis_client.scope(steps, ranks, name),
            least=least,
            drop=drop,
        )
        for response in self._connection.items(lambda: self._gradients.CompareSigns(request)):
            kind = response.WhichOneof("kind")
            if kind == "progress":
                progress(response.progress.steps_done, response.progress.steps_total)
            elif kind == "unpaired":
                note(str(analysis_client.unpaired(response.unpaired)))
            elif kind == "note":
                note(response.note)
            elif kind == "similarity":
                yield analysis_client.sign_similarity(response.similarity)

    def environment(self, run: str) -> Iterator[ProcessEnvironment]:
        """What a run's processes ran in, one a rank in order of rank, as they said when they began."""
        request = environment_pb2.ReadEnvironmentRequest(run=run)
        yield from map(
            run_environment.process, self._connection.items(lambda: self._environments.ReadEnvironment(request))
        )

    def overflow(
        self,
        source: PathLike,
        *,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        limit: int = 0,
        follow: bool = False,
        with_entries: bool = False,
        note: Callable[[str], None] = _silent,
        progress: Progress = _nothing,
    ) -> Iterator[Overflow]:
        """Where NaN and infinity come from, then the first of these again, with first set. Nothing: all is finite.

        source: a run, or a dump directory or dump.json of this machine. limit: of each step and rank, 0 for all.
        follow: of a run, go on with steps as they complete until none of its sessions is open; nothing is repeated.
        with_entries: the first of each step and rank has its entry_json and its modules. note: as in compare.
        """
        with analysis_client.sources(self, (source,), local=self._connection.is_local) as (side,):
            request = analysis_pb2.OverflowRequest(
                source=side,
                scope=analysis_client.scope(steps, ranks, name),
                limit=limit,
                follow=follow,
                with_entries=with_entries,
            )
            for response in self._connection.items(lambda: self._analysis.Overflow(request)):
                kind = response.WhichOneof("kind")
                if kind == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)
                elif kind == "note":
                    note(analysis_client.as_given(response.note, (side,), (source,)))
                elif kind == "overflow":
                    yield analysis_client.overflow(response.overflow)

    def trend(
        self,
        source: PathLike,
        name: str,
        *,
        golden: PathLike | None = None,
        statistics: Iterable[Statistic] = ("norm",),
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        limit: int = 0,
        progress: Progress = _nothing,
    ) -> Iterator[TrendSeries]:
        """Statistics over steps and tokens of the tensors whose full names a shell pattern takes, one series a tensor,
        rank and statistic; with golden, each point has that side's value beside it."""
        given = (source,) if golden is None else (source, golden)
        with analysis_client.sources(self, given, local=self._connection.is_local) as sides:
            request = analysis_pb2.TrendRequest(
                source=sides[0],
                golden=None if golden is None else sides[1],
                scope=analysis_client.scope(steps, ranks, name),
                statistics=map(tensor_questions.statistic_number, statistics),
                limit=limit,
            )
            join = tensor_questions.TrendJoin(paired=golden is not None)
            for response in self._connection.items(lambda: self._analysis.Trend(request)):
                if response.WhichOneof("kind") == "series":
                    yield from join.add(response.series)
                elif response.WhichOneof("kind") == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)
            yield from join.finish()

    def find(
        self,
        source: PathLike,
        *,
        name: str | None = None,
        regex: str | None = None,
        dtypes: Iterable[str] = (),
        shape: str | None = None,
        where: Iterable[Predicate] = (),
        module: str | None = None,
        stack: str | None = None,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        limit: int = 0,
        progress: Progress = _nothing,
    ) -> Iterator[FoundTensor]:
        """Tensors for which all that is given holds, in order of step, rank and execution.

        name: shell pattern. regex: searched in full names. shape: "[2, *, 16]". where: ("max", ">", 1e4), ... module:
        this one or below. stack: a text in a line of the stack. limit: tensors, 0 for all.
        """
        with analysis_client.sources(self, (source,), local=self._connection.is_local) as (side,):
            request = analysis_pb2.FindRequest(
                source=side,
                scope=analysis_client.scope(steps, ranks, name),
                name_regex=regex or "",
                dtypes=dtypes,
                shape=shape or "",
                predicates=tensor_questions.predicates(where),
                module=module or "",
                stack_text=stack or "",
                limit=limit,
            )
            for response in self._connection.items(lambda: self._analysis.Find(request)):
                if response.WhichOneof("kind") == "found":
                    yield from map(tensor_questions.found_tensor, response.found.tensors)
                elif response.WhichOneof("kind") == "progress":
                    progress(response.progress.steps_done, response.progress.steps_total)

    def preview(
        self, source: PathLike, name: str, *, step: int, rank: RankLike, bins: int = 20, top: int = 5
    ) -> TensorPreview:
        """What a captured tensor holds, without fetching it. name: of its row, as a file of dump_tensor_data without
        suffix. top: elements at each end."""
        with analysis_client.sources(self, (source,), local=self._connection.is_local) as (side,):
            request = tensor_questions.preview_request(
                side, name, _uint32("step", step), model.Rank.parse(rank), _uint32("bins", bins), _uint32("top", top)
            )
            return tensor_questions.preview(
                self._connection.result(lambda: self._analysis.PreviewTensor.future(request))
            )

    def measure(self, outputs: Iterator[check_pb2.MeasureRequest]) -> Iterator[check_pb2.MeasureResponse]:
        """How far outputs are from their golden values, and a policy's verdict on each, as they come."""
        return self._connection.items(lambda: self._analysis.Measure(outputs))

    def judge(self, request: check_pb2.JudgeRequest) -> check_pb2.JudgeResponse:
        """Another policy's verdicts on what was measured."""
        return self._connection.result(lambda: self._analysis.Judge.future(request))

    def compare_tables(
        self,
        target: PathLike,
        golden: PathLike,
        output: PathLike,
        options: CompareOptions = DEFAULTS,
        *,
        file_name: Callable[[analysis_pb2.TableChunk], str],
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        name: str | None = None,
        training: analysis_client.TrainingBackend | None = None,
        form: TableForm | None = None,
        **given: Any,
    ) -> Iterator[TableReport]:
        """mindstudio-probe's result tables, one csv a step and rank, written whole into the directory output.

        Of the options, matching and mapping are for this. training: the target is a training step of this backend,
        golden an inference step of the same weights. form: makes another file of each csv.
        """
        asked = options.but(given)
        with analysis_client.sources(self, (target, golden), local=self._connection.is_local) as sides, _disk(output):
            request = analysis_pb2.CompareTableRequest(
                target=sides[0],
                golden=sides[1],
                scope=analysis_client.scope(steps, ranks, name),
                training_backend=analysis_pb2.CompareTableRequest.TrainingBackend.Value(
                    f"TRAINING_BACKEND_{(training or 'none').upper()}"
                ),
                **asked.fields_of(analysis_pb2.CompareTableRequest),
            )
            files = analysis_client.TableFiles(Path(output), file_name, form)
            yield from files.write(self._connection.items(lambda: self._analysis.CompareTable(request)))

    def graph(
        self,
        target: PathLike,
        output: PathLike,
        golden: PathLike | None = None,
        *,
        matching: Matching = "exact",
        overflow: bool = False,
        layers: analysis_pb2.NameMapping | None = None,
        layouts: Sequence[analysis_pb2.ParallelLayout] = (),
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        progress: Progress = _nothing,
    ) -> GraphReport:
        """The modules and operations of target, beside those of golden, as a graph database for TensorBoard.

        output: the file, which appears whole; its name ends with .vis.db. overflow: mark operations by how badly NaN
        and infinity hit them. layers: name_mapping.mapping of a layer mapping file. layouts: merge the
        ranks of each side into the whole model; one for a side.
        """
        with self._graph_request(target, golden, matching, layers, steps, ranks) as request, _disk(output):
            request.overflow = overflow
            if layouts:
                request.target_layout.CopyFrom(layouts[0])
            if len(layouts) > 1:
                request.golden_layout.CopyFrom(layouts[1])
            file = analysis_client.DatabaseFile(Path(output), progress)
            file.write(self._connection.items(lambda: self._analysis.Graph(request)))
        shown, of = vis_file.steps_and_ranks(file.target)
        return GraphReport(str(file.target), file.bytes, shown, of, tuple(file.unpaired), tuple(file.warnings))

    def model_explorer(
        self,
        target: PathLike,
        output: PathLike,
        golden: PathLike | None = None,
        *,
        matching: Matching = "exact",
        overflow: bool = False,
        layers: analysis_pb2.NameMapping | None = None,
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        progress: Progress = _nothing,
    ) -> ExplorerReport:
        """The same as files of Model Explorer in the directory `output`: graphs, data of nodes, which nodes match."""
        with self._graph_request(target, golden, matching, layers, steps, ranks) as request, _disk(output):
            request.overflow = overflow
            request.format = analysis_pb2.GRAPH_FORMAT_MODEL_EXPLORER
            files = analysis_client.ExplorerFiles(Path(output), progress)
            return files.write(self._connection.items(lambda: self._analysis.Graph(request)))

    def merged_dump(
        self,
        target: PathLike,
        output: PathLike,
        layout: analysis_pb2.ParallelLayout,
        *,
        steps: Iterable[tuple[int, int]] = (),
        progress: Progress = _nothing,
    ) -> DumpReport:
        """The ranks of target, merged, as a dump of the whole model: step{N}/rank{R}/dump.json and its kin in `output`.

        Each of these directories appears whole; earlier ones of these names are replaced. Contents of tensors are not
        merged.
        """
        with self._graph_request(target, None, "exact", None, steps, ()) as request, _disk(output):
            request.target_layout.CopyFrom(layout)
            request.format = analysis_pb2.GRAPH_FORMAT_DUMP
            with ExportWriter(Path(output), force=True) as writer:
                parts = self._connection.items(lambda: self._analysis.Graph(request))
                return analysis_client.merged_dump(parts, writer, progress)

    @contextmanager
    def _graph_request(
        self,
        target: PathLike,
        golden: PathLike | None,
        matching: Matching,
        layers: analysis_pb2.NameMapping | None,
        steps: Iterable[tuple[int, int]],
        ranks: Iterable[RankLike],
    ) -> Iterator[analysis_pb2.GraphRequest]:
        given = (target,) if golden is None else (target, golden)
        with analysis_client.sources(self, given, local=self._connection.is_local) as sides:
            yield analysis_pb2.GraphRequest(
                target=sides[0],
                golden=None if golden is None else sides[1],
                scope=analysis_client.scope(steps, ranks, None),
                **CompareOptions(matching=matching, mapping=layers).fields_of(analysis_pb2.GraphRequest),
            )

    def trend_database(
        self,
        source: PathLike,
        output: PathLike,
        *,
        monitor: bool = False,
        micro_steps: bool = False,
        renames: Iterable[tuple[str, str]] = (),
        steps: Iterable[tuple[int, int]] = (),
        ranks: Iterable[RankLike] = (),
        progress: Progress = _nothing,
    ) -> TrendReport:
        """Statistics by step, rank and tensor, as a trend database for TensorBoard.

        output: the file, which appears whole; its name ends with .trend.db. monitor: source is a directory with the CSV
        files of a training monitor. micro_steps: the axis counts how often the model ran. renames: texts in names, and
        what stands in their place.
        """
        if monitor and not self._connection.is_local:
            raise InvalidArgument("files of a training monitor are read by a server of your own: leave out --server")
        kinds = analysis_pb2.TrendDatabaseRequest.Kind
        with analysis_client.sources(self, (source,), local=self._connection.is_local) as sides, _disk(output):
            request = analysis_pb2.TrendDatabaseRequest(
                source=sides[0],
                kind=kinds.Value("KIND_MONITOR" if monitor else "KIND_RECORDS"),
                scope=analysis_client.scope(steps, ranks, None),
                micro_steps=micro_steps,
                renames=[analysis_pb2.NameMapping.Name(target=text, golden=new) for text, new in renames],
            )
            file = analysis_client.DatabaseFile(Path(output), progress)
            file.write(self._connection.items(lambda: self._analysis.TrendDatabase(request)))
        return TrendReport(str(file.target), file.bytes, file.steps, tuple(file.warnings))

    def report(
        self, target: PathLike, output: PathLike, golden: PathLike | None = None, *, progress: Progress = _nothing
    ) -> int:
        """target, beside golden where there is one, as one HTML file that needs no server. Gives its size in bytes.

        target and golden: runs, or dump directories of this machine. output: the file, which appears whole.
        """
        given = (target,) if golden is None else (target, golden)
        titles = [os.fspath(side).removeprefix(analysis_client.RUN_PREFIX) for side in given]
        size = 0
        # The report asks about runs alone, so directories become some.
        with analysis_client.sources(self, given, local=False) as sides, whole_file(Path(output)) as scratch:
            request = report_pb2.ReportRequest(
                run=sides[0].run,
                golden=sides[-1].run if golden is not None else "",
                run_title=titles[0],
                golden_title=titles[-1] if golden is not None else "",
            )
            with open(scratch, "xb", opener=closed_to_writers) as file:
                for part in self._connection.items(lambda: self._report.MakeReport(request)):
                    if part.WhichOneof("kind") == "progress":
                        progress(part.progress.steps_done, part.progress.steps_total)
                    else:
                        size += file.write(part.content)
            if size == 0:
                raise DataError("the server's answer ended before the report")
        return size

    def follow_graph(
        self,
        run: str,
        output: PathLike,
        *,
        golden: PathLike | None = None,
        ranks: Iterable[model.Rank] = (),
        tell: Callable[[str], None] = _silent,
        **options: Any,
    ) -> Iterator[GraphReport]:
        """graph of a run that goes on: steps are appended as they complete, until the run has ended.

        output may be open in TensorBoard. options: those of graph. Gives a report for each change of the file.
        A run that has not begun and a server that is away are waited for; tell gets one line about each wait. A client
        with a server of its own (data_dir) waits for neither: NotFound, ServerUnavailable.
        """
        from msprobe_client import followed_graph

        chosen = set(ranks)

        def asked(call: Callable[[], T]) -> T:
            if self._connection.is_local:
                return call()
            return patiently(call, lambda error: tell(f"{error}; trying again"))

        def runs() -> list[model.RunSummary]:
            return self._runs(whole=True)

        def steps() -> list[model.StepSummary]:
            return [each for each in self.steps(run) if not chosen or each.rank in chosen]

        def write(numbers: list[int], of: list[model.Rank], file: Path) -> GraphReport:
            only = [(number, number) for number in numbers]
            return asked(lambda: self.graph(f"run:{run}", file, golden, **options, steps=only, ranks=of))

        if self._connection.is_local:
            self.steps(run)  # nobody else can begin it: NotFound
        if golden is not None and not analysis_client.is_path(golden):
            beside = os.fspath(golden).removeprefix(analysis_client.RUN_PREFIX)
            if beside != run:
                asked(lambda: self.steps(beside))  # NotFound now, not when the first step has come
        awaited = followed_graph.AwaitedRun(run, lambda: asked(runs), tell)
        return followed_graph.follow(awaited.look, lambda: asked(steps), write, Path(output))

    def delete(self, run: str) -> model.DeleteReport:
        response = self._connection.result(lambda: self._query.DeleteRun.future(query_pb2.DeleteRunRequest(run=run)))
        return model.DeleteReport(response.row_bytes, response.payload_bytes)

    def _whole_file(self, request: query_pb2.ReadTensorRequest, progress: Progress) -> Iterator[bytes]:
        done = 0
        ended = False
        for chunk in self._connection.items(lambda: self._query.ReadTensor(request)):
            if ended:
                raise DataError(f"the server sent more than one file for {request.name}")
            done += len(chunk.content)
            ended = chunk.last
            progress(done, 0)
            yield chunk.content
        if not ended:
            raise DataError(f"the server's answer ended in the middle of {request.name}")


def _tensor_format(format: str | None, output: PathLike | None) -> query_pb2.ReadTensorRequest.Format.ValueType:
    formats = {"pt": query_pb2.ReadTensorRequest.PT, "npy": query_pb2.ReadTensorRequest.NPY}
    chosen = format or (Path(output).suffix.removeprefix(".") if output is not None else "npy")
    if chosen not in formats:
        where = f"format {format!r}" if format else f"output {output}"
        raise InvalidArgument(f"{where}: a tensor is written as .pt or .npy")
    return formats[chosen]


def _whoami() -> str:
    """user@host, as far as this machine knows."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (KeyError, OSError):  # a container's user may have no name
        return f"{os.getuid()}@{socket.gethostname()}"


def _uint32(name: str, value: int) -> int:
    if not 0 <= value < 2**32:
        raise InvalidArgument(f"{name} {value} is not allowed: it must be 0 to {2**32 - 1}")
    return value


@contextmanager
def _disk(output: PathLike) -> Iterator[None]:
    """Failures of the local disk as one line."""
    try:
        yield
    except OSError as error:
        raise unwritable(error, output) from None


@contextmanager
def _whole(target: Path) -> Iterator[BinaryIO]:
    """A temporary sibling of target that takes its name when the context is left without an exception."""
    scratch = target.parent / f".msprobe-{secrets.token_hex(8)}"
    try:
        with scratch.open("xb") as file:
            yield file
        scratch.replace(target)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
