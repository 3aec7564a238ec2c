"""``from msprobe.core import SingleComparator``, as in mindstudio-probe. Needs msprobe-client with its extra xlsx."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from msprobe._common.errors import MsprobeError

if TYPE_CHECKING:
    from msprobe_client.compat.single_arrays import CompareResult

T = TypeVar("T")


class SingleComparator:
    """Compares what two programs saved by SingleSave. Raises MsprobeError with one line where something is wrong."""

    @classmethod
    def compare(
        cls, dir1: str, dir2: str, output_path: str = "./msprobe_compare_output", num_processes: int = 8
    ) -> None:
        """Writes output_path/{name}.xlsx of every name that either dump_path has. num_processes: at the same time."""
        _with_client(lambda comparison, _: comparison.compare(dir1, dir2, output_path, num_processes))

    @classmethod
    def compare_arrays(cls, array1: Any, array2: Any) -> CompareResult:
        """The numbers of a row, of two arrays of numpy. Of different shapes, what they have in common is compared."""
        return _with_client(lambda _, arrays: arrays.compare_arrays(array1, array2))


def _with_client(work: Callable[[Any, Any], T]) -> T:
    try:
        from msprobe_client.compat import single_arrays, single_comparison
        from msprobe_client.errors import MsprobeError as ClientError
    except ImportError:
        raise MsprobeError("comparing needs msprobe-client: pip install 'msprobe-client[xlsx]'") from None
    try:
        return work(single_comparison, single_arrays)
    except ClientError as error:
        raise MsprobeError(str(error)) from None


__all__ = ["SingleComparator"]
