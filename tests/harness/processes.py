"""Processes under test: traced programs, servers, and waiting for conditions instead of sleeping."""

import contextlib
import itertools
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = REPOSITORY / "tests" / "integration" / "programs"
POLL_S = 0.05
RUN_TIMEOUT_S = 120
SERVER_LINGER_S = 60  # for an embedded server whose agents are gone


def wait_until(condition, timeout, what):
    """Returns the first true result of condition(); fails after timeout seconds, naming the condition."""
    deadline = time.monotonic() + timeout
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(POLL_S)


def environment(**changes):
    """This environment with changes; None removes a variable. The shell's own settings of msprobe do not leak in."""
    result = {key: value for key, value in os.environ.items() if key not in ("MSPROBE_SERVER", "MSPROBE_RUN")}
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = str(value)
    return result


def run(command, *, timeout=RUN_TIMEOUT_S, check=True, cwd=None, **env):
    """Runs to the end; on failure the assertion shows the end of both streams."""
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=environment(**env),
    )
    if check:
        assert done.returncode == 0, (
            f"{[str(part) for part in command]} ended with {done.returncode}\n"
            f"--- stdout\n{done.stdout[-4000:]}\n--- stderr\n{done.stderr[-8000:]}"
        )
    return done


def run_program(program, *arguments, python=sys.executable, **options):
    return run([python, program, *arguments], **options)


def run_with(python, program, *arguments, **env):
    """Runs a program with this Python, or with another one that has its own packages and must not see ours."""
    ours = {} if str(python) == sys.executable else {"PYTHONPATH": None}
    return run([python, program, *arguments], **ours, **env)


class Background:
    """A program that runs while the test looks on. Killed, with its process group, when the block is left."""

    def __init__(self, command, log, cwd=None, **env):
        self._log = pathlib.Path(log)
        with self._log.open("wb") as stream:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdout=stream,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=environment(**env),
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def output(self):
        return self._log.read_text(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def wait_for(self, condition, timeout, what):
        """As wait_until, but a program that ended meanwhile fails at once, with its output."""

        def holds():
            result = condition()
            if not result and not self.alive():
                result = condition()
                assert result, f"ended with {self.process.returncode} before: {what}\n{self.output[-8000:]}"
            return result

        try:
            return wait_until(holds, timeout, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output[-8000:]}") from None

    def finish(self, timeout=RUN_TIMEOUT_S):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s\n{self.output[-8000:]}") from None
        assert code == 0, f"ended with {code}\n{self.output[-8000:]}"

    def kill(self):
        """kill -9 of this process alone."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def launched(count, command, directory, name="rank"):
    """The ranks of one program of torch.distributed, as torchrun starts them. Logs: directory/{name}{rank}.log."""
    port = free_port()
    with contextlib.ExitStack() as ranks:
        yield [
            ranks.enter_context(
                Background(
                    command,
                    pathlib.Path(directory) / f"{name}{rank}.log",
                    RANK=rank,
                    LOCAL_RANK=rank,
                    WORLD_SIZE=count,
                    MASTER_ADDR="127.0.0.1",
                    MASTER_PORT=port,
                    PYTHONFAULTHANDLER=1,  # one that dies of a signal says where
                )
            )
            for rank in range(count)
        ]


def find_binary(name):
    """A program of this project: the server that MSPROBE_SERVER_BINARY names, or beside Python, or on PATH."""
    named = os.environ.get("MSPROBE_SERVER_BINARY") if name == "msprobe-server" else None
    if named:
        return named
    beside = pathlib.Path(sys.executable).parent / name
    return str(beside) if beside.exists() else shutil.which(name)


def processes_with(program, text):
    """Ids of the processes whose command is program and whose command line names text."""
    found = []
    for directory in pathlib.Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            command = (directory / "cmdline").read_bytes().split(b"\0")
            state = (directory / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state == "Z" or not command[0]:
            continue
        if pathlib.Path(os.fsdecode(command[0])).name == program and any(
            str(text).encode() in part for part in command
        ):
            found.append(int(directory.name))
    return found


def servers_of(path):
    """Server processes that serve a data directory at or below path."""
    return processes_with("msprobe-server", path)


def wait_for_servers_to_leave(path):
    wait_until(lambda: not servers_of(path), SERVER_LINGER_S, f"no server is left on {path}")


def accepts_connections(unix_path):
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(unix_path))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def external_server(socket_path, data_dir, log, *flags):
    """A server of its own process, ready to take sessions. Its address is unix:{socket_path}."""
    binary = find_binary("msprobe-server")
    assert binary, "msprobe-server is not built: run `make build`"
    command = [binary, "--listen", f"unix:{socket_path}", "--data_dir", data_dir, *flags]
    with Background(command, log) as server:
        server.wait_for(lambda: accepts_connections(socket_path), 30, "the server accepts connections")
        # These come after the socket, which on a busy machine may be a while.
        for address, port in http_addresses(flags):
            server.wait_for(lambda port=port: is_listening(port), 30, f"the server listens at {address}")
        yield server


def http_addresses(flags):
    """(address, port) of the http flags that name a port, written --flag=host:port or --flag host:port."""
    words = [word for flag in flags for word in str(flag).split("=", 1)]
    for name, address in itertools.pairwise(words):
        port = address.rpartition(":")[2]
        if name in ("--web_listen", "--metrics_listen") and port.isdigit() and int(port):
            yield address, int(port)


def is_listening(port):
    """Whether a TCP socket of this machine listens at the port: without a connection, which a server would count."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    return any(int(line[1].rpartition(":")[2], 16) == port and line[3] == "0A" for line in lines)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
