"""Programs in the real MindSpore, with our wheels or with mindstudio-probe, and the dumps that they write."""

import dataclasses
import json
import os
import pathlib
import subprocess

import pytest

from harness.processes import REPOSITORY

PROGRAMS = REPOSITORY / "tests" / "mindspore" / "programs"
TRAIN = PROGRAMS / "train.py"
SECONDS = 240


@dataclasses.dataclass
class Ran:
    output: str
    code: int = 0

    @property
    def digests(self):
        """Of each step, by name: the loss's and every gradient's."""
        lines = (line.partition("digests ") for line in self.output.splitlines())
        return [json.loads(digests) for _, word, digests in lines if word]


def environment_at(variable, default, target):
    path = pathlib.Path(os.environ.get(variable, REPOSITORY / default)) / "bin" / "python"
    if not path.exists():
        pytest.skip(f"no MindSpore at {path}: run `make {target}` or set {variable}")
    return path


def run(python, *command, code=0, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MSPROBE_LOG_LEVEL")}
    done = subprocess.run(
        [python, *map(str, command)],
        env={**clean, **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == code, done.stdout[-4000:]
    return Ran(done.stdout, done.returncode)


def only_rank(dump, step=0):
    (found,) = (path for path in (pathlib.Path(dump) / f"step{step}").iterdir() if path.is_dir())
    return found


def entries(dump, step=0, file="dump.json"):
    return json.loads((only_rank(dump, step) / file).read_text(encoding="utf-8"))["data"]
