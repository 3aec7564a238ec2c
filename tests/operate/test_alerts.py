"""Every alert of deploy/prometheus fires in a real Prometheus, from a fault of a real server or of a program at it.

All faults happen at once, to a few servers, so that the whole takes about a minute: as long as a server waits for a
process that may come back. The rules are those of deploy/, but for times and amounts that nobody waits for: see
`faster`.
"""

import contextlib
import dataclasses
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading

import pytest
import yaml
from harness.certificates import Authority
from harness.dumps import write_config
from harness.fire import PlannedAgent, small_disk
from harness.processes import REPOSITORY, Background, accepts_connections, find_binary, free_port, wait_until
from harness.prometheus import scraping
from msprobe_client import Client, MsprobeError
from msprobe_client.access import Access

RULES = REPOSITORY / "deploy" / "prometheus" / "rules.yaml"
GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
WITHIN_S = 90  # on a busy machine; twenty seconds are usual
DISK_MIB = 48

# Where a limit is a time or an amount of bytes, what the test has in its place.
LIMITS = {"> 1800": "> 8", "> 256 * 1024 * 1024": "> 256", "unchecked_seconds > 300": "unchecked_seconds > 2"}

# Alert -> the server at which it fires.
ALERTS = {
    "MsprobeInf": "plain",
    "MsprobeServerDown": "gone",
    "MsprobeNothingNewIsStored": "full",
    "MsprobeDiskFillsUp": "full",
    "MsprobeRankStalled": "plain",
    "MsprobeSessionsLost": "plain",
    "MsprobeRecordsLost": "slow",
    "MsprobeAgentsFallBehind": "slow",
    "MsprobeSlow": "slow",
    "MsprobeOverflowNotLookedAt": "watching",
    "MsprobeCallsDenied": "guarded",
    "MsprobeShardsUnreachable": "full",
    "MsprobeCertificateExpires": "guarded",
    "MsprobeCertificateExpired": "expired",
    "MsprobeFewDescriptorsLeft": "plain",
    "MsprobeChecksFallBehind": "plain",
}
# These have their promtool cases, and:
ELSEWHERE = {
    "MsprobeNaN": "test_prometheus.py plants a NaN",
    "MsprobeWrongOperator": "tests/integration/test_live_check.py plants a wrong kernel and reads the metric",
    "MsprobeStoreTrouble": "the server's own limit of memory makes writers wait long before RocksDB would stop them",
}


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule]


def faster(text):
    """Rules that wait a second where they waited a minute; whose limits of LIMITS are small."""
    text = re.sub(r"(?m)^( +for: )(\d+)m$", r"\1\2s", text)
    for limit, small in LIMITS.items():
        assert limit in text, f"no rule has the limit {limit}"
        text = text.replace(limit, small)
    return text


def test_every_alert_fires_here_or_is_excused():
    assert {rule["alert"] for rule in rules()} == set(ALERTS) | set(ELSEWHERE)


def test_only_waiting_and_limits_differ_from_what_is_deployed():
    kept, copy = yaml.safe_load(RULES.read_text()), yaml.safe_load(faster(RULES.read_text()))
    different = [
        (rule.get("alert"), key)
        for group, other in zip(kept["groups"], copy["groups"], strict=True)
        for rule, its_copy in zip(group["rules"], other["rules"], strict=True)
        for key in rule
        if rule[key] != its_copy[key] and key != "for"
    ]
    assert different == [
        (alert, "expr") for alert in ("MsprobeRankStalled", "MsprobeAgentsFallBehind", "MsprobeChecksFallBehind")
    ]


@dataclasses.dataclass
class Server:
    process: Background
    address: str
    instance: str  # as Prometheus calls it
    directory: pathlib.Path


