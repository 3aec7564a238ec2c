"""A server that is closed to strangers: TLS, mutual TLS, tokens and roles, sockets, refused addresses."""

import contextlib
import json
import shutil
import socket
import sys
import threading

import pytest
from harness.certificates import Authority
from harness.processes import REPOSITORY, Background, external_server, find_binary, free_port, run, wait_until
from msprobe_client import Client
from msprobe_client.access import Access
from msprobe_client.errors import AccessDenied

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
FAILED = 3  # exit codes of msprobe-client
TOKENS = {"read": "r" * 20, "write": "w" * 20, "control": "c" * 20, "admin": "a" * 20}


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    directory = tmp_path_factory.mktemp("certificates")
    return Authority(directory / "one"), Authority(directory / "other")


@pytest.fixture
def tokens(tmp_path):
    """The file of the server, and one a role for its clients."""
    path = tmp_path / "tokens"
    path.write_text("".join(f"{role} the-{role} {token}\n" for role, token in TOKENS.items()))
    for role, token in TOKENS.items():
        (tmp_path / role).write_text(token + "\n")
    return path


@contextlib.contextmanager
def tcp_server(tmp_path, *flags):
    address = f"localhost:{free_port()}"
    log = tmp_path / "server.log"
    binary = find_binary("msprobe-server")
    with Background([binary, f"--listen={address}", f"--data_dir={tmp_path / 'data'}", *flags], log) as server:
        server.wait_for(lambda: " on localhost:" in server.output, 30, "the server listens")
        yield address


def asks(client, address, *flags, **environment):
    """Exit code and output."""
    done = run([client, "--server", address, *flags, "--format", "json", "runs"], check=False, **environment)
    return done.returncode, done.stderr


def send(reference, address, patience, environment):
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    flags = [f"--server={address}", f"--dump={dump}", "--ranks=1", "--steps=1", "--records=5", f"--drain={patience}"]
    done = run([GENERATOR, *flags, "--policy=drop"], **environment)
    return json.loads(done.stdout.splitlines()[-1])["undrained_ranks"] == 0, done.stdout


def streams(reference, address, **environment):
    """Whether an agent gets its records to the server."""
    return send(reference, address, 60, environment)[0]


def is_refused(reference, address, **environment):
    arrived, said = send(reference, address, 2, environment)
    return not arrived and "cannot be reached" in said


@pytest.mark.timeout(120)
def test_tls_serves_who_knows_its_authority_and_new_certificates_without_a_restart(
    tmp_path, client, reference, authorities
):
    one, other = authorities
    served = tmp_path / "served"
    served.mkdir()

    def serve(authority):
        for source, name in zip(authority.sign("server"), ("cert", "key"), strict=True):
            shutil.copy(source, served / f"{name}.new")
            (served / f"{name}.new").replace(served / name)

    serve(one)
    flags = [f"--tls_cert={served}/cert", f"--tls_key={served}/key", "--tls_reload_seconds=1"]
    with tcp_server(tmp_path, *flags) as address:
        assert asks(client, address, "--ca", one.ca) == (0, "")
        assert asks(client, address, MSPROBE_SERVER_CA=one.ca) == (0, "")
        assert asks(client, address, "--ca", other.ca)[0] == FAILED
        assert asks(client, address)[0] == FAILED, "plain"
        assert streams(reference, address, MSPROBE_SERVER_CA=one.ca)
        assert is_refused(reference, address, MSPROBE_SERVER_CA=other.ca)
        serve(other)
        wait_until(lambda: asks(client, address, "--ca", other.ca)[0] == 0, 30, "the new certificate is served")
        assert asks(client, address, "--ca", one.ca)[0] == FAILED
        assert streams(reference, address, MSPROBE_SERVER_CA=other.ca)


