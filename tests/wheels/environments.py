"""Environments that have one torch, and our wheels as they are given away."""

import contextlib
import pathlib
import shutil
import sys

import cuda_stubs
from harness.processes import REPOSITORY, find_binary, run

sys.path.append(str(REPOSITORY / "scripts"))
import make_agents
from machines import AARCH64, HERE

DIST = REPOSITORY / "dist"
FOLDER = REPOSITORY / "build" / "environments"
# What torch and the traced programs need, without the gigabytes of CUDA that torch requires.
OTHERS = ("filelock", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools", "numpy", "PyYAML")
TRACED = ("transformers",)
PLATFORMS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, 36)))


def agents():
    """(torch, python, machine) of every agent that is built, as ("2.10", "cp311", "x86_64")."""
    return [(*agent, machine.name) for machine in (HERE, AARCH64) for agent in machine.agents()]


def interpreter(tag):
    for python in (sys.executable, *make_agents.interpreters()):
        if f"cp3{make_agents.minor_of(python)}" == tag:
            return python
    raise AssertionError(f"no interpreter for {tag} is on this machine")


def one(pattern):
    found = sorted(DIST.glob(pattern))
    names = [path.name for path in found]
    assert len(found) == 1, f"{DIST}/{pattern}: {names}; run `make wheels-all` or `make wheels-aarch64`"
    return found[0]


def pip(python, *arguments):
    run([python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *arguments], timeout=1800)


@contextlib.contextmanager
def made(torch, tag, machine):
    """The interpreter of an environment that lies on the disk meanwhile: gigabytes."""
    folder = FOLDER / f"torch{torch}-{tag}-{machine}"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        yield (emulated if machine == AARCH64.name else native)(folder, make_agents.patch_of(torch), tag)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def native(folder, torch, tag):
    python = folder / "bin" / "python"
    run([interpreter(tag), "-m", "venv", folder], timeout=600)
    pip(python, "--no-cache-dir", "--no-deps", f"torch=={torch}")
    (libraries,) = folder.glob("lib/python*/site-packages/torch/lib")
    cuda_stubs.write(libraries, cuda_stubs.X86_64, cuda_stubs.of_this_machine())
    pip(python, *OTHERS, *TRACED)
    pip(python, "--no-deps", one("all/msprobe_agent-*.whl"), one("msprobe_server-*.whl"))
    return python


def emulated(folder, torch, tag):
    """Wheels for aarch64, which pip of this machine unpacks, and Debian's Python for it. It starts this machine's
    server: the kernel runs that one without the emulator.
    """
    packages = folder / "packages"
    asked = ["--target", packages, "--only-binary=:all:", f"--python-version=3.{tag.removeprefix('cp3')}"]
    asked += [f"--platform={platform}_{AARCH64.name}" for platform in PLATFORMS]
    pip(sys.executable, *asked, "--no-cache-dir", "--no-deps", f"torch=={torch}")
    system = {path.name for path in AARCH64.debian.place(f"/usr/lib/{AARCH64.name}-linux-gnu").iterdir()}
    cuda_stubs.write(packages / "torch" / "lib", cuda_stubs.AARCH64, system)
    pip(sys.executable, *asked, *OTHERS, *TRACED)
    pip(sys.executable, *asked, "--no-deps", one("aarch64/msprobe_agent-*.whl"))
    python = folder / "python"
    variables = f"PYTHONPATH='{packages}' MSPROBE_SERVER_BINARY='{find_binary('msprobe-server')}'"
    python.write_text(f"#!/bin/sh\n{variables} exec '{AARCH64.python}' \"$@\"\n")
    python.chmod(0o755)
    return python


def outcome_of(python, out: pathlib.Path, *arguments):
    """What the traced nets computed, and by which operators."""
    program = REPOSITORY / "tests" / "integration" / "programs" / "bit_identity.py"
    hidden = {"PYTHONPATH": None, "MSPROBE_SERVER_BINARY": None}
    run([python, program, "--steps", 2, "--out", out, *arguments], timeout=3600, **hidden)
    return out
