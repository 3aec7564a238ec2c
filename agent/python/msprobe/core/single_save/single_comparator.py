"""``from msprobe.core import SingleComparator``, as in mindstudio-probe. Needs msprobe-client with its extra xlsx."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe._common.with_client import with_client

if TYPE_CHECKING:
    from msprobe_client.compat.single_arrays import CompareResult


class SingleComparator:
    """Compares what two programs saved by SingleSave. Raises MsprobeError with one line where something is wrong."""

    @classmethod
    def compare(
        cls, dir1: str, dir2: str, output_path: str = "./msprobe_compare_output", num_processes: int = 8
    ) -> None:
        """Writes output_path/{name}.xlsx of every name that either dump_path has. num_processes: at the same time."""

        def work() -> None:
            from msprobe_client.compat import single_comparison

            single_comparison.compare(dir1, dir2, output_path, num_processes)

        with_client(work)

    @classmethod
    def compare_arrays(cls, array1: Any, array2: Any) -> CompareResult:
        """The numbers of a row, of two arrays of numpy. Of different shapes, what they have in common is compared."""

        def work() -> CompareResult:
            from msprobe_client.compat import single_arrays

            return single_arrays.compare_arrays(array1, array2)

        return with_client(work)


__all__ = ["SingleComparator"]
