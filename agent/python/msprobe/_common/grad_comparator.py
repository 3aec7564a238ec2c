"""GradComparator, as mindstudio-probe has it: ``from msprobe import GradComparator``."""

from __future__ import annotations

from collections.abc import Callable

from msprobe._common.errors import MsprobeError


class GradComparator:
    """Compares the signs of gradients that task grad_probe left in files (docs/monitoring.md). Needs msprobe-client."""

    @classmethod
    def compare_distributed(cls, path1: str, path2: str, output_dir: str) -> None:
        """Of two dump_path: writes output_dir/rank{R}/similarities.csv of every rank that both have.

        Where matplotlib is installed, also rank{R}/similarities_picture/{parameter}_similarities.png.
        """
        _with_client(lambda module: module.compare_distributed(path1, path2, output_dir))

    @classmethod
    def compare(cls, path1: str, path2: str, output_dir: str) -> None:
        """Of two directories rank{R} of a dump_path: the same files, in output_dir."""
        _with_client(lambda module: module.compare(path1, path2, output_dir))


def _with_client(work: Callable[..., None]) -> None:
    try:
        from msprobe_client.compat import grad_comparator
        from msprobe_client.errors import MsprobeError as ClientError
    except ImportError:
        raise MsprobeError("comparing needs msprobe-client: pip install msprobe-client") from None
    try:
        work(grad_comparator)
    except ClientError as error:
        raise MsprobeError(str(error)) from None


__all__ = ["GradComparator"]
