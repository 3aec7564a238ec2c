"""Environments that have one torch, and our wheels as they are given away."""

import contextlib
import pathlib
import shutil
import sys

import cuda_stubs
from harness.processes import REPOSITORY, run

sys.path.append(str(REPOSITORY / "scripts"))
import make_agents

DIST = REPOSITORY / "dist"
FOLDER = REPOSITORY / "build" / "environments"
# What torch and the traced programs need, without the gigabytes of CUDA that torch requires.
OTHERS = ("filelock", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools", "numpy", "PyYAML")
TRACED = ("transformers",)


def agents():
    """(torch, python) of every agent that is built, as ("2.10", "cp311")."""
    path = REPOSITORY / "build" / "agents.txt"
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []


def interpreter(tag):
    for python in (sys.executable, *make_agents.interpreters()):
        if f"cp3{make_agents.minor_of(python)}" == tag:
            return python
    raise AssertionError(f"no interpreter for {tag} is on this machine")


def one(pattern):
    found = sorted(DIST.glob(pattern))
    assert len(found) == 1, f"{DIST}/{pattern}: {[path.name for path in found]}; run `make wheels-all`"
    return found[0]


def pip(python, *arguments):
    run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments], timeout=1800)


@contextlib.contextmanager
def made(torch, tag):
    """The interpreter of an environment that lies on the disk meanwhile: gigabytes."""
    folder = FOLDER / f"torch{torch}-{tag}"
    python = folder / "bin" / "python"
    try:
        run([interpreter(tag), "-m", "venv", "--clear", folder], timeout=600)
        pip(python, "--no-cache-dir", "--no-deps", f"torch=={make_agents.patch_of(torch)}")
        cuda_stubs.write(next(folder.glob("lib/python*/site-packages/torch/lib")))
        pip(python, *OTHERS, *TRACED)
        pip(python, "--no-deps", one("all/msprobe_agent-*.whl"), one("msprobe_server-*.whl"))
        yield python
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def outcome_of(python, out: pathlib.Path, *arguments):
    """What the traced nets computed, and by which operators."""
    program = REPOSITORY / "tests" / "integration" / "programs" / "bit_identity.py"
    hidden = {"PYTHONPATH": None, "MSPROBE_SERVER_BINARY": None}
    run([python, program, "--steps", 2, "--out", out, *arguments], timeout=600, **hidden)
    return out
