"""Which of mindstudio-probe's standards judges an operator. The server has the lists; see docs/checking.md."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from msprobe_client.proto import check_pb2, record_pb2

if TYPE_CHECKING:
    from msprobe_client.client import Client

Level = Literal["L0", "L1", "L2"]
_LEVELS: dict[str, Level] = {"L0": "L0", "L1": "L1", "L2": "L2"}


@dataclass(frozen=True, slots=True)
class Standard:
    name: str  # "binary", "absolute_threshold", "ulp", "double_thousandth", "accumulative", "benchmark"; "": none
    level: Level  # how strict the benchmark standard is with the operator


class Standards:
    """Asks the server once for each operator and dtype."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[tuple[str, str], Standard] = {}

    def of(self, operation: str, dtype: str) -> Standard:
        """dtype: "float32"; one that the wire does not know counts as an integer."""
        self.ask([(operation, dtype)])
        return self._known[operation, dtype]

    def ask(self, outputs: Iterable[tuple[str, str]]) -> None:
        """All of them at once, for `of` to know."""
        wanted = [each for each in dict.fromkeys(outputs) if each not in self._known]
        if not wanted:
            return
        request = check_pb2.JudgeRequest()
        for operation, dtype in wanted:
            output = request.outputs.add(operation=operation.rsplit(".", 1)[-1])
            output.accuracy.dtype = _dtype(dtype)
        for key, standard in zip(wanted, self._client.judge(request).standards, strict=True):
            self._known[key] = Standard(standard.name, _LEVELS[standard.level])


def _dtype(name: str) -> record_pb2.DType.ValueType:
    word = f"DTYPE_{name.upper()}"
    return record_pb2.DType.Value(word) if word in record_pb2.DType.keys() else record_pb2.DTYPE_INT64  # noqa: SIM118
