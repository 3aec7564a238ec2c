"""A live scrape of a server under load, beside what docs/metrics.md says of it."""

import dataclasses
import re
import urllib.request

import pytest
from harness.fire import PlannedAgent, end
from harness.processes import REPOSITORY, external_server, free_port, wait_until

ROW = re.compile(r"\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| (.+) \|$")
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
STEPS = 20


@dataclasses.dataclass
class Family:
    type: str
    labels: set = dataclasses.field(default_factory=set)
    help: str = ""
    total: float = 0.0


def documented():
    found = {}
    for line in (REPOSITORY / "docs" / "metrics.md").read_text().splitlines():
        if match := ROW.match(line):
            name, kind, _, labels, meaning = (part.strip() for part in match.groups())
            found[name] = Family(kind, set() if labels == "-" else set(labels.split(",")), meaning)
    return found


def scrape(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found, helps = {}, {}
    for line in text.splitlines():
        if line.startswith("# HELP "):
            _, _, name, meaning = line.split(" ", 3)
            helps[name] = meaning
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            found[name] = Family(kind, help=helps.get(name, ""))
        elif (match := SAMPLE.match(line)) and match[1] in found:  # the exposer has some of its own, of other kinds
            name, labels, value = match.groups()
            found[name].labels |= {label for label, _ in LABEL.findall(labels or "")}
            found[name].total += float(value)
    return {name: family for name, family in found.items() if name.startswith("msprobe_")}


@pytest.mark.timeout(120)
def test_a_scrape_has_what_the_document_says_and_counts_what_was_sent(tmp_path, short_directory):
    address, port = short_directory / "s", free_port()
    flags = ("--metrics_listen", f"127.0.0.1:{port}")
    with external_server(address, tmp_path / "data", tmp_path / "server.log", *flags) as server:
        with PlannedAgent(tmp_path, f"unix:{address}", steps=STEPS) as agent:
            agent.outcome()
        # Most are looked at once a second.
        metrics = wait_until(
            lambda: (now := scrape(port))["msprobe_syncs_total"].total > 0 and now, 10, "the store's metrics are there"
        )
        end(server)
    expected = documented()
    assert len(expected) > 40
    for name, family in metrics.items():
        assert name in expected, f"{name} is not in docs/metrics.md"
        assert family.type == expected[name].type, name
        assert family.labels == expected[name].labels, name
        assert family.help.replace("\\n", " ") == expected[name].help, name
    # A labelled one is there from its first event.
    assert {name for name, family in expected.items() if not family.labels} <= metrics.keys()

    total = {name.removeprefix("msprobe_"): family.total for name, family in metrics.items()}
    assert total["ingest_batches_total"] == total["ingest_durable_batches_total"] > 0
    assert total["ingest_records_total"] == STEPS * 200
    assert total["steps_total"] == STEPS
    assert total["payload_stored_bytes_total"] == STEPS * 4 * sum((5000, 15000, 5000, 15000))
    assert total["store_written_bytes_total"] > total["payload_stored_bytes_total"]
    assert total["sync_seconds_total"] > 0
    assert total["process_resident_bytes"] > 1 << 20
    for idle in ("ingest_waiting_batches", "payloads_waiting", "sync_waiting", "sync_lag_seconds", "store_refusing"):
        assert total[idle] == 0, idle


@pytest.mark.timeout(120)
def test_what_waits_with_an_agent_is_shown_while_it_runs(tmp_path, short_directory):
    """Its agent is asked as soon as it is seen, and answers while its program does something else."""
    address, port = short_directory / "s", free_port()
    flags = ("--metrics_listen", f"127.0.0.1:{port}")
    with external_server(address, tmp_path / "data", tmp_path / "server.log", *flags) as server:

        def told():
            family = scrape(port).get("msprobe_agent_queue_bytes")
            return family if family and family.labels else None

        with PlannedAgent(tmp_path, f"unix:{address}", steps=-1, pause_ms=100) as agent:
            family = agent.wait_for(told, 30, "the agent has said what it holds")
            assert (family.type, family.labels) == ("gauge", {"run", "rank"})
            agent.process.terminate()
            agent.outcome()
        wait_until(lambda: not told(), 30, "nothing is said of who is gone")
        end(server)
