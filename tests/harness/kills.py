"""Programs that are killed at random moments, and the check that nothing they had captured died with them.

The oracle is a file of the program itself, unknown to msprobe (programs/endless_training.py): it says which steps had
ended and which calls had returned. The captures are compared with those of the same program when nobody kills it.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import uuid

import pytest

from harness import answers, fire
from harness.dumps import write_config
from harness.fork_server import ForkServer
from harness.processes import PROGRAMS, external_server, find_binary, run, servers_of, wait_until

sys.path.append(str(PROGRAMS))
import oracle_layout

PROGRAM = PROGRAMS / "endless_training.py"
YOUNG_STEPS = 12
OLD_STEPS = 150


@dataclasses.dataclass
class Tally:
    """The counts of a loop of kills."""

    kills: int = 0
    steps: int = 0  # ended steps, all found whole
    records: int = 0  # records of returned calls, all found
    recovered: int = 0  # kills that left records which no server had
    running: int = 0  # kills within a call, whose inputs were found

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self):
        return (
            f"{self.kills} kills, {self.steps} ended steps, {self.records} records of returned calls: 0 lost, 0 twice; "
            f"{self.recovered} kills left something to adopt, {self.running} came in a call whose inputs are there"
        )


@dataclasses.dataclass(frozen=True)
class Step:
    """One rank's records of one step."""

    data: dict
    construct: dict
    stack: dict
    tensors: dict
    incomplete: bool


def read_step(directory):
    directory = pathlib.Path(directory)
    tensors = directory / "dump_tensor_data"
    return Step(
        json.loads((directory / "dump.json").read_text())["data"],
        json.loads((directory / "construct.json").read_text()),
        json.loads((directory / "stack.json").read_text()),
        {path.name: path.read_bytes() for path in tensors.iterdir()} if tensors.exists() else {},
        (directory / "INCOMPLETE").exists(),
    )


class Programs:
    """Programs of one configuration, forked from a process that has imported everything. Use as a context."""

    def __init__(self, directory, prefix=(), **env):
        self._directory = pathlib.Path(directory)
        self._server = ForkServer([*prefix, sys.executable, PROGRAM, "--serve"], self._directory / "serve.log", **env)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._server.close()

    def start(self, name, config, **arguments):
        oracle = self._directory / f"{name}.oracle"
        request = {"config": str(config), "oracle": str(oracle), "log": str(self._directory / f"{name}.log")}
        return Program(self._server.ask(request | arguments)["pid"], oracle, self._directory / f"{name}.log")


def passed_in(oracle):
    """(steps that have ended, positions passed of the one that runs)."""
    with contextlib.suppress(OSError, struct.error), pathlib.Path(oracle).open("rb") as file:
        (number,) = struct.unpack("<Q", file.read(8))
        return number // 1024, number % 1024
    return 0, 0


class Program:
    def __init__(self, pid, oracle, log):
        self.pid, self._oracle, self._log = pid, oracle, log
        self.reference, self.level = None, None  # the values for comparison
        self._statistics = pathlib.Path(f"/proc/{pid}/stat")
        self._started = self._ticks()

    def _ticks(self):
        try:
            fields = self._statistics.read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]

    def alive(self):
        return self._started is not None and self._ticks() == self._started

    @property
    def passed(self):
        return passed_in(self._oracle)

    @property
    def said(self):
        return self._log.read_text(errors="replace")

    def reaches(self, step, position=0, timeout=120):
        def holds():
            assert self.alive(), f"the program has ended\n{self.said[-4000:]}"
            return self._oracle.exists() and self.passed >= (step, position)

        deadline = time.monotonic() + timeout
        while not holds():
            assert time.monotonic() < deadline, f"step {step} is not reached\n{self.said[-4000:]}"
            time.sleep(0.001)

    def kill(self, how=signal.SIGKILL):
        os.kill(self.pid, how)
        wait_until(lambda: not self.alive(), 30, "the program is gone")


