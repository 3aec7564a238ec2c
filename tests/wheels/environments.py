"""Environments that have one torch, and our wheels as they are given away."""

import pathlib
import sys

import cuda_stubs
from harness.processes import REPOSITORY, run

sys.path.append(str(REPOSITORY / "scripts"))
import make_agents

DIST = REPOSITORY / "dist"
KEPT = REPOSITORY / "build" / "environments"
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


def make(torch, tag):
    """The interpreter of an environment. Environments with torch are kept; our wheels are installed anew."""
    folder = KEPT / f"torch{torch}-{tag}"
    python = folder / "bin" / "python"
    if not (folder / "whole").exists():
        run([interpreter(tag), "-m", "venv", "--clear", folder], timeout=600)
        (version,) = [each for each in make_agents.VERSIONS if each.startswith(f"{torch}.")]
        pip(python, "--no-deps", f"torch=={version}")
        cuda_stubs.write(next(folder.glob("lib/python*/site-packages/torch/lib")))
        pip(python, *OTHERS, *TRACED)
        (folder / "whole").touch()
    pip(python, "--force-reinstall", "--no-deps", one("all/msprobe_agent-*.whl"), one("msprobe_server-*.whl"))
    return python


def outcome_of(python, out: pathlib.Path, *arguments):
    """What the traced nets computed, and by which operators."""
    program = REPOSITORY / "tests" / "integration" / "programs" / "bit_identity.py"
    hidden = {"PYTHONPATH": None, "MSPROBE_SERVER_BINARY": None}
    run([python, program, "--steps", 2, "--out", out, *arguments], timeout=600, **hidden)
    return out
