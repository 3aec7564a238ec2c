"""The end of the process: it is bounded, says why it waits, and leaves at Ctrl-C, with any number of unsent records."""

import contextlib
import os
import pathlib
import re
import signal
import sys
import time

import pytest
from harness.dumps import write_config
from harness.fire import frozen, small_disk
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, Background, external_server, run, servers_of, wait_until
from msprobe_client.client import Client

SOON = 15  # seconds, on a machine that is busy; it was two minutes
WAITED_FOR = "what was captured is waited for, at most"
UGLY = ("Exception ignored", "lost sys.stderr", "Fatal Python error", "terminate called")

pytestmark = pytest.mark.timeout(180)


RAISES = """
import sys

import torch
from msprobe.pytorch import PrecisionDebugger

debugger = PrecisionDebugger(config_path=sys.argv[1])
for step in range(2):
    debugger.start()
    torch.ones(2) + 1
    if step == 1:
        raise ValueError("on purpose")
    debugger.stop()
    debugger.step()
"""


def test_the_step_in_which_a_program_raises_is_incomplete(tmp_path, dump_path):
    (tmp_path / "raises.py").write_text(RAISES)
    config = write_config(tmp_path / "config.json", dump_path)
    done = run([sys.executable, tmp_path / "raises.py", config], check=False)
    assert done.returncode == 1 and "ValueError: on purpose" in done.stderr
    wait_until(lambda: list(dump_path.glob("step1/*/dump.json")), 60, "step 1 is exported")
    assert [path.parts[-3] for path in dump_path.glob("step*/*/INCOMPLETE")] == ["step1"]


def leaving(directory, config, *arguments, **env):
    return Background([sys.executable, PROGRAMS / "leaving.py", config, *arguments], directory / "program.log", **env)


@pytest.fixture(params=["embedded", "named"])
def full_disk(request, tmp_path):
    """(dump_path, fields): a dump_path on a disk that has less room than a server leaves free."""
    with small_disk(tmp_path / "disk", 24) as disk, contextlib.ExitStack() as stack:
        fields = {}
        if request.param == "named":
            socket = tmp_path / "s"
            stack.enter_context(external_server(socket, disk / "data", tmp_path / "server.log"))
            fields = {"server": f"unix:{socket}", "run": "full"}
        yield disk / "dump", fields
        for server in servers_of(disk):  # which would go on waiting for room
            os.kill(server, signal.SIGTERM)


@pytest.fixture
def stuck(tmp_path):
    """stuck(fields, arguments): a program whose server is frozen, which stalls it."""
    with contextlib.ExitStack() as stack:

        @contextlib.contextmanager
        def start(*arguments, **fields):
            socket = tmp_path / "s"
            server = stack.enter_context(external_server(socket, tmp_path / "data", tmp_path / "server.log"))
            fields = {"server": f"unix:{socket}", "run": "job", "memory_ceiling_mb": 64, "stall_bound_s": 90, **fields}
            config = write_config(tmp_path / "config.json", tmp_path / "dump", task="tensor", **fields)
            with leaving(tmp_path, config, *arguments) as program:
                program.wait_for(lambda: "STEP 0" in program.output, 60, "a step was captured")
                with frozen(server):
                    yield program

        yield start


