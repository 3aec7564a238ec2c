"""Programs whose server is killed at every phase of a step and comes back after every delay.

The program writes a ledger (programs/ledger.py, unknown to msprobe), which is compared with the ledger of the same
program without capture. Its captures are compared with those of a program whose server nobody kills, record by record
and byte by byte. The server compares the digest of each record, taken when it was captured, when it exports it.
"""

import contextlib
import dataclasses
import itertools
import json
import pathlib
import random
import shutil
import struct
import sys
import time
import uuid

from harness import kills
from harness.dumps import write_config
from harness.fork_server import ForkServer
from harness.processes import PROGRAMS, Background, accepts_connections, find_binary, wait_until

sys.path.append(str(PROGRAMS))
from ledger import PHASES

PROGRAM = PROGRAMS / "ledger.py"
STEPS = 14
PAUSE_S = 0.03  # between two steps, so that a server may come back in the middle of a run
DELAYS_S = (0, 0.02, 0.1, 0.5, 1.5)
VARIANTS = (
    {"task": "statistics", "level": "mix"},
    {"task": "statistics", "level": "L0"},
    {"task": "statistics", "level": "L1", "section": {"summary_mode": "md5"}},
    {"task": "tensor", "level": "mix"},
)


@dataclasses.dataclass
class Tally:
    """The counts of a loop without a fault."""

    processes: int = 0
    kills: int = 0
    steps: int = 0
    records: int = 0
    tensors: int = 0  # files compared

    def add(self, other):
        for field in dataclasses.fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self):
        return (
            f"{self.processes} processes, {self.kills} kills of their servers, {self.steps} steps, "
            f"{self.records} records and {self.tensors} tensors: 0 lost, 0 twice, 0 with other values"
        )


class Program:
    def __init__(self, directory, name, server, config=None):
        self._place, self._ledger = directory / f"{name}.place", directory / f"{name}.ledger"
        self._log = directory / f"{name}.log"
        request = {"place": str(self._place), "ledger": str(self._ledger), "log": str(self._log)}
        request |= {"steps": STEPS, "pause": PAUSE_S, "config": None if config is None else str(config)}
        self.pid = server.ask(request)["pid"]

    def alive(self):
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False

    @property
    def ledger(self):
        return self._ledger.read_text().splitlines()

    @property
    def said(self):
        return self._log.read_text(errors="replace")

    def reaches(self, step, phase):
        """Returns as soon as it does."""
        wanted, deadline = step * 16 + PHASES.index(phase), time.monotonic() + 120
        while self._at() < wanted:
            assert self.alive(), f"the program has ended\n{self.said[-4000:]}"
            assert time.monotonic() < deadline, f"{phase} of step {step} is not reached\n{self.said[-4000:]}"
            time.sleep(0.0002)  # a phase is over in a millisecond

    def _at(self):
        with contextlib.suppress(OSError, struct.error), self._place.open("rb") as file:
            return struct.unpack("<Q", file.read(8))[0]
        return -1

    def ends(self):
        wait_until(lambda: not self.alive(), 180, "the program ends")


class Server:
    """One that can be killed and comes back on its data directory."""

    def __init__(self, directory, socket):
        self._directory, self.socket = directory, socket
        self._process = None

    def start(self):
        self.socket.unlink(missing_ok=True)
        command = [find_binary("msprobe-server"), "--listen", f"unix:{self.socket}"]
        command += ["--data_dir", self._directory / "data"]
        self._process = Background(command, self._directory / f"server-{uuid.uuid4().hex}.log")

    def ready(self):
        self._process.wait_for(lambda: accepts_connections(self.socket), 60, "the server accepts connections")

    def kill(self):
        self._process.kill()


@dataclasses.dataclass
class Scene:
    directory: pathlib.Path
    sockets: pathlib.Path
    chance: random.Random
    expected: dict = dataclasses.field(default_factory=dict)  # captured of a program left alone, by variant
    phases: itertools.cycle = dataclasses.field(default_factory=lambda: itertools.cycle(PHASES))

    def __post_init__(self):
        self._programs = ForkServer([sys.executable, PROGRAM, "--serve"], self.directory / "serve.log")
        self._count = itertools.count()

    def close(self):
        self._programs.close()

    def uncaptured(self):
        program = Program(self.directory, f"bare{next(self._count)}", self._programs)
        program.ends()
        assert len(program.ledger) == STEPS, program.said
        return program.ledger

    def _captured(self, variant, disturb):
        """(ledger, exported steps) of one program; disturb(program, server) disturbs its server."""
        name = f"run{next(self._count)}"
        directory = self.directory / name
        directory.mkdir()
        server = Server(directory, self.sockets / f"{name}.s")
        server.start()
        server.ready()
        address = f"unix:{server.socket}"
        config = write_config(directory / "config.json", directory / "dump", server=address, run=name, **variant)
        program = Program(directory, name, self._programs, config)
        try:
            disturb(program, server)
            program.ends()
            ledger = program.ledger
            assert len(ledger) == STEPS, program.said
            kills.client("--server", address, "export", name, "--output", directory / "out")
            return ledger, kills.steps_of(directory / "out", program.pid)
        finally:
            server.kill()
            shutil.rmtree(directory, ignore_errors=True)

    def check(self, variant, bare, kills_of_server):
        """One program of a variant, and the number of its server's kills."""
        key = json.dumps(variant)
        if key not in self.expected:
            ledger, self.expected[key] = self._captured(variant, lambda program, server: None)
            assert ledger == bare, "capture changed the run"
        plan = sorted(self.chance.sample(range(1, STEPS - 1), kills_of_server))

        def disturb(program, server):
            for step in plan:
                phase, delay = next(self.phases), self.chance.choice(DELAYS_S)
                said.append(f"killed at {phase} of step {step}, back after {delay} s")
                program.reaches(step, phase)
                server.kill()
                time.sleep(delay)  # the time without a server, which is tried here
                server.start()
                if self.chance.random() < 0.7:  # else the next kill may come while it starts
                    server.ready()
            server.ready()

        said = []
        ledger, found = self._captured(variant, disturb)
        told = f"{variant}; {'; '.join(said)}"
        assert ledger == bare, f"the program went another way: {told}"
        expected = self.expected[key]
        assert list(range(STEPS)) == sorted(found), f"steps {sorted(found)}: {told}"
        tally = Tally(processes=1, kills=kills_of_server, steps=STEPS)
        for step in range(STEPS):
            assert not found[step].incomplete, f"step {step} is marked INCOMPLETE: {told}"
            assert list(found[step].data) == list(expected[step].data), f"step {step} has other records: {told}"
            for name, record in found[step].data.items():
                assert record == expected[step].data[name], f"step {step}, {name}: {told}"
            assert found[step] == expected[step], f"step {step}: {told}"
            tally.records += len(found[step].data)
            tally.tensors += len(found[step].tensors)
        return tally

    def loop(self, processes, *, kills_each=(1, 2, 3, 5)):
        total, bare = Tally(), self.uncaptured()
        for number in range(processes):
            total.add(self.check(VARIANTS[number % len(VARIANTS)], bare, self.chance.choice(kills_each)))
        assert self.uncaptured() == bare, "the program that nothing captures went another way"
        return total