@pytest.mark.timeout(120)
def test_files_and_servers_without_tls_are_named(tmp_path, client, authorities):
    one, other = authorities
    (cert, key), (_, their_key) = one.sign("client"), other.sign("client")
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate\n")
    with tcp_server(tmp_path) as address:
        assert f"ca {junk} is no certificate; it should be" in asks(client, address, "--ca", junk)[1]
        for first, second in (junk, key), (cert, junk), (cert, their_key):
            said = asks(client, address, "--ca", one.ca, "--cert", first, "--key", second)[1]
            assert f"cert {first} and key {second} are no certificate with its key; both should be" in said
        assert f"{address} speaks no TLS; leave out --ca" in asks(client, address, "--ca", one.ca)[1]


@pytest.mark.timeout(120)
def test_mutual_tls_serves_who_shows_a_certificate_of_its_authority(tmp_path, client, reference, authorities):
    one, other = authorities
    (cert, key), (ours, our_key), (theirs, their_key) = one.sign("server"), one.sign("client"), other.sign("client")
    with tcp_server(tmp_path, f"--tls_cert={cert}", f"--tls_key={key}", f"--tls_client_ca={one.ca}") as address:
        assert asks(client, address, "--ca", one.ca, "--cert", ours, "--key", our_key) == (0, "")
        assert asks(client, address, "--ca", one.ca, "--cert", theirs, "--key", their_key)[0] == FAILED
        assert asks(client, address, "--ca", one.ca)[0] == FAILED
        shown = {"MSPROBE_SERVER_CA": one.ca, "MSPROBE_SERVER_CERT": ours, "MSPROBE_SERVER_KEY": our_key}
        assert streams(reference, address, **shown)
        assert is_refused(reference, address, MSPROBE_SERVER_CA=one.ca)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["loopback", "tls"])
def test_a_token_opens_what_its_role_may(kind, tmp_path, client, reference, tokens, request):
    flags, environment = [f"--tokens={tokens}"], {}
    with contextlib.ExitStack() as stack:
        if kind == "tls":
            one, _ = request.getfixturevalue("authorities")
            cert, key = one.sign("server")
            flags += [f"--tls_cert={cert}", f"--tls_key={key}"]
            environment["MSPROBE_SERVER_CA"] = one.ca
        address = stack.enter_context(tcp_server(tmp_path, *flags))

        def tell(role, *command):
            shown = ["--token_file", tmp_path / role] if role else []
            return run([client, "--server", address, *shown, *command], check=False, **environment)

        code, said = asks(client, address, **environment)
        assert (code, "wants a token" in said) == (FAILED, True)
        code, said = asks(client, address, "--token_file", tokens, **environment)
        assert (code, "does not know the token" in said) == (FAILED, True)
        writer = {**environment, "MSPROBE_SERVER_TOKEN_FILE": tmp_path / "write"}
        assert streams(reference, address, **writer)
        reader = {**environment, "MSPROBE_SERVER_TOKEN_FILE": tmp_path / "read"}
        assert is_refused(reference, address, **reader)
        for role, allowed in {"read": True, "admin": True, "write": False, "control": False}.items():
            done = tell(role, "steps", "load")
            assert (done.returncode == 0) == allowed, done.stderr
            assert allowed or f'"the-{role}" does not have the role read' in done.stderr
        assert tell("read", "delete", "load", "--yes").returncode == FAILED
        assert tell("admin", "delete", "load", "--yes").returncode == 0


@pytest.mark.timeout(60)
def test_tokens_follow_their_file(tmp_path, client, short_directory, tokens):
    address = f"unix:{short_directory}/s"
    (tmp_path / "new").write_text("n" * 20)
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log", f"--tokens={tokens}"):
        assert asks(client, address, "--token_file", tmp_path / "new")[0] == FAILED
        tokens.write_text(f"read late {'n' * 20}\n")
        wait_until(
            lambda: asks(client, address, "--token_file", tmp_path / "new")[0] == 0, 20, "the new token is known"
        )
        assert asks(client, address, "--token_file", tmp_path / "read")[0] == FAILED