def stands_still(program):
    """Whether its main thread used no time for a moment."""

    def used():
        assert program.alive(), f"it has ended:\n{program.output[-4000:]}"
        return pathlib.Path(f"/proc/{program.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]

    before = used()
    time.sleep(1)  # the moment that is looked at
    return used() == before


def interrupt(program, presses=1):
    """Ctrl-C, again and again until it has been pressed so often or the program is gone. Gives how long that took."""
    began = time.monotonic()
    for _ in range(presses):
        with contextlib.suppress(ProcessLookupError):
            program.process.send_signal(signal.SIGINT)
        with contextlib.suppress(Exception):
            program.process.wait(0.1)
    wait_until(lambda: not program.alive(), 60, "it is gone")
    assert not any(each in program.output for each in UGLY), program.output[-4000:]
    return time.monotonic() - began


def test_a_full_disk_ends_the_wait_at_its_bound_which_is_said(tmp_path, full_disk):
    dump_path, fields = full_disk
    fields |= {"stall_bound_s": 4, "session_memory": "off"}  # nothing keeps what the disk has no room for
    config = write_config(tmp_path / "config.json", dump_path, task="tensor", **fields)
    with leaving(tmp_path, config, "30") as program:
        program.wait_for(lambda: "END" in program.output, 90, "the program has come to its end")
        began = time.monotonic()
        wait_until(lambda: not program.alive(), 60, "it is gone")
        assert time.monotonic() - began < 4 + SOON
        assert program.process.returncode == 0
        output = program.output
    waiting = next(line for line in output.splitlines() if WAITED_FOR in line)
    within = re.search(r"at most (\d+) s more, (\d) s if nothing is taken, Ctrl-C leaves", waiting)
    assert within and 60 < int(within[1]) <= 120 and int(within[2]) <= 4, waiting
    assert "batches are not durable" in waiting and "disk" in waiting, waiting
    assert "what was captured is no longer waited for (after" in output
    lost = re.search(r"(\d+ batches and \d+ tensors are lost)", output)
    assert lost, output[-2000:]
    assert lost[1] in (dump_path / "INCOMPLETE").read_text()


@pytest.mark.parametrize("presses", mostly_nightly([1, 2, 100], 1, 100))
def test_ctrl_c_ends_the_wait(tmp_path, full_disk, presses):
    dump_path, fields = full_disk
    config = write_config(tmp_path / "config.json", dump_path, task="tensor", stall_bound_s=90, **fields)
    with leaving(tmp_path, config, "5") as program:
        program.wait_for(lambda: WAITED_FOR in program.output, 90, "the program says that it waits")
        assert interrupt(program, presses) < SOON
        # The program has ended well; a Ctrl-C behind all of ours ends it as any program.
        assert program.process.returncode in ((0,) if presses == 1 else (0, -signal.SIGINT))
        assert "no longer waited for (Ctrl-C)" in program.output or presses == 100
        assert "Traceback" not in program.output


@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"loss_policy": "stall", "session_memory": "off"}, "tensors are lost"),
        ({"spool_quota_mb": 1, "session_memory": "off"}, "tensors are lost"),
        ({"loss_policy": "stall"}, "They wait in /dev/shm/msprobe-"),
    ],
    ids=["stall", "spool full", "session memory"],
)
def test_ctrl_c_ends_a_stall_and_the_program(stuck, fields, said, presses):
    with stuck("1000", **fields) as program:
        program.wait_for(lambda: stands_still(program), 60, "it stalls")
        assert interrupt(program, presses) < SOON
        assert program.process.returncode == -signal.SIGINT
        assert program.output.count("Traceback (most recent call last)") == 1 and "KeyboardInterrupt" in program.output
        assert said in program.output


def test_ctrl_c_leaves_a_backlog_to_the_next_program(tmp_path, stuck):
    with stuck("1000", spool_quota_mb=4096) as program:
        program.wait_for(lambda: program.output.count("STEP") >= 20, 90, "steps are spooled")
        assert interrupt(program) < SOON
        assert "They wait in" in program.output and "lost" not in program.output
        steps = [int(step) for step in re.findall(r"^STEP (\d+)$", program.output, re.MULTILINE)]
    with leaving(tmp_path, tmp_path / "config.json", "1") as following:
        following.finish(timeout=100)
    with Client(f"unix:{tmp_path / 's'}") as client:
        there = {step.step for step in client.steps("job") if step.state == "complete"}
    assert set(steps) <= there


def test_a_handler_of_the_programs_own_is_called_once_in_a_stall(stuck):
    with stuck("1000", "own", loss_policy="stall") as program:
        program.wait_for(lambda: stands_still(program), 60, "it stalls")
        program.process.send_signal(signal.SIGINT)
        program.wait_for(lambda: "HANDLED" in program.output, SOON, "its handler is called")
        program.wait_for(lambda: stands_still(program), 60, "it stalls again")
        assert program.output.count("HANDLED") == 1


def test_ctrl_c_ends_debugger_wait(stuck):
    with stuck("2", "wait") as program:
        program.process.send_signal(signal.SIGUSR1)  # the server is frozen, so the last step cannot become durable
        program.wait_for(lambda: "WAITING" in program.output, 60, "it waits")
        program.wait_for(lambda: stands_still(program), 60, "it waits")
        assert interrupt(program) < SOON
        assert "KeyboardInterrupt" in program.output and program.process.returncode == -signal.SIGINT
