"""Planned agents (tests/chaos/planned_agent.cc), disturbances for them and a server, and the check of the stored
records.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import uuid

import pytest

from harness.processes import REPOSITORY, Background, find_binary, run, wait_until

AGENT = REPOSITORY / "build" / "tests" / "chaos" / "planned_agent"
RECORDS = 200
CHECK_S = 600


class PlannedAgent(Background):
    """One rank in a process of its own."""

    def __init__(self, directory, server, *, run_name="job", rank=0, prefix=(), **flags):
        assert AGENT.exists(), f"{AGENT} is not built: run `make build`, then `ninja -C build`"
        self.directory = pathlib.Path(directory)
        self.progress = self.directory / f"{run_name}.{rank}.progress"
        given = {"run": run_name, "rank": rank, "records": RECORDS, "server": server, "progress": self.progress}
        given |= {"spool": self.directory / f"spool{rank}", **flags}
        command = [*prefix, AGENT, *(f"--{name}={value}" for name, value in given.items())]
        super().__init__(command, self.directory / f"{run_name}.{rank}.log")

    def _numbers(self):
        text = self.progress.read_text().split() if self.progress.exists() else []
        return [int(number) for number in text] if len(text) == 3 else [0, 0, 0]

    @property
    def emitted(self):
        return self._numbers()[0]

    @property
    def durable(self):
        return self._numbers()[1]

    @property
    def held_ms(self):
        """The longest time that one step held its thread."""
        return self._numbers()[2]

    def reaches(self, steps, timeout=60):
        self.wait_for(lambda: self.emitted >= steps, timeout, f"{steps} steps are emitted")

    def outcome(self, timeout=240):
        self.finish(timeout)
        return json.loads(self.output.strip().splitlines()[-1])

    @contextlib.contextmanager
    def frozen(self):
        self.process.send_signal(signal.SIGSTOP)
        yield
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def frozen(server):
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


def end(server):
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(60) == 0, server.output[-4000:]


def check(data_dir, *, run_name="job", rank=0, acknowledged=0, steps=None, gaps=False):
    """Checks the data directory of a server that is gone. Fails with every line of the check; gives the number of
    complete steps.
    """
    flags = [f"--check={data_dir}", f"--run={run_name}", f"--rank={rank}", f"--records={RECORDS}"]
    flags += [f"--acknowledged={acknowledged}", f"--gaps={str(gaps).lower()}"]
    if steps is not None:
        flags.append(f"--steps={steps}")
    return int(run([AGENT, *flags], timeout=CHECK_S).stdout)


def spooled_bytes(directory):
    return sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*.spool"))


def as_root(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, timeout=60)


@dataclasses.dataclass(frozen=True)
class Network:
    """Two network namespaces, joined by a cable that can be pulled."""

    near: str  # of agents
    far: str  # of the server
    address: str  # of the server

    def within(self, name):
        return ("ip", "netns", "exec", name)

    def plugged(self, there):
        done = as_root(*self.within(self.far), "ip", "link", "set", "cable", "up" if there else "down")
        assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def network():
    """Skips where namespaces cannot be made."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and iproute2's ip")
    tag = uuid.uuid4().hex[:6]
    near, far = f"msp{tag}a", f"msp{tag}b"
    try:
        for name in (near, far):
            done = as_root("ip", "netns", "add", name)
            if done.returncode != 0:
                pytest.skip(f"network namespaces are not allowed here: {done.stderr.strip()}")
        for command in (
            f"ip link add msp{tag} netns {near} type veth peer name cable netns {far}",
            f"ip -n {near} address add 10.213.7.1/30 dev msp{tag}",
            f"ip -n {far} address add 10.213.7.2/30 dev cable",
            f"ip -n {near} link set msp{tag} up",
            f"ip -n {far} link set cable up",
            f"ip -n {far} link set lo up",
        ):
            done = as_root(*command.split())
            if done.returncode != 0:
                pytest.skip(f"`{command}` is not allowed here: {done.stderr.strip()}")
        yield Network(near, far, "10.213.7.2:50051")
    finally:
        for name in (near, far):
            as_root("ip", "netns", "delete", name)


@contextlib.contextmanager
def server_in(there, data_dir, log, *flags, prefix=()):
    """A server in the far namespace, ready."""
    binary = find_binary("msprobe-server")
    command = [*there.within(there.far), *prefix, binary, f"--listen={there.address}", "--insecure"]
    with Background([*command, f"--data_dir={data_dir}", "--log_level=info", *flags], log) as server:
        host, _, port = there.address.rpartition(":")
        probe = f"exec 3<>/dev/tcp/{host}/{port}"
        ready = lambda: as_root(*there.within(there.near), "bash", "-c", probe).returncode == 0  # noqa: E731
        server.wait_for(ready, 30, "the server accepts connections")
        yield server


@contextlib.contextmanager
def small_disk(directory, mebibytes):
    """A small file system that is soon full. Skips where nothing can be mounted."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True)
    done = as_root("mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", directory)
    if done.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not allowed here: {done.stderr.strip()}")
    try:
        yield directory
    finally:
        wait_until(lambda: as_root("umount", directory).returncode == 0, 30, f"{directory} is unmounted")
