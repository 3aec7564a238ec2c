"""Attacks the ports for people and for Prometheus as somebody who reaches them would: over sockets, byte by byte."""

import contextlib
import resource
import socket
import time
from pathlib import Path

import pytest
from harness.processes import external_server, find_binary, free_port, run, wait_until

SOON_S = 15  # for an answer on a busy machine; a request that was held up took 30 s and more
PLACES_OF_A_PEER = 64  # HttpServer::kOfAPeer
PLACES = 256  # HttpServer::kConnections
DEADLINE_S = 10  # for a request to come
PATHS = {"page": "/app.js", "metrics": "/metrics"}


class Ports:
    def __init__(self, server, page, metrics):
        self.server, self.of = server, {"page": page, "metrics": metrics}

    def connect(self, kind, peer="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.of[kind]), timeout=SOON_S, source_address=(peer, 0))

    def ask(self, kind, path=None, headers="Host: localhost\r\n", peer="127.0.0.1"):
        """The whole answer, on a connection of its own."""
        with self.connect(kind, peer) as one:
            one.sendall(f"GET {path or PATHS[kind]} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode())
            return heard(one)

    def answers_soon(self, kind, peer="127.0.0.1"):
        began = time.monotonic()
        assert self.ask(kind, peer=peer).startswith(b"HTTP/1.1 200 ")
        assert time.monotonic() - began < SOON_S

    def open_files(self):
        return len(list(Path(f"/proc/{self.server.process.pid}/fd").iterdir()))


def heard(connection):
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            said += more
    return said


def is_over(connection):
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("s")
    page, metrics = free_port(), free_port()
    flags = (f"--web_listen=127.0.0.1:{page}", f"--metrics_listen=127.0.0.1:{metrics}")
    # A path that a socket has room for.
    socket_path = f"/tmp/msph{time.monotonic_ns() % 10**9}"
    with external_server(socket_path, folder / "data", folder / "log", *flags) as server:
        server.wait_for(lambda: " data in " in server.output, 30, "it serves")
        yield Ports(server, page, metrics)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_connections_that_say_nothing_hold_up_nobody(ports, kind):
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):
            open_ones.enter_context(ports.connect(kind))
        ports.answers_soon(kind)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", PATHS)
def test_headers_that_drip_hold_up_nobody_and_have_one_deadline(ports, kind):
    with contextlib.ExitStack() as open_ones:
        dripping = [open_ones.enter_context(ports.connect(kind)) for _ in range(20)]
        began = time.monotonic()
        left = list(dripping)
        while left:
            for one in list(left):
                try:
                    one.sendall(b"E")
                except OSError:
                    left.remove(one)
            ports.answers_soon(kind)
            assert time.monotonic() - began < 3 * DEADLINE_S, f"{len(left)} still drip"
            time.sleep(0.5)  # the rhythm of the drops
    port = {"page": "web", "metrics": "metrics"}[kind]
    counted = f'msprobe_http_connections_cut_total{{port="{port}",reason="deadline"}}'
    assert counted.encode() in ports.ask("metrics")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_a_body_that_drips_is_not_waited_for(ports, kind):
    with ports.connect(kind) as one:
        one.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\nx")
        assert heard(one).startswith(b"HTTP/1.1 405 ")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_who_does_not_read_holds_up_nobody(ports, kind):
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):
            one = open_ones.enter_context(ports.connect(kind))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            # As many as a connection has room for, in one piece.
            with contextlib.suppress(OSError):
                one.setblocking(False)
                one.send(f"GET {PATHS[kind]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() * 5000)
        ports.answers_soon(kind)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", PATHS)
def test_ten_thousand_connections_cost_a_bounded_number_of_descriptors(ports, kind):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 12_000:
        pytest.skip(f"this process may have {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, hard))
    try:
        before = ports.open_files()
        with contextlib.ExitStack() as open_ones:
            for i in range(10_000):
                one = open_ones.enter_context(ports.connect(kind, peer=f"127.0.1.{i % 50 + 1}"))
                one.sendall(b"GET / HTTP/1.1\r\n")
                if i % 1000 == 999:
                    ports.answers_soon(kind, peer="127.0.2.1")
                    assert ports.open_files() <= before + PLACES + 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_one_peers_crowd_does_not_cost_another_its_connection(ports, kind):
    with contextlib.ExitStack() as open_ones:
        neighbour = open_ones.enter_context(ports.connect(kind, peer="127.0.3.1"))
        crowd = [open_ones.enter_context(ports.connect(kind, peer="127.0.3.2")) for _ in range(3 * PLACES_OF_A_PEER)]
        wait_until(lambda: sum(map(is_over, crowd)) >= 2 * PLACES_OF_A_PEER, SOON_S, "the crowd is thinned out")
        assert not is_over(neighbour)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_ranges_do_not_make_more_of_an_answer(ports, kind):
    plain = len(ports.ask(kind))
    many = ports.ask(kind, headers="Host: localhost\r\nRange: bytes=0-" + ",0-" * 4000 + "\r\n")
    assert many.startswith(b"HTTP/1.1 200 ") and len(many) < 1.1 * plain + 1000


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_endless_headers_are_refused(ports, kind):
    with ports.connect(kind) as one:
        with contextlib.suppress(OSError):
            one.sendall(b"GET / HTTP/1.1\r\n" + b"X-Filler: " + b"x" * 10_000_000)
        assert heard(one).startswith((b"HTTP/1.1 431 ", b""))
    with ports.connect(kind) as one:
        one.sendall(b"GET / HTTP/1.1\r\n" + b"X-Filler: x\r\n" * 1500)
        assert heard(one).startswith(b"HTTP/1.1 431 ")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", PATHS)
def test_a_name_that_was_led_here_is_not_answered(ports, kind):
    """DNS rebinding: a page of strangers has its own name lead to this address."""
    for host in ("127.attacker.example", f"127.attacker.example:{ports.of[kind]}", "127.0.0.1.evil", "localhost@evil"):
        for path in (PATHS[kind], "/api/runs"):
            assert ports.ask(kind, path, f"Host: {host}\r\n").startswith(b"HTTP/1.1 403 "), host
    for host in ("localhost", f"LOCALHOST:{ports.of[kind]}", "127.0.0.1:1", "[::1]:1"):
        assert ports.ask(kind, headers=f"Host: {host}\r\n").startswith(b"HTTP/1.1 200 "), host


@pytest.mark.timeout(60)
@pytest.mark.parametrize("flag", ["listen", "web_listen", "metrics_listen"])
@pytest.mark.parametrize(
    ("host", "is_this_machine"),
    [
        ("127.evil.example", False),
        ("127.0.0.1.evil", False),
        ("127.1", False),
        ("0177.0.0.1", False),
        ("localhost.evil", False),
        ("[::]", False),
        ("127.0.0.2", True),
        ("LOCALHOST", True),
        ("[::ffff:127.0.0.1]", True),
    ],
)
def test_only_what_is_this_machine_is_served_in_the_open(flag, host, is_this_machine, tmp_path):
    command = [find_binary("msprobe-server"), f"--data_dir={tmp_path / 'data'}", f"--{flag}={host}:0", "--check_config"]
    done = run(command, check=False, timeout=30)
    assert (done.returncode == 0) == is_this_machine, done.stderr
    assert is_this_machine or "is reachable from other machines" in done.stderr
