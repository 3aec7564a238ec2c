"""Servers of one cluster that show each other certificates and tokens."""

import contextlib
import functools
import json
import shutil

import pytest
from harness import answers
from harness.certificates import Authority
from harness.processes import REPOSITORY, Background, find_binary, free_port, run, wait_until

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
FAILED = 3  # exit codes of msprobe-client
RANKS, STEPS = 30, 2  # as many that each of three servers has some, whatever its address
TOKENS = {"read": "r" * 20, "write": "w" * 20, "admin": "a" * 20}


class Guarded:
    """Three servers on TCP, each with a certificate of the authority, a token file, and a token that it shows."""

    def __init__(self, directory, authority, client):
        self.directory, self.authority, self.client = directory, authority, client
        self.addresses = [f"localhost:{port}" for port in sorted(free_port() for _ in range(3))]
        tokens = "".join(f"{role} the-{role} {token}\n" for role, token in TOKENS.items())
        (directory / "tokens").write_text(tokens)
        for role, token in TOKENS.items():
            (directory / role).write_text(token + "\n")
        cert, key = authority.sign("client")
        self.shown = {
            "MSPROBE_SERVER_CA": authority.ca,
            "MSPROBE_SERVER_CERT": cert,
            "MSPROBE_SERVER_KEY": key,
        }

    def shows(self, i, token):
        """Changes the token that a server shows the others from its next call on."""
        (self.directory / f"shown{i}.new").write_text(token + "\n")
        (self.directory / f"shown{i}.new").replace(self.directory / f"shown{i}")

    @contextlib.contextmanager
    def server(self, i, authority):
        cert, key = authority.sign(f"server{i}")
        self.shows(i, TOKENS["admin"])
        command = [
            find_binary("msprobe-server"),
            f"--listen={self.addresses[i]}",
            f"--data_dir={self.directory / f'data{i}'}",
            f"--tls_cert={cert}",
            f"--tls_key={key}",
            f"--tls_client_ca={self.authority.ca}",
            f"--shard_ca={self.authority.ca}",
            f"--tokens={self.directory / 'tokens'}",
            f"--shard_token_file={self.directory / f'shown{i}'}",
            f"--shards={','.join(self.addresses)}",
            f"--this_shard={self.addresses[i]}",
        ]
        with Background(command, self.directory / f"log{i}") as server:
            server.wait_for(lambda: f" on {self.addresses[i]}" in server.output, 30, "the server listens")
            yield server

    def ask(self, i, *command, role="read"):
        """Rows, exit code, and the lines on stderr."""
        shown = ["--token_file", self.directory / role]
        done = run(
            [self.client, "--server", self.addresses[i], *shown, "--format", "json", *command],
            check=False,
            **self.shown,
        )
        return answers.rows(done.stdout), done.returncode, done.stderr


@pytest.fixture(scope="module")
def authorities(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    directory = tmp_path_factory.mktemp("certificates")
    return Authority(directory / "one"), Authority(directory / "other")


@pytest.mark.timeout(180)
def test_servers_of_a_cluster_answer_each_other_by_certificate_and_token(tmp_path, client, reference, authorities):
    one, other = authorities
    cluster = Guarded(tmp_path, one, client)

    def whole(i):
        rows, code, said = cluster.ask(i, "steps", "load")
        return (len(rows), code, said) == (RANKS * STEPS, 0, "")

    with contextlib.ExitStack() as first_two:
        for i in range(2):
            first_two.enter_context(cluster.server(i, one))
        with cluster.server(2, one):
            for i in range(3):
                wait_until(lambda i=i: cluster.ask(i, "runs") == ([], 0, ""), 30, f"server {i} reaches the others")
            dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
            flags = [f"--dump={dump}", f"--ranks={RANKS}", f"--steps={STEPS}", "--records=10", "--memory_mb=4"]
            agents = {**cluster.shown, "MSPROBE_SERVER_TOKEN_FILE": tmp_path / "write"}
            done = run([GENERATOR, f"--server={cluster.addresses[0]}", *flags], **agents)
            counts = json.loads(done.stdout.splitlines()[-1])
            assert (counts["undrained_ranks"], counts["fragments_dropped"], counts["faults"]) == (0, 0, 0), done.stderr
            assert all(whole(i) for i in range(3))

            # Tokens are read at every call: this one nobody knows.
            cluster.shows(2, "x" * 20)
            rows, code, said = cluster.ask(2, "steps", "load")
            assert code == FAILED
            assert 0 < len(rows) < RANKS * STEPS, "what it has itself is still shown"
            assert all(address in said for address in cluster.addresses[:2]), said
            assert "token" in said, said
            assert whole(0) and whole(1), "the others are not concerned"

            # One that may read: questions are whole, but deleting is not passed on.
            cluster.shows(2, TOKENS["read"])
            assert whole(2)
            done = run(
                [
                    client,
                    "--server",
                    cluster.addresses[2],
                    "--token_file",
                    tmp_path / "admin",
                    "delete",
                    "load",
                    "--yes",
                ],
                check=False,
                **cluster.shown,
            )
            assert done.returncode == FAILED
            assert any(address in done.stderr for address in cluster.addresses[:2]), done.stderr
            assert "the-read" in done.stderr, "the token that may not is named"
            cluster.shows(2, TOKENS["admin"])
            assert whole(2)

        # It comes back with a certificate of an authority that the others do not know.
        with cluster.server(2, other):
            rows, code, said = cluster.ask(0, "steps", "load")
            assert code == FAILED
            assert 0 < len(rows) < RANKS * STEPS
            assert cluster.addresses[2] in said
        with cluster.server(2, one):
            wait_until(functools.partial(whole, 0), 30, "the others see it again")
