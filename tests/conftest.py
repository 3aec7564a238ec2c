"""Fixtures of the suites that cross rooms."""

import contextlib
import os
import pathlib
import random
import shutil
import sys
import tempfile

import pytest
from harness import answers, kills, reconnects
from harness.dumps import write_config
from harness.processes import PROGRAMS, REPOSITORY, Background, find_binary, run, wait_for_servers_to_leave

RECORD = REPOSITORY / "tests" / "interop" / "recordings" / "record.py"
RECORD_S = 600


def pytest_terminal_summary(terminalreporter):
    if "harness.drawn" in sys.modules:
        terminalreporter.line(sys.modules["harness.drawn"].SAID)


@pytest.fixture(scope="session", autouse=True)
def shared_memory_is_given_back(tmp_path_factory):
    """Removes the files of killed programs, which would wait to be adopted."""
    yield
    ours = str(tmp_path_factory.getbasetemp()).encode()
    for path in pathlib.Path("/dev/shm").glob("msprobe-*"):
        with contextlib.suppress(OSError), path.open("rb") as file:
            if ours in file.read(1 << 17):  # it says where its spool is
                path.unlink()


@pytest.fixture(scope="session")
def oracle_python():
    """The Python of the environment that holds mindstudio-probe."""
    environment = pathlib.Path(os.environ.get("MSPROBE_ORACLE", REPOSITORY / ".oracle"))
    path = pathlib.Path(os.environ.get("MSPROBE_ORACLE_PYTHON", environment / "bin" / "python"))
    if not path.exists():
        pytest.skip(f"no mindstudio-probe at {path}: run `make oracle` or set MSPROBE_ORACLE_PYTHON")
    return path


@pytest.fixture(scope="session")
def reference(request):
    """Recorded dumps of mindstudio-probe and the programs that made them; where there are none, it makes them here."""
    path = pathlib.Path(os.environ.get("MSPROBE_REFERENCE", REPOSITORY.parent / "shared" / "reference"))
    if not (path / "dump" / "make.py").exists():
        python = request.getfixturevalue("oracle_python")
        path = pathlib.Path(os.environ.get("MSPROBE_ORACLE", REPOSITORY / ".oracle")) / "reference"
        run([python, RECORD, path], PYTHONPATH=None, timeout=RECORD_S)
    os.environ["MSPROBE_REFERENCE"] = str(path)
    return path


@pytest.fixture(scope="session")
def mindspore_reference(reference):
    """The same, where a dump of MindSpore is among them."""
    if not (reference / "mindspore").is_dir():
        pytest.skip(f"no dump of MindSpore in {reference}")
    return reference


@pytest.fixture(scope="session")
def client():
    path = find_binary("msprobe-client")
    assert path, "msprobe-client is not installed: run `make build`"
    return path


@pytest.fixture
def dump_path(tmp_path):
    """A dump_path of this test alone; no server on it may outlive the test."""
    path = tmp_path / "dump"
    yield path
    wait_for_servers_to_leave(path)


@pytest.fixture
def traced(tmp_path, dump_path):
    """traced(program, *arguments, level=..., ...) runs a program to its end with a configuration of its own."""

    def call(program, *arguments, config_flag="--config", check=True, timeout=120, env=None, **configuration):
        target = configuration.pop("dump_path", dump_path)
        config = write_config(tmp_path / "config.json", target, **configuration)
        flags = [config] if config_flag is None else [config_flag, config]
        return run(
            [sys.executable, PROGRAMS / program, *flags, *arguments], check=check, timeout=timeout, **(env or {})
        )

    return call


@pytest.fixture
def running(tmp_path, dump_path):
    """As traced, but gives a Background to use as a context."""

    def call(program, *arguments, env=None, **configuration):
        config = write_config(tmp_path / "config.json", dump_path, **configuration)
        command = [sys.executable, PROGRAMS / program, "--config", config, *arguments]
        return Background(command, tmp_path / "program.log", **(env or {}))

    return call


@pytest.fixture
def short_directory():
    """A directory whose path leaves room for a socket name."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="msp", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def ask(client):
    """ask("runs", ..., server=ADDRESS | data_dir=DIR): the rows that msprobe-client prints as JSON."""

    def call(*arguments, server=None, data_dir=None):
        where = ["--server", server] if server else ["--data_dir", data_dir]
        done = run([client, *where, "--format", "json", *arguments])
        return answers.rows(done.stdout)

    return call


@pytest.fixture(scope="module")
def killable(tmp_path_factory):
    """Programs to be killed, without a network of their own."""
    with kills.Programs(tmp_path_factory.mktemp("programs")) as programs:
        yield programs


@pytest.fixture
def reconnecting(tmp_path, request, short_directory):
    """A place for programs whose servers are killed and come back."""
    scene = reconnects.Scene(tmp_path, short_directory, random.Random(request.node.name))
    yield scene
    scene.close()


@pytest.fixture(scope="module")
def unkilled(killable, tmp_path_factory):
    """The captures of the same programs when nobody kills them."""
    return kills.Reference(tmp_path_factory.mktemp("unkilled"), killable)


@pytest.fixture
def scene(tmp_path, request, killable, unkilled):
    return kills.Scene(tmp_path, unkilled, killable, random.Random(request.node.name))
