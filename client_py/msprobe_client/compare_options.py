"""How two sides are compared: one value for the command line, the API and the wire."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msprobe_client.errors import InvalidArgument

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from msprobe_client.name_mapping import ToleranceRule
    from msprobe_client.proto import analysis_pb2

Matching: TypeAlias = Literal["exact", "fuzzy"]
Mode: TypeAlias = Literal["best", "statistics", "checksum", "content"]


@dataclass(frozen=True, slots=True)
class CompareOptions:
    matching: Matching = "exact"  # fuzzy: by name without the call's number
    mode: Mode = "best"
    rtol: float | None = None  # of every floating dtype; None: by dtype
    atol: float | None = None
    tolerances: Mapping[str, tuple[float | None, float | None]] | None = None  # relative and absolute by dtype
    policy: Iterable[ToleranceRule] = ()  # name_mapping.tolerance_policy of a file
    mapping: analysis_pb2.NameMapping | None = None  # name_mapping.mapping of the mapping files
    across_layouts: bool = False  # the sides have different numbers of ranks; shards are joined

    def but(self, given: Mapping[str, Any]) -> CompareOptions:
        """These options, with the fields that are given by name."""
        return replace(self, **given)

    def message(self) -> analysis_pb2.CompareOptions:
        from msprobe_client.proto import analysis_pb2

        return analysis_pb2.CompareOptions(
            matching=analysis_pb2.Matching.Value(f"MATCHING_{self.matching.upper()}"),
            mode=analysis_pb2.CompareMode.Value(f"COMPARE_{self.mode.upper()}"),
            tolerances=self._tolerance_settings(),
            mapping=self.mapping,
            across_layouts=self.across_layouts,
        )

    def fields_of(self, request: type[Message]) -> dict[str, Any]:
        """The options as fields of a request, which has them under their own names; InvalidArgument: it lacks one."""
        fields = {field.name: value for field, value in self.message().ListFields()}
        if unknown := fields.keys() - request.DESCRIPTOR.fields_by_name.keys():
            raise InvalidArgument(f"{request.DESCRIPTOR.name} takes no {', '.join(sorted(unknown))}")
        return fields

    def _tolerance_settings(self) -> Iterator[analysis_pb2.ToleranceSetting]:
        from msprobe_client.proto import analysis_pb2

        for dtype, (relative, absolute) in {"": (self.rtol, self.atol), **(self.tolerances or {})}.items():
            if relative is not None or absolute is not None:
                yield analysis_pb2.ToleranceSetting(dtype=dtype, relative=relative, absolute=absolute)
        yield from (rule.message() for rule in self.policy)


DEFAULTS = CompareOptions()
