"""GradComparator, as mindstudio-probe has it: ``from msprobe import GradComparator``."""

from __future__ import annotations

from msprobe._common.with_client import with_client


class GradComparator:
    """Compares the signs of gradients that task grad_probe left in files (docs/monitoring.md). Needs msprobe-client."""

    @classmethod
    def compare_distributed(cls, path1: str, path2: str, output_dir: str) -> None:
        """Of two dump_path: writes output_dir/rank{R}/similarities.csv of every rank that both have.

        Where matplotlib is installed, also rank{R}/similarities_picture/{parameter}_similarities.png.
        """

        def work() -> None:
            from msprobe_client.compat import grad_comparator

            grad_comparator.compare_distributed(path1, path2, output_dir)

        with_client(work)

    @classmethod
    def compare(cls, path1: str, path2: str, output_dir: str) -> None:
        """Of two directories rank{R} of a dump_path: the same files, in output_dir."""

        def work() -> None:
            from msprobe_client.compat import grad_comparator

            grad_comparator.compare(path1, path2, output_dir)

        with_client(work)


__all__ = ["GradComparator"]
