"""Questions about single tensors over gRPC: requests and answers in terms of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msprobe_client import decode, model
from msprobe_client.errors import InvalidArgument
from msprobe_client.proto import analysis_pb2, query_pb2
from msprobe_client.tensors import (
    COMPARISONS,
    STATISTICS,
    Comparison,
    Element,
    FoundTensor,
    Predicate,
    Statistic,
    TensorPreview,
    TrendPoint,
    TrendSeries,
)


def statistic_number(name: str) -> analysis_pb2.Statistic.ValueType:
    if name not in STATISTICS:
        raise InvalidArgument(f"statistic {name!r} is not known; known are {', '.join(STATISTICS)}")
    return analysis_pb2.Statistic.ValueType(STATISTICS.index(name) + 1)


def predicate(statistic: Statistic, comparison: Comparison, value: float) -> analysis_pb2.StatisticPredicate:
    if comparison not in COMPARISONS:
        raise InvalidArgument(f"comparison {comparison!r} is not known; known are {' '.join(COMPARISONS)}")
    return analysis_pb2.StatisticPredicate(
        statistic=statistic_number(statistic),
        comparison=analysis_pb2.StatisticPredicate.Comparison.ValueType(COMPARISONS.index(comparison) + 1),
        value=value,
    )


def predicates(given: Iterable[Predicate]) -> Iterator[analysis_pb2.StatisticPredicate]:
    return (predicate(*each) for each in given)


def slices(given: Iterable[slice | int]) -> Iterator[query_pb2.ReadTensorRequest.Slice]:
    for each in given:
        if isinstance(each, int):
            yield query_pb2.ReadTensorRequest.Slice(start=each, index=True)
        elif each.step is not None and each.step <= 0:
            raise InvalidArgument(f"slice step {each.step} is not allowed: it must be 1 or more")
        else:
            yield query_pb2.ReadTensorRequest.Slice(start=each.start, stop=each.stop, step=each.step or 0)


class TrendJoin:
    """Joins the messages of a trend into series: one is whole when the next one begins."""

    def __init__(self, *, paired: bool) -> None:
        self._paired = paired
        self._head: analysis_pb2.TrendSeries | None = None
        self._points: list[TrendPoint] = []

    def add(self, message: analysis_pb2.TrendSeries) -> Iterator[TrendSeries]:
        head = self._head
        if head is None or (head.name, head.rank, head.statistic) != (message.name, message.rank, message.statistic):
            yield from self.finish()
            self._head = message
        value: list[float | None] = list(message.value)
        golden: list[float | None] = list(message.golden) if self._paired else [None] * len(value)
        for numbers, without in ((value, message.without_value), (golden, message.without_golden)):
            for index in without:
                numbers[index] = None
        self._points += map(TrendPoint, message.step, message.token, value, golden)

    def finish(self) -> Iterator[TrendSeries]:
        if self._head is not None:
            head = self._head
            yield TrendSeries(
                name=head.name,
                rank=decode.rank(head.rank),
                statistic=STATISTICS[head.statistic - 1] if head.statistic else None,
                dtype=head.dtype,
                shape=head.shape,
                points=tuple(self._points),
            )
        self._head = None
        self._points = []


def found_tensor(message: analysis_pb2.FoundTensor) -> FoundTensor:
    def number(field: str) -> float | None:
        return getattr(message, field) if message.HasField(field) else None  # type: ignore[arg-type]

    def count(field: str) -> int | None:
        return getattr(message, field) if message.HasField(field) else None  # type: ignore[arg-type]

    return FoundTensor(
        name=message.name,
        op=message.op,
        module=message.module,
        parent=message.parent,
        step=message.step,
        rank=decode.rank(message.rank),
        token=message.token,
        dtype=message.dtype,
        shape=message.shape,
        max=decode.exact(message.exact_max, number("max")),
        min=decode.exact(message.exact_min, number("min")),
        mean=number("mean"),
        norm=number("norm"),
        variance=number("variance"),
        nan_count=count("nan_count"),
        inf_count=count("inf_count"),
        zero_count=count("zero_count"),
        checksum=message.checksum,
        has_content=message.has_content,
    )


def preview(message: analysis_pb2.TensorPreview) -> TensorPreview:
    def number(field: str) -> float | None:
        return getattr(message, field) if message.HasField(field) else None  # type: ignore[arg-type]

    def elements(given: Iterable[analysis_pb2.TensorElement]) -> tuple[Element, ...]:
        return tuple(Element(tuple(each.index), decode.exact(each.exact, each.value)) for each in given)

    return TensorPreview(
        dtype=message.dtype,
        shape=tuple(message.shape),
        elements=message.elements,
        finite=message.finite,
        nan_count=message.nan_count,
        positive_inf_count=message.positive_inf_count,
        negative_inf_count=message.negative_inf_count,
        zero_count=message.zero_count,
        max=decode.exact(message.exact_max, number("max")),
        min=decode.exact(message.exact_min, number("min")),
        mean=number("mean"),
        norm=number("norm"),
        std=number("std"),
        bin_edges=tuple(message.bin_edges),
        bin_counts=tuple(message.bin_counts),
        largest=elements(message.largest),
        smallest=elements(message.smallest),
        first_non_finite=elements(message.first_non_finite),
    )


def preview_request(
    side: analysis_pb2.Source, name: str, step: int, rank: model.Rank, bins: int, top: int
) -> analysis_pb2.PreviewTensorRequest:
    return analysis_pb2.PreviewTensorRequest(
        source=side, name=name, step=step, rank=decode.rank_message(rank), bins=bins, top=top
    )
