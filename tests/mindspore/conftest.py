"""The real MindSpore, and the real mindstudio-probe for it, each in an environment of its own (`make mindspore`)."""

import functools
import importlib.metadata
import json
import os

import pytest
from harness.mindspore import PROGRAMS, TRAIN, environment_at, run

WITH_TORCH = ("torch", "sympy", "mpmath", "networkx", "jinja2", "filelock", "fsspec", "typing_extensions")


@pytest.fixture(scope="session")
def torch_packages(tmp_path_factory):
    """A folder of our torch and what it needs, for an environment that has MindSpore."""
    pytest.importorskip("torch")
    packages = tmp_path_factory.mktemp("torch")
    for name in WITH_TORCH:
        for top in {file.parts[0] for file in importlib.metadata.files(name) if file.parts[0] not in ("..", "bin")}:
            link = packages / top
            if not link.exists():
                link.symlink_to(importlib.metadata.distribution(name).locate_file(top))
    return packages


@pytest.fixture(scope="session")
def mindspore_python():
    """The Python with MindSpore and our wheels."""
    return environment_at("MSPROBE_MINDSPORE", ".venv-mindspore", "mindspore")


@pytest.fixture(scope="session")
def run_program(mindspore_python):
    """run_program(path, *arguments, code=0): a program with our msprobe."""
    if built := os.environ.get("MSPROBE_MINDSPORE_PATH"):  # a build that is not installed
        return functools.partial(run, mindspore_python, PYTHONPATH=built)
    return functools.partial(run, mindspore_python)


@pytest.fixture(scope="session")
def oracle_python(mindspore_python):
    """The Python with mindstudio-probe and the MindSpore that ours has."""
    python = environment_at("MSPROBE_MINDSPORE_ORACLE", ".oracle-mindspore", "mindspore")
    if _version_of(python) != _version_of(mindspore_python):
        pytest.skip("mindstudio-probe has another MindSpore beside it, which gives other bits")
    return python


def _version_of(python):
    (found,) = python.parent.parent.glob("lib/python*/site-packages/mindspore-*.dist-info")
    return found.name


@pytest.fixture(scope="session")
def run_theirs(oracle_python):
    """run_program with mindstudio-probe's msprobe, and the one line without which it fails on a CPU."""
    return lambda *command: run(oracle_python, *command, MSPROBE_SHIM="1")


@pytest.fixture(scope="session")
def plain(run_program):
    """plain(net): the digests of its steps without a debugger."""
    known = {}

    def digests(net):
        if net not in known:
            known[net] = run_program(TRAIN, net, "-").digests
        return known[net]

    return digests


@pytest.fixture
def case(run_program, tmp_path):
    """case(name): what calls.py says of the case, and where it dumped."""

    def run_case(name, **environment):
        ran = run_program(PROGRAMS / "calls.py", name, tmp_path / "out", **environment)
        said = [line.removeprefix("said ") for line in ran.output.splitlines() if line.startswith("said ")]
        return (json.loads(said[-1]) if said else None), tmp_path / "out", ran.output

    return run_case