class Scene:
    """Servers by name, and the faults that happen to them."""

    def __init__(self, directory, sockets, stack):
        self.directory, self._sockets, self._stack = directory, sockets, stack
        self.servers = {"gone": Server(None, "", f"127.0.0.1:{free_port()}", directory)}

    def start(self, name, *flags, data=None, **environment):
        directory = self.directory / name
        directory.mkdir()
        address, port = self._sockets / name, free_port()
        where = [f"--listen=unix:{address}", f"--data_dir={data or directory / 'data'}"]
        command = [find_binary("msprobe-server"), *where, f"--metrics_listen=127.0.0.1:{port}", *flags]
        process = self.begin(command, directory / "log", **environment)
        process.wait_for(lambda: accepts_connections(address), 60, f"{name} listens")
        self.servers[name] = Server(process, f"unix:{address}", f"127.0.0.1:{port}", directory)
        return self.servers[name]

    def begin(self, command, log, **environment):
        return self._stack.enter_context(Background(command, log, **environment))

    def agent(self, server, rank, **flags):
        return self._stack.enter_context(
            PlannedAgent(server.directory, server.address, rank=rank, pause_ms=100, drain=1, **flags)
        )

    # What happens to programs of one server.

    def infinities(self, server, programs):
        """It also keeps a session open."""
        config = write_config(server.directory / "config.json", server.directory / "dump", server=server.address)
        program = [sys.executable, programs / "overflowing.py", "--config", config, "--inf-at", "2"]
        self.begin([*program, "--go", server.directory / "never"], server.directory / "program.log")

    def unchecked(self, server):
        """Calls that wait for a check, and no worker."""
        config = write_config(
            server.directory / "check.json", server.directory / "dump", task="check", server=server.address
        )
        program = REPOSITORY / "tests" / "integration" / "programs" / "live_check.py"
        command = [sys.executable, program, server.directory / "nothing", "3", config]
        self.begin(command, server.directory / "unchecked.log")

    def killed_and_frozen(self, server):
        killed, frozen = (self.agent(server, rank) for rank in range(2))
        for agent in (killed, frozen):
            agent.wait_for(lambda agent=agent: agent.durable >= 2, 60, "steps are durable")
        killed.kill()
        frozen.process.send_signal(signal.SIGSTOP)

    def few_descriptors(self, server):
        pid = server.process.process.pid
        used = sum(1 for _ in pathlib.Path(f"/proc/{pid}/fd").iterdir())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 4, used + 4))

    def loss(self, server):
        """Agents at a slow disk: one that drops, one that has to hold."""
        self.agent(server, 0, policy="drop", memory_mb=1, records=2000)
        self.agent(server, 1)
        (server.directory / "slow").touch()

    def too_many_steps(self, server, reference):
        dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
        flags = ("--ranks=8", "--records=20", "--seconds=30", "--threads=4", "--drain=1")
        command = [GENERATOR, f"--server={server.address}", f"--dump={dump}", *flags]
        self.begin(command, server.directory / "load.log")

    def disk_filling(self, server, disk):
        """Over some scrapes, then without room."""
        path = disk / "ballast"

        def fill(over):
            with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
                while not over.wait(0.25):
                    ballast.write(b"\0" * (4 << 20))

        self._meanwhile(fill)
        return server

    def calls(self, server):
        wrong = server.directory / "wrong"
        wrong.write_text("f" * 32 + "\n")

        def call(over):
            with Client(server.address, access=Access(token_file=str(wrong))) as client:
                while not over.wait(0.2):
                    with contextlib.suppress(MsprobeError):
                        client.server_info()

        self._meanwhile(call)

    def _meanwhile(self, call):
        over = threading.Event()
        thread = threading.Thread(target=call, args=(over,))
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(over.set)


def certificates(directory):
    """A certificate of two days, and one that has ended."""
    authority = Authority(directory)
    return authority.sign("valid"), authority.sign("ended", days=-1)