@pytest.fixture
def trap():
    """(address, heard): looks like another machine to a program, and writes down everything that comes."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as route:
        try:
            route.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback's")
        own = route.getsockname()[0]
    heard = []
    with socket.create_server((own, 0)) as listening:
        listening.settimeout(0.1)
        over = threading.Event()

        def listen():
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listening.accept()
                    with connection:
                        connection.settimeout(1)
                        heard.append(connection.recv(1 << 16))

        thread = threading.Thread(target=listen)
        thread.start()
        yield f"{own}:{listening.getsockname()[1]}", heard
        over.set()
        thread.join()


@pytest.mark.timeout(120)
def test_a_token_never_leaves_this_machine_in_the_open(tmp_path, client, reference, tokens, trap):
    address, heard = trap
    code, said = asks(client, address, "--token_file", tmp_path / "read")
    assert code == FAILED
    assert f"would go to {address} readable by all on the way; give --ca" in said
    assert asks(client, address, MSPROBE_SERVER_TOKEN_FILE=tmp_path / "read", MSPROBE_SERVER_CA="")[0] == FAILED
    shown = {"MSPROBE_SERVER_TOKEN_FILE": str(tmp_path / "write")}
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    flags = [f"--server={address}", f"--dump={dump}", "--ranks=1", "--steps=1", "--records=5", "--drain=1"]
    done = run([GENERATOR, *flags], check=False, **shown)
    assert done.returncode != 0
    program = (
        "from msprobe.pytorch import PrecisionDebugger\n"
        f"PrecisionDebugger(config_path={str(tmp_path / 'config.json')!r})\n"
    )
    (tmp_path / "config.json").write_text(
        json.dumps({"task": "statistics", "dump_path": str(tmp_path), "level": "L1", "server": address})
    )
    done = run([sys.executable, "-c", program], check=False, **shown)
    assert done.returncode != 0
    assert f'would go to "{address}" readable by all on the way; give server_ca' in done.stderr
    assert heard == [], "nobody has even connected"


@pytest.mark.timeout(60)
def test_who_is_refused_stands_in_the_log_ten_lines_a_minute(tmp_path, client, short_directory, tokens):
    address = f"unix:{short_directory}/s"
    with external_server(
        short_directory / "s", tmp_path / "data", tmp_path / "server.log", f"--tokens={tokens}"
    ) as server:
        with Client(address, access=Access(token_file=str(tmp_path / "write"))) as typed:
            for _ in range(50):
                with pytest.raises(AccessDenied):
                    typed.runs()
        lines = [line for line in server.output.splitlines() if " refused: " in line]
    assert lines[0].endswith(
        'refused: /msprobe.v1.Query/ListRuns of token the-write: the token of "the-write" does not have the role read'
    )
    assert len(lines) == 10


@pytest.mark.timeout(60)
def test_a_tokens_file_that_others_can_read_is_warned_of(tmp_path, short_directory, tokens):
    for mode, warned in ((0o600, False), (0o640, False), (0o604, True), (0o666, True)):
        tokens.chmod(mode)
        with external_server(
            short_directory / "s", tmp_path / "data", tmp_path / "server.log", f"--tokens={tokens}"
        ) as server:
            server.wait_for(lambda server=server: " data in " in server.output, 30, "it serves")
            assert (f"--tokens={tokens} is open to every user of this machine" in server.output) == warned, oct(mode)


@pytest.mark.timeout(60)
def test_names_from_outside_make_no_lines_in_the_log(tmp_path, client, reference, short_directory):
    name = "job\n2026-01-31 12:00:00.000 [error] the disk failed\x1b[2J\x9b31m\u202e"
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log") as server:
        dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
        flags = [f"--server=unix:{short_directory}/s", f"--dump={dump}", f"--run={name}", "--ranks=1", "--steps=1"]
        run([GENERATOR, *flags, "--records=5"])
        said = server._log.read_bytes()
    assert b"of run job\\n2026-01-31 12:00:00.000 [error] the disk failed\\x1b[2J\\x9b31m\\u202e (" in said
    assert b"\x1b" not in said and b"\xc2\x9b" not in said
    assert not any(line.startswith(b"2026-01-31") for line in said.splitlines())


@pytest.mark.timeout(120)
def test_a_tensors_name_does_not_keep_its_run_from_being_exported(tmp_path, client, short_directory):
    address = f"unix:{short_directory}/s"
    config = {"task": "tensor", "dump_path": str(tmp_path / "dump"), "level": "debug", "server": address, "run": "job"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    program = (
        "import torch\nfrom msprobe.pytorch import PrecisionDebugger\n"
        f"debugger = PrecisionDebugger(config_path={str(tmp_path / 'config.json')!r})\n"
        "debugger.save(torch.ones(3), 'a\\\\..\\\\b', save_backward=False)\n"
        "debugger.save(torch.ones(3), 'c/../d', save_backward=False)\n"
        "debugger.step()\nassert debugger.wait(30)\n"
    )
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log"):
        run([sys.executable, "-c", program])
        run([client, "--server", address, "export", "job", "-o", tmp_path / "out"])
    files = {path.name for path in (tmp_path / "out").rglob("*.pt")}
    assert files == {"a_.._b.0.debug.pt", "c_.._d.0.debug.pt"}


@pytest.mark.timeout(60)
def test_a_certificate_that_has_expired_is_refused_at_the_start(tmp_path, authorities):
    one, _ = authorities
    cert, key = one.sign("expired", days=-1)
    command = [find_binary("msprobe-server"), "--listen=127.0.0.1:0", f"--data_dir={tmp_path / 'data'}"]
    done = run([*command, f"--tls_cert={cert}", f"--tls_key={key}"], check=False, timeout=30)
    assert done.returncode == 2
    assert f"--tls_cert={cert} has expired at 20" in done.stderr and "give one that is valid" in done.stderr


@pytest.mark.timeout(60)
def test_a_socket_has_the_mode_that_was_asked_for(tmp_path, short_directory):
    for flags, mode in (((), 0o600), (("--socket_mode=660",), 0o660)):
        with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log", *flags):
            assert (short_directory / "s").stat().st_mode & 0o777 == mode


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--listen=0.0.0.0:0"], "--tls_cert and --tls_key"),
        (["--listen=[::]:0"], "--insecure"),
        (["--listen=0.0.0.0:0", "--insecure", "--tokens=TOKENS"], "readable by all"),
        (["--listen=127.0.0.1:0", "--metrics_listen=0.0.0.0:0"], "metrics have neither encryption nor tokens"),
        (["--listen=127.0.0.1:0", "--tls_cert=/nowhere"], "go together"),
        (["--listen=127.0.0.1:0", "--tls_cert=/nowhere", "--tls_key=/nowhere"], "--tls_cert=/nowhere cannot be read"),
        (["--listen=127.0.0.1:0", "--tls_client_ca=/nowhere"], "needs --tls_cert"),
        (["--listen=127.0.0.1:0", "--tokens=/nowhere"], "cannot be read"),
        (["--listen=127.0.0.1:0", "--socket_mode=9"], "octal"),
        (["--listen=127.0.0.1:0", "--metrics_listen=9090"], "--metrics_listen=9090: it is not one host:port"),
        (["--listen=::1:50051"], "is not host:port"),
    ],
)
def test_what_is_open_to_strangers_is_refused_with_what_to_do(flags, says, tmp_path, tokens):
    command = [find_binary("msprobe-server"), f"--data_dir={tmp_path / 'data'}"]
    done = run([*command, *(flag.replace("TOKENS", str(tokens)) for flag in flags)], check=False, timeout=30)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
