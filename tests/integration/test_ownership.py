"""A run belongs to whoever made it: nobody else's records are shown as its own."""

import contextlib
import json
import os
import shutil
import subprocess

import pytest
from harness.certificates import Authority
from harness.processes import REPOSITORY, Background, environment, external_server, find_binary, free_port, run

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
FAILED = 3  # exit codes of msprobe-client
NOBODY = 65534
TOKENS = {
    "one": ("write", "1" * 20),
    "two": ("write", "2" * 20),
    "reader": ("read", "r" * 20),
    "boss": ("admin", "b" * 20),
}


class Served:
    """A server, and streams of records to it in somebody's name."""

    def __init__(self, address, reference, client):
        self.address, self.client = address, client
        self._dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"

    def send(self, name, *, ranks=1, user=None, **shown):
        """Whether a job of that run gets its records there, and the job's output."""
        command = [GENERATOR, f"--server={self.address}", f"--dump={self._dump}", f"--run={name}", f"--ranks={ranks}"]
        command += ["--steps=1", "--records=5", "--policy=drop", "--drain=10"]
        done = subprocess.run(
            [str(part) for part in command],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env=environment(**shown),
            user=user,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])["undrained_ranks"] == 0, done.stdout

    def ask(self, *command, check=True, **shown):
        done = run([self.client, "--server", self.address, "--format", "json", *command], check=check, **shown)
        return done if not check else rows_of(done.stdout)

    def owner_of(self, name, **shown):
        return next(row["owner"] for row in self.ask("runs", **shown) if row["run"] == name)


def rows_of(text):
    """The rows of either form of json output."""
    with contextlib.suppress(ValueError):
        document = json.loads(text)
        if isinstance(document, dict) and "rows" in document:
            return document["rows"]
    return [json.loads(line) for line in text.splitlines()]


@contextlib.contextmanager
def tcp_server(tmp_path, *flags):
    address = f"localhost:{free_port()}"
    command = [find_binary("msprobe-server"), f"--listen={address}", f"--data_dir={tmp_path / 'data'}", *flags]
    with Background(command, tmp_path / "server.log") as server:
        server.wait_for(lambda: " on localhost:" in server.output, 30, "the server listens")
        yield server, address


@pytest.mark.timeout(240)
def test_a_run_is_its_tokens_alone(tmp_path, client, reference):
    (tmp_path / "tokens").write_text("".join(f"{role} {name} {token}\n" for name, (role, token) in TOKENS.items()))
    for name, (_, token) in TOKENS.items():
        (tmp_path / name).write_text(token)

    def shown(name):
        return {"MSPROBE_SERVER_TOKEN_FILE": tmp_path / name}

    with tcp_server(tmp_path, f"--tokens={tmp_path / 'tokens'}") as (server, address):
        served = Served(address, reference, client)
        assert served.send("job", **shown("one"))[0]
        before = served.ask("steps", "job", **shown("reader"))
        arrived, said = served.send("job", **shown("two"))
        assert not arrived and 'run "job" belongs to token one, and this is token two' in said
        assert not served.send("job", ranks=3, **shown("two"))[0], "not as another rank, either"
        dump = reference / "dump" / "train_statistics_mix"
        done = served.ask("import", dump, "--run", "job", check=False, **shown("two"))
        assert done.returncode == FAILED and 'run "job" belongs to token one' in done.stderr
        assert served.ask("steps", "job", **shown("reader")) == before, "nothing of it has changed"
        assert served.owner_of("job", **shown("reader")) == "token one"
        assert "refused: a stream of token two" in server.output

        assert served.send("job", ranks=2, **shown("one"))[0], "its maker goes on"
        assert served.send("other job", **shown("two"))[0], "and others have runs of their own"
        assert served.send("job", **shown("boss"))[0], "an admin may"
        assert served.owner_of("job", **shown("reader")) == "token one"
        # Gone, its name is free.
        served.ask("delete", "job", "--yes", check=False, **shown("boss"))
        assert served.send("job", **shown("two"))[0]
        assert served.owner_of("job", **shown("reader")) == "token two"


@pytest.mark.timeout(240)
def test_a_run_is_its_certificates_alone(tmp_path, client, reference):
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make certificates with")
    authority = Authority(tmp_path / "authority")
    cert, key = authority.sign("server")

    def shown(name):
        ours, our_key = authority.sign(name)
        return {"MSPROBE_SERVER_CA": authority.ca, "MSPROBE_SERVER_CERT": ours, "MSPROBE_SERVER_KEY": our_key}

    flags = (f"--tls_cert={cert}", f"--tls_key={key}", f"--tls_client_ca={authority.ca}")
    with tcp_server(tmp_path, *flags) as (_, address):
        served = Served(address, reference, client)
        one, two = shown("one"), shown("two")
        assert served.send("job", **one)[0]
        arrived, said = served.send("job", **two)
        assert not arrived and 'run "job" belongs to certificate CN=one, and this is certificate CN=two' in said
        assert served.send("job", ranks=2, **one)[0]
        assert served.owner_of("job", **two) == "certificate CN=one"


@pytest.mark.timeout(240)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_run_is_its_users_alone_on_a_socket(tmp_path, short_directory, client, reference):
    short_directory.chmod(0o755)
    flags = ("--socket_mode=666",)
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log", *flags):
        served = Served(f"unix:{short_directory}/s", reference, client)
        assert served.send("job", user=NOBODY)[0]
        arrived, said = served.send("job", user=NOBODY - 1)
        assert not arrived and f'run "job" belongs to uid {NOBODY}, and this is uid {NOBODY - 1}' in said
        assert served.send("job", ranks=2, user=NOBODY)[0]
        assert served.owner_of("job") == f"uid {NOBODY}"
        assert served.send("job")[0], "root may: without tokens it is the admin, as is the server's own user"
        assert served.send("root's")[0]
        assert not served.send("root's", user=NOBODY)[0]


@pytest.mark.timeout(240)
def test_what_nobody_in_particular_made_is_everybodys(tmp_path, client, reference):
    with tcp_server(tmp_path) as (_, address):
        served = Served(address, reference, client)
        assert served.send("job")[0] and served.send("job")[0]
        assert served.owner_of("job") == ""