@pytest.fixture(scope="module")
def scene(tmp_path_factory, prometheus, reference):
    """All faults, as Prometheus sees them."""
    for program in (GENERATOR, REPOSITORY / "build" / "tests" / "chaos" / "planned_agent"):
        assert program.exists(), f"{program} is not built: run ninja -C build {program.name}"
    directory, sockets = tmp_path_factory.mktemp("alerts"), tmp_path_factory.mktemp("s")
    programs = pathlib.Path(__file__).parent / "programs"
    with contextlib.ExitStack() as stack:
        scene = Scene(directory, sockets, stack)
        preloaded = directory / "slow_disk.so"
        source = REPOSITORY / "tests" / "harness" / "slow_disk.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", preloaded, source, "-ldl"], check=True)
        (cert, key), ended = certificates(directory / "authority")
        (directory / "tokens").write_text(f"admin operator {'0123456789abcdef' * 2}\n")
        disk = stack.enter_context(small_disk(directory / "disk", DISK_MIB))

        plain = scene.start("plain")
        scene.killed_and_frozen(plain)  # first: a minute passes until a session counts as lost
        slow_switch = directory / "slow" / "slow"
        slow = scene.start("slow", LD_PRELOAD=preloaded, SLOW_DISK=slow_switch)
        watching = scene.start("watching", "--watch=" + ",".join(f"w{i}=*.*.*.{i}*:max" for i in range(16)))
        address = f"unix:{sockets / 'full'}"
        shards = (f"--shards={address},unix:{sockets / 'nobody'}", f"--this_shard={address}")
        full = scene.start("full", "--reserve_disk_mib=16", *shards, data=disk / "data")
        guarded = scene.start("guarded", f"--tokens={directory / 'tokens'}", f"--tls_cert={cert}", f"--tls_key={key}")
        copies = [(directory / "authority" / f"copy.{kind}") for kind in ("pem", "key")]
        for copy, source in zip(copies, (cert, key), strict=True):
            copy.write_bytes(source.read_bytes())
        scene.start("expired", f"--tls_cert={copies[0]}", f"--tls_key={copies[1]}", "--tls_reload_seconds=1")

        (directory / "rules.yaml").write_text(faster(RULES.read_text()))
        targets = [server.instance for server in scene.servers.values()]
        scene.seen = stack.enter_context(scraping(prometheus, directory, targets, directory / "rules.yaml"))
        up = "count(up == 1)"
        wait_until(lambda: [value for _, value in scene.seen.ask(up)] == [len(targets) - 1], 30, "all are scraped")

        for copy, source in zip(copies, ended, strict=True):
            copy.write_bytes(source.read_bytes())
        scene.disk_filling(full, disk)
        scene.calls(guarded)
        scene.loss(slow)
        scene.infinities(plain, programs)
        scene.unchecked(plain)
        scene.too_many_steps(watching, reference)
        wait_until(lambda: scene.seen.ask("msprobe_overflow_producers_total"), 60, "infinities are counted")
        scene.few_descriptors(plain)
        yield scene


@pytest.mark.timeout(300)
@pytest.mark.parametrize("alert", ALERTS)
def test_the_alert_fires(alert, scene):
    def of_the_server():
        """Others may have the fault, too, and sooner."""
        fired = scene.seen.fired(alert)
        instances = {labels["instance"] for labels in fired if "instance" in labels}
        return fired if not instances or scene.servers[ALERTS[alert]].instance in instances else []

    fired = wait_until(of_the_server, WITHIN_S, f"{alert} fires at the server {ALERTS[alert]}")
    (rule,) = (rule for rule in rules() if rule["alert"] == alert)
    assert all(labels["severity"] == rule["labels"]["severity"] for labels in fired)


@pytest.mark.timeout(300)
def test_what_has_no_fault_stays_quiet(scene):
    """No server but the one with the fault fires, where only one can have it."""
    for alert in ("MsprobeNothingNewIsStored", "MsprobeSlow", "MsprobeCertificateExpired", "MsprobeServerDown"):
        wait_until(lambda alert=alert: scene.seen.fired(alert), WITHIN_S, f"{alert} fires")
        instances = {labels["instance"] for labels in scene.seen.fired(alert)}
        assert instances == {scene.servers[ALERTS[alert]].instance}
