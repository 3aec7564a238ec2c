"""Configurations in, dump directories out."""

import json
import pathlib

from harness.processes import wait_for_servers_to_leave


def write_config(path, dump_path, *, task="statistics", level="L1", section=None, **top):
    """Writes config.json at path and returns path."""
    config = {
        "task": task,
        "dump_path": str(dump_path),
        "rank": [],
        "step": [],
        "level": level,
        **top,
        task: {"scope": [], "list": [], "data_mode": ["all"], **(section or {})},
    }
    path = pathlib.Path(path)
    path.write_text(json.dumps(config, indent=1))
    return path


def rank_directory(dump_path, step=0):
    """The only rank directory of a step."""
    found = sorted(path for path in (pathlib.Path(dump_path) / f"step{step}").glob("*") if path.is_dir())
    assert len(found) == 1, f"one rank directory expected in {dump_path}/step{step}, found {[p.name for p in found]}"
    return found[0]


def read_dump(rank):
    return json.loads((pathlib.Path(rank) / "dump.json").read_text())


def entries(dump_path, step=0):
    return read_dump(rank_directory(dump_path, step))["data"]


def exported_steps(dump_path):
    """Numbers of the steps with a rank's directory. That one appears whole; the step's own comes before."""
    ranks = (path for path in pathlib.Path(dump_path).glob("step*/*") if path.name.startswith(("rank", "proc")))
    return sorted({int(path.parent.name[4:]) for path in ranks if path.parent.name[4:].isdigit()})


def base_name(entry):
    """Functional.linear.3.forward -> Functional.linear, forward; counts left out."""
    return ".".join(part for part in entry.split(".") if not part.isdigit())


def embedded_data_directory(dump_path):
    """The data directory of the server that the agent started, once that server has let go of it."""
    wait_for_servers_to_leave(dump_path)
    found = [path for path in (pathlib.Path(dump_path) / ".msprobe").iterdir() if path.is_dir()]
    assert len(found) == 1, f"one data directory expected, found {found}"
    return found[0]


def leaves(value, place=()):
    """Every tensor of a record, with its place."""
    if isinstance(value, dict) and "Max" in value:
        yield place, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*place, index))
