"""A process that may start no further thread: gRPC waits also for those of its own that could not be started."""

import contextlib
import pathlib
import sys
import tempfile

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, Background, external_server, run
from msprobe_client.client import Client

# Nobody else's on this machine, for the limit counts all threads of a user. It reads what root's Python lies in.
USER = "61234"
CAPABILITIES = "-all,+dac_override,+dac_read_search"

pytestmark = pytest.mark.timeout(180)


def as_user(threads):
    return [
        *("prlimit", f"--nproc={threads}:64", "setpriv", f"--reuid={USER}", "--clear-groups"),
        *(f"--{kind}={CAPABILITIES}" for kind in ("inh-caps", "ambient-caps", "bounding-set")),
        sys.executable,
    ]


@pytest.fixture
def dump_path():
    """One that this user may write into."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        path.chmod(0o777)
        yield path / "dump"


@pytest.fixture
def server(tmp_path):
    socket = tmp_path / "server.sock"
    with external_server(socket, tmp_path / "data", tmp_path / "server.log"):
        yield f"unix:{socket}"


@pytest.mark.parametrize("threads", [2, 9, 10, 11, 12, 13, 14])
def test_a_program_runs_and_leaves_whichever_thread_is_missing(threads, tmp_path, dump_path, server):
    config = write_config(tmp_path / "config.json", dump_path, server=server, stall_bound_s=3)
    program = [*as_user(threads), PROGRAMS / "leaving.py", config, 3]
    done = run(program, timeout=60, check=False, OMP_NUM_THREADS="1")
    if done.returncode == 1:  # capture is refused before the first step
        assert "MsprobeError: cannot start the sender thread" in done.stderr and "STEP" not in done.stdout
    else:
        assert done.returncode == 0 and "END" in done.stdout.splitlines(), done.stderr


def test_what_waited_for_a_thread_arrives_once_there_is_one(tmp_path, dump_path):
    socket = tmp_path / "server.sock"
    config = write_config(tmp_path / "config.json", dump_path, server=f"unix:{socket}")
    program = [*as_user(64), PROGRAMS / "few_threads.py", config]
    with contextlib.ExitStack() as held:
        first = contextlib.ExitStack()
        first.enter_context(external_server(socket, tmp_path / "data", tmp_path / "first.log"))
        running = held.enter_context(
            Background(program, tmp_path / "program.log", OMP_NUM_THREADS="1", MSPROBE_RUN="starved")
        )
        running.wait_for(lambda: "FEW" in running.output, 60, "its threads are limited")
        first.close()
        held.enter_context(external_server(socket, tmp_path / "data", tmp_path / "second.log"))
        running.finish(60)
        with Client(f"unix:{socket}") as client:
            assert [step.state for step in client.steps("starved")] == ["complete"] * 7
