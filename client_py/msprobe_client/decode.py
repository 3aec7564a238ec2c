"""Messages of the wire to values of the model."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any, Literal, TypeVar

from msprobe_client import model
from msprobe_client.errors import DataError
from msprobe_client.proto import control_pb2, ingest_pb2, query_pb2, record_pb2

_Rounded = TypeVar("_Rounded")
_KINDS: dict[int, Literal["api", "module", "parameters_grad", "debug"]] = {
    record_pb2.RECORD_API: "api",
    record_pb2.RECORD_MODULE: "module",
    record_pb2.RECORD_PARAMETERS_GRAD: "parameters_grad",
    record_pb2.RECORD_DEBUG: "debug",
}
_STATES: dict[int, Literal["open", "complete", "incomplete"]] = {
    query_pb2.StepSummary.OPEN: "open",
    query_pb2.StepSummary.COMPLETE: "complete",
    query_pb2.StepSummary.INCOMPLETE: "incomplete",
}


def time_of(unix_us: int) -> datetime:
    return datetime.fromtimestamp(unix_us / 1e6, tz=timezone.utc)


def rank(message: record_pb2.Rank) -> model.Rank:
    return model.Rank("rank" if message.kind == record_pb2.Rank.RANK else "proc", message.number)


def rank_message(value: model.Rank) -> record_pb2.Rank:
    kind = record_pb2.Rank.RANK if value.kind == "rank" else record_pb2.Rank.PROCESS
    return record_pb2.Rank(kind=kind, number=value.number)


_ANSWERS: dict[int, Literal["obeyed", "waits", "silent", "unable"]] = {
    control_pb2.ControlRunResponse.Process.OBEYED: "obeyed",
    control_pb2.ControlRunResponse.Process.WAITS: "waits",
    control_pb2.ControlRunResponse.Process.SILENT: "silent",
    control_pb2.ControlRunResponse.Process.UNABLE: "unable",
}


def settings(message: ingest_pb2.CaptureSettings) -> model.CaptureSettings:
    return model.CaptureSettings(
        task=message.task,
        level=message.level,
        summary_mode=message.summary_mode,
        framework=message.framework,
        dump_path=message.dump_path,
        stack_and_construct=message.stack_and_construct,
        config_json=message.config_json,
    )


def run_summary(message: query_pb2.RunSummary) -> model.RunSummary:
    return model.RunSummary(
        run=message.run,
        created=time_of(message.created_unix_us),
        steps=message.steps,
        ranks=tuple(rank(item) for item in message.ranks),
        records=message.records,
        tensors=message.tensors,
        nan_tensors=message.nan_tensors,
        inf_tensors=message.inf_tensors,
        row_bytes=message.row_bytes,
        payload_bytes=message.payload_bytes,
        open_sessions=message.open_sessions,
        settings=settings(message.settings),
        pinned=message.pinned,
        owner=message.owner,
    )


def control_answer(message: control_pb2.ControlRunResponse) -> model.ControlAnswer:
    return model.ControlAnswer(
        processes=tuple(_controlled(item) for item in message.processes),
        notes=tuple(model.ControlNote(time_of(note.at_unix_us), note.asked_by, note.asked) for note in message.notes),
    )


def _controlled(message: control_pb2.ControlRunResponse.Process) -> model.ControlledProcess:
    report = message.report
    return model.ControlledProcess(
        rank=rank(message.rank),
        host=message.host,
        process_id=message.process_id,
        answer=_ANSWERS.get(message.answer, "silent"),
        said=report.said,
        refused=report.refused,
        enabled=report.enabled,
        capturing=report.capturing,
        task=report.task,
        level=report.level,
        summary_mode=report.summary_mode,
        list=report.list,
        request=report.request,
        step=report.step,
        steps_left=report.steps_left if report.steps_left >= 0 else None,
        queue_bytes=report.queue_bytes,
        records_emitted=report.records_emitted,
        records_dropped=report.records_dropped,
    )


def gap(message: ingest_pb2.Marker.Gap) -> model.Gap:
    reasons = ingest_pb2.Marker.Gap.Reason
    known = message.reason in reasons.values()
    return model.Gap(
        step=message.step,
        fragments=message.fragments,
        payloads=message.payloads,
        reason=reasons.Name(message.reason).lower() if known else f"reason_{message.reason}",
    )


def step_summary(message: query_pb2.StepSummary) -> model.StepSummary:
    return model.StepSummary(
        step=message.step,
        rank=rank(message.rank),
        state=_STATES.get(message.state, "incomplete"),
        records=message.records,
        tensors=message.tensors,
        nan_tensors=message.nan_tensors,
        inf_tensors=message.inf_tensors,
        tokens=message.tokens,
        row_bytes=message.row_bytes,
        payload_bytes=message.payload_bytes,
        gaps=tuple(gap(item) for item in message.gaps),
        epoch=message.epoch,
        earlier_epochs=tuple(message.earlier_epochs),
        faults=message.faults,
        token_spans=tuple(
            model.TokenSpan(
                span.token, span.request, span.first_position, span.last_position, span.first_row, span.counted
            )
            for span in message.token_spans
        ),
    )


def server_info(message: control_pb2.ServerInfo) -> model.ServerInfo:
    durabilities = ingest_pb2.Durability
    known = message.durability in durabilities.values()
    name = durabilities.Name(message.durability) if known else str(message.durability)
    return model.ServerInfo(
        server_id=message.server_id,
        version=message.version,
        durability=name.removeprefix("DURABILITY_").lower(),
        embedded=message.embedded,
        data_dir=message.data_dir,
        started=time_of(message.started_unix_us),
        open_sessions=message.open_sessions,
        storage_format=message.storage_format,
        shards=tuple(model.Shard(shard.address, shard.here, shard.reachable, shard.why) for shard in message.shards),
        now=time_of(message.now_unix_us) if message.now_unix_us else None,
        disk_free_bytes=message.disk_free_bytes or None,
        refusing=message.refusing,
    )


def missing_shard(message: query_pb2.MissingShard) -> model.MissingShard:
    return model.MissingShard(message.shard, message.why, message.run, tuple(map(rank, message.ranks)))


def record(message: record_pb2.Record) -> model.Record:
    flags = message.flags
    fields = value(message.fields)
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise DataError(f"the server sent the record {message.full_name} with fields that are not a dict")
    return model.Record(
        full_name=message.full_name,
        step=message.step,
        rank=rank(message.rank),
        token=message.token,
        ordinal=message.ordinal,
        kind=_KINDS.get(message.kind, "unspecified"),
        direction="backward" if message.direction == record_pb2.DIRECTION_BACKWARD else "forward",
        complete=bool(flags & record_pb2.FRAGMENT_EXIT),
        raised=bool(flags & record_pb2.FRAGMENT_RAISED),
        fault=bool(flags & record_pb2.FRAGMENT_FAULT),
        recompute=bool(flags & record_pb2.FRAGMENT_RECOMPUTE),
        touched=bool(flags & record_pb2.FRAGMENT_TOUCHED),
        fields=fields,
        parent=message.parent or None,
        stack=tuple(model.Frame(item.path, item.line, item.function, item.source) for item in message.stack),
    )


def value(message: record_pb2.Value) -> model.FieldValue:
    kind = message.WhichOneof("kind")
    if kind == "tensor":
        return tensor(message.tensor)
    if kind == "dict":
        return {entry.key: value(entry.value) for entry in message.dict.entries}
    if kind == "list":
        return [value(item) for item in message.list.items]
    if kind == "json":
        return json_text(message.json)
    if kind is None or kind == "none":
        return None
    return getattr(message, kind)


def json_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text  # shown unchanged, so that the record is not lost


def edge(message: record_pb2.Edge) -> model.Edge | None:
    if not 0 < message.kind < len(model.EDGE_KINDS):
        return None
    return model.Edge(model.EDGE_KINDS[message.kind], message.record, message.tensor)


def tensor(message: record_pb2.TensorLeaf) -> model.TensorStats:
    def optional(name: str) -> Any:
        return getattr(message, name) if message.HasField(name) else None  # type: ignore[arg-type]

    attributes = json_text(message.attributes_json) if message.attributes_json else {}
    return model.TensorStats(
        type=message.type,
        dtype=message.dtype,
        shape=tuple(message.shape),
        requires_grad=message.requires_grad,
        device=message.device,
        max=exact(message.max, None),
        min=exact(message.min, None),
        mean=optional("mean"),
        norm=optional("norm"),
        variance=optional("variance"),
        nan_count=message.nan_count,
        positive_inf_count=message.positive_inf_count,
        negative_inf_count=message.negative_inf_count,
        zero_count=message.zero_count,
        finite_max=optional("finite_max"),
        finite_min=optional("finite_min"),
        finite_mean=optional("finite_mean"),
        finite_norm=optional("finite_norm"),
        crc32=optional("crc32"),
        xor64=optional("xor64"),
        payload=model.PayloadRef(message.payload.hash.hex(), message.payload.size) if message.payload.hash else None,
        attributes=attributes if isinstance(attributes, dict) else {"attributes": attributes},
        edge=edge(message.edge),
    )


def exact(message: record_pb2.TensorLeaf.Number, rounded: _Rounded) -> model.Number | _Rounded:
    """The number; `rounded` where the message holds none, as that of an older server, or of what is no integer."""
    kind = message.WhichOneof("kind")
    return rounded if kind is None else getattr(message, kind)
