"""Examples at the end of --help. Each line runs as it stands; tests/operate/test_help.py runs them."""

from __future__ import annotations

from collections.abc import Iterable

# For the command line as a whole.
GENERAL = (
    "export MSPROBE_SERVER=gpu-host:50051",
    "msprobe-client runs",
    "msprobe-client overflow tuesday",
    "msprobe-client first-divergence tuesday monday",
    "msprobe-client compare dump_a dump_b",
)


def epilog(lines: Iterable[str]) -> str:
    """As click shows it: \\b keeps the lines of a paragraph as they are."""
    return "Examples:\n\n\b\n" + "\n".join(f"  {line}" for line in lines)


def plain(lines: Iterable[str]) -> str:
    """As argparse shows it, with RawDescriptionHelpFormatter."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines)
