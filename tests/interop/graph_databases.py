"""Graph databases of either tool, and what makes their rows the same."""

import pathlib
import sqlite3
import sys

import pytest
from harness.processes import run

# The sides of made-up pairs (parallel_dumps), and how far apart their numbers are.
SIDES = (("target", 0.25), ("golden", 0.0))
NO_FORWARD = "This backward node cannot find the forward node and cannot retrieve stack information."


def ours(target, golden, out, options, binary):
    program = "from msprobe_client.compat.legacy import main; main()"
    sides = ["-tp", target, *(["-gp", golden] if golden else [])]
    run(
        [sys.executable, "-c", program, "graph_visualize", *sides, "-o", out, *options],
        MSPROBE_SERVER_BINARY=binary,
        timeout=120,
    )
    return only(out)


def theirs(target, golden, out, options, python):
    sides = ["-tp", target, *(["-gp", golden] if golden else [])]
    run(
        [pathlib.Path(python).parent / "msprobe", "graph_visualize", *sides, "-o", out, *options],
        PYTHONPATH=None,
        OMP_NUM_THREADS=1,
        timeout=240,
    )
    return only(out)


def only(directory):
    (path,) = directory.glob("*.vis.db")
    return path


def rows(path, sql):
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def same_rows(ours, theirs, where):
    """`graph-values`: None alone has no more to say than null."""
    assert list(ours) == list(theirs), where
    for name, row in ours.items():
        other = theirs[name]
        if other == {"value": "null"}:
            assert row.get("Max") in (None, "null"), (where, name)
            continue
        if "group_ranks" in other:  # `graph-values`, of a process group
            assert (row["type"], row["value"]) == (other["type"], other["group_ranks"]), (where, name)
            continue
        distance = row.pop("EucDist", "0"), other.pop("EucDist", "0")
        if distance[0] != distance[1]:  # `euclidean-distance`
            assert float(distance[0]) == pytest.approx(float(distance[1]), rel=1e-13), (where, name)
        # `graph-infinities`: without the tab that keeps a spreadsheet from taking them for names.
        texts = {key: value.removesuffix("\t") if isinstance(value, str) else value for key, value in other.items()}
        assert row == texts, (where, name)