class Reference:
    """The steps of the program that nobody kills, by task and level."""

    def __init__(self, directory, programs):
        self._directory, self._programs = pathlib.Path(directory), programs
        self._steps = {}

    def __call__(self, task, level):
        if (task, level) not in self._steps:
            name = f"{task}-{level}"
            place = self._directory / name
            config = write_config(self._directory / f"{name}.json", place, task=task, level=level)
            program = self._programs.start(name, config, steps=oracle_layout.PERIOD)
            wait_until(lambda: not program.alive(), 120, "the reference is made")
            found = steps_of(place, program.pid)
            self._steps[task, level] = [found[step] for step in range(oracle_layout.PERIOD)]
        return self._steps[task, level]


@contextlib.contextmanager
def busy():
    """Keeps both processors busy."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count())]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


@contextlib.contextmanager
def little_memory(mebibytes):
    """A control group with this limit of memory. Skips where none can be made."""
    name, root = f"msprobe-{uuid.uuid4().hex[:8]}", pathlib.Path("/sys/fs/cgroup")
    first = (root / "memory").is_dir()  # version 1
    group = (root / "memory" if first else root) / name
    try:
        group.mkdir()
        limit = group / ("memory.limit_in_bytes" if first else "memory.max")
        limit.write_text(str(mebibytes << 20))
    except OSError as error:
        pytest.skip(f"control groups of memory are not allowed here: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text(), 60, "nobody is left in the control group")
        group.rmdir()


def memories_of(dump_path):
    """Session memory of living and dead processes beside the spool of a dump_path. A dangling link belongs to a process
    that was killed before it had any.
    """
    spool = pathlib.Path(dump_path) / ".msprobe" / "spool"
    with contextlib.suppress(FileNotFoundError):
        return sorted(path for path in spool.iterdir() if path.exists())
    return []


def check(found, passed, level, reference):
    """Fails unless the found steps (by number) have every returned call, once and right; gives a Tally."""
    ended, position = passed
    tally = Tally(kills=1, steps=ended)
    assert set(range(ended)) <= set(found), f"of {ended} steps that had ended, {sorted(found)} are there"
    assert max(found, default=0) <= ended, f"steps that were never begun: {sorted(found)}, {ended} had ended"
    for number in range(ended):
        step, expected = found[number], reference[number % oracle_layout.PERIOD]
        assert not step.incomplete, f"step {number} had ended and is marked INCOMPLETE"
        assert list(step.data) == list(expected.data), f"step {number} has other records, or in another order"
        assert step == expected, f"step {number} has other values"
        tally.records += len(step.data)
    expected = reference[ended % oracle_layout.PERIOD]
    step = found.get(ended, Step({}, {}, {}, {}, True))
    returned = oracle_layout.PARTS[: position // 2]
    wanted = set().union(*(oracle_layout.records_of(part, level, expected.data) for part in returned))
    assert wanted <= set(step.data), f"step {ended} lacks {sorted(wanted - set(step.data))}, which had returned"
    for name in wanted:
        # A module's or a parameter's record is whole with the last thing in it.
        assert step.data[name] == expected.data[name], f"step {ended}: {name} has other values"
    assert set(step.data) <= set(expected.data), f"step {ended} has {sorted(set(step.data) - set(expected.data))}"
    for name, record in step.data.items():
        for field, value in record.items():
            whole = name in wanted or not name.endswith(".parameters_grad.0")
            assert not whole or value == expected.data[name][field], f"step {ended}: {name} has another {field}"
    for name, content in step.tensors.items():
        assert content == expected.tensors[name], f"step {ended}: other bytes in {name}"
    for name in wanted:
        files = {file for file in expected.tensors if file.startswith(f"{name}.")}
        assert files <= set(step.tensors), f"step {ended} lacks the bytes {sorted(files - set(step.tensors))}"
    tally.records += len(wanted)
    if position % 2 == 1:
        started = oracle_layout.records_of(oracle_layout.PARTS[position // 2], level, expected.data)
        tally.running = int(any(name in step.data for name in started))
    return tally


def soon(look, patience=60):
    """The result of look() when the unended step is written too: its session is given up a moment later.

    Patience is for one step: servers are nice, and a busy machine's write a step a second. They get most of the time.
    """
    said, deadline = "", time.monotonic() + patience
    while True:
        began = time.monotonic()
        try:
            return look()
        except (AssertionError, OSError) as error:  # a directory that is being replaced
            if str(error) != said:
                said, deadline = str(error), time.monotonic() + patience
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05 + 3 * (time.monotonic() - began))


def steps_of(directory, pid):
    """The exports of one process, by step."""
    found = {}
    for path in pathlib.Path(directory).glob(f"step*/proc{pid}"):
        found[int(path.parent.name[4:])] = read_step(path)
    return found


def client(*arguments, prefix=(), **options):
    return run([*prefix, find_binary("msprobe-client"), *arguments], **options)


def ask_recover(path, *options, prefix=()):
    """The rows of `msprobe-client recover`, one a session, and its exit code."""
    done = client("recover", path, *options, "--format", "json", prefix=prefix, check=False)
    assert done.returncode in (0, 3), done.stderr
    return answers.rows(done.stdout), done.returncode


def recover(dump_path, prefix=()):
    rows, code = ask_recover(dump_path, prefix=prefix)
    assert code == 0, rows
    return rows


ADOPTED = re.compile(r"is adopted: (\d+) batches, (\d+) payloads, (\d+) records")


def adopted_in(log):
    """The number of sessions that a server adopted because it lacked a part of them."""
    return sum(any(map(int, numbers)) for numbers in ADOPTED.findall(pathlib.Path(log).read_text(errors="replace")))


@dataclasses.dataclass
class Scene:
    """A place where programs run and are killed, and the ways in which a server gets their records."""

    directory: pathlib.Path
    reference: Reference
    programs: Programs
    chance: random.Random
    steps: int = YOUNG_STEPS  # a program is killed in one of its first
    count: int = 0

    def _start(self, dump_path, arguments=None, **top):
        self.count += 1
        task, level = self.chance.choice(("statistics", "tensor")), self.chance.choice(("L0", "mix"))
        name = f"{task}-{level}-{uuid.uuid4().hex}"
        config = write_config(self.directory / f"{name}.json", dump_path, task=task, level=level, **top)
        expected = self.reference(task, level)
        program = self.programs.start(name, config, **(arguments or {}))
        program.reference, program.level = expected, level
        return program

    def _killed(self, dump_path, **top):
        """A program, captured from its first moments on and killed at a random moment."""
        program = self._start(dump_path, **top)
        program.reaches(self.chance.randrange(self.steps))
        time.sleep(self.chance.random() * 0.02)  # anywhere in a step, or between two
        program.kill(signal.SIGSEGV if self.chance.random() < 0.2 else signal.SIGKILL)
        return program

    @staticmethod
    def _check(program, directory):
        return check(steps_of(directory, program.pid), program.passed, program.level, program.reference)

    def _check_soon(self, program, directory):
        return soon(lambda: self._check(program, directory))

    def out_of_memory(self, group, kills):
        """A thread of the program takes all of the control group's memory, and the kernel kills the program."""
        total = Tally()
        for _ in range(kills):
            dump_path = self.directory / f"dump{self.count}"
            program = self._start(dump_path, {"greedy": self.chance.randrange(self.steps)})
            (group / "cgroup.procs").write_text(str(program.pid))
            wait_until(lambda of=program: not of.alive(), 120, "the program is killed")
            assert "MemoryError" not in program.said, program.said
            # The kernel may take the server, too.
            wait_until(lambda at=dump_path: not memories_of(at) or not servers_of(at), 120, "what was left is adopted")
            recover(dump_path)
            total.add(self._check_soon(program, dump_path))
            shutil.rmtree(dump_path, ignore_errors=True)
        return total

    def embedded(self, kills):
        """The program's own server adopts, or the next to come: another program, or `recover`."""
        total = Tally()
        for _ in range(kills):
            dump_path = self.directory / f"dump{self.count}"
            program = self._killed(dump_path)
            left, down = bool(memories_of(dump_path)), self.chance.random() < 0.3
            if down:  # the server goes down with the program
                for server in servers_of(dump_path):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server, signal.SIGKILL)
                wait_until(lambda path=dump_path: not servers_of(path), 60, "the server is killed")
            sent = 0
            # One that was being started may still be on its way, and take it first.
            if (left or down) and not servers_of(dump_path):
                # What had been adopted before the server went down is in its store, for the next server there.
                if memories_of(dump_path) and self.chance.random() < 0.5:
                    sent = sum(row["state"] == "sent" for row in recover(dump_path))
                else:
                    self._next(dump_path)
            wait_until(lambda path=dump_path: not memories_of(path), 120, "what was left is adopted")
            tally = self._check_soon(program, dump_path)
            tally.recovered = sent + sum(map(adopted_in, dump_path.glob(".msprobe/*/server.log")))
            total.add(tally)
            shutil.rmtree(dump_path, ignore_errors=True)  # and with it its server
        return total

    def _next(self, dump_path):
        """Another program with this dump_path, which comes and goes."""
        program = self.programs.start(
            f"next-{uuid.uuid4().hex}", write_config(self.directory / "next.json", dump_path), steps=1
        )
        wait_until(lambda: not program.alive(), 120, "the next program ends")

    def named(self, server, kills):
        """Programs that have named a server, killed one after another. Gives the arguments of exported()."""
        killed = []
        for _ in range(kills):
            name = f"run{uuid.uuid4().hex}"
            killed.append((self._killed(self.directory / "dump", server=server, run=name), name))
        return killed

    @property
    def memories(self):
        """The exports of the programs that named() has killed."""
        return memories_of(self.directory / "dump")

    def exported(self, server, killed, prefix=()):
        """Checks the server's records of them, once it has adopted everything."""
        wait_until(lambda: not self.memories, 120, "what was left is adopted")
        total = Tally()
        for program, name in killed:
            out = self.directory / "out"
            found = client("--server", server, "export", name, "--output", out, prefix=prefix, check=False)
            none = found.returncode != 0 and "no run" in found.stderr
            assert found.returncode == 0 or none, found.stderr
            total.add(self._check(program, out))
            shutil.rmtree(out, ignore_errors=True)
        return total

    def on_this_machine(self, socket, kills):
        """The server that they had named is there, and adopts."""
        log = self.directory / "named.log"
        with external_server(socket, self.directory / "named", log, "--log_level=info"):
            total = self.exported(f"unix:{socket}", self.named(f"unix:{socket}", kills))
        total.recovered = adopted_in(log)
        return total

    def unreachable(self, socket, kills):
        """No server can be reached until all of them are dead; then the server that they had named starts."""
        killed = self.named(f"unix:{socket}", kills)
        assert self.memories, "they have left their memory"
        log = self.directory / "late.log"
        with external_server(socket, self.directory / "late", log, "--log_level=info"):
            total = self.exported(f"unix:{socket}", killed)
        total.recovered = adopted_in(log)
        return total

    def remote(self, there, kills):
        """The server is on another machine: in a network of its own, with a /dev/shm of its own, and as if by another
        user. The programs are to be within the near network."""
        own_memory = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh")
        prefix = there.within(there.near)
        with fire.server_in(there, self.directory / "remote", self.directory / "remote.log", prefix=own_memory):
            killed = []
            for number in range(kills):
                there.plugged(number % 2 == 0)  # every second one never reaches it
                killed += self.named(there.address, 1)
            there.plugged(True)
            rows = recover(self.directory / "dump", prefix=prefix)
            assert all(row["state"] in ("sent", "nothing") for row in rows), rows
            total = self.exported(there.address, killed, prefix=prefix)
        total.recovered = sum(row["state"] == "sent" for row in rows)
        return total
