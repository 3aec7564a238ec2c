"""A live scrape of a server under load, beside what docs/metrics.md says of it."""

import dataclasses
import re
import sys
import time
import urllib.request

import pytest
from harness.dumps import write_config
from harness.fire import PlannedAgent, end
from harness.processes import REPOSITORY, external_server, free_port, run, wait_until

ROW = re.compile(r"\| `(\w+)` \| (\w+) \| ([^|]+) \| ([^|]+) \| (.+) \|$")
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
STEPS = 20
PAYLOAD_BYTES = STEPS * 4 * sum((5000, 15000, 5000, 15000))


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
        elif (match := SAMPLE.match(line)) and match[1] in found:  # of a histogram there are others
            name, labels, value = match.groups()
            found[name].labels |= {label for label, _ in LABEL.findall(labels or "")}
            found[name].total += float(value)
    return found


@pytest.mark.timeout(120)
def test_a_scrape_has_what_the_document_says_and_counts_what_was_sent(tmp_path, short_directory):
    address, port = short_directory / "s", free_port()
    flags = ("--metrics_listen", f"127.0.0.1:{port}")
    began = time.time()
    with external_server(address, tmp_path / "data", tmp_path / "server.log", *flags) as server:
        with PlannedAgent(tmp_path, f"unix:{address}", steps=STEPS) as agent:
            agent.outcome()
        # What the store did is looked up for each scrape.
        assert scrape(port)["msprobe_store_written_bytes_total"].total > PAYLOAD_BYTES
        metrics = wait_until(
            lambda: (now := scrape(port))["msprobe_ingest_waiting_batches"].total == 0 and now,
            60,
            "the server has looked at its sessions again",
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
    assert total["payload_stored_bytes_total"] == PAYLOAD_BYTES
    assert total["store_written_bytes_total"] > total["payload_stored_bytes_total"]
    assert total["syncs_total"] > 0
    assert total["sync_seconds_total"] > 0
    assert total["process_resident_bytes"] > 1 << 20
    assert began - 1 < total["process_start_time_seconds"] < began + 60
    assert 10 < total["process_open_files"] < total["process_max_files"]
    for idle in ("ingest_waiting_batches", "payloads_waiting", "sync_waiting", "sync_lag_seconds", "store_refusing"):
        assert total[idle] == 0, idle


@pytest.mark.timeout(120)
def test_a_deleted_run_leaves_the_metrics(tmp_path, short_directory, client):
    address, port = short_directory / "s", free_port()
    with external_server(address, tmp_path / "data", tmp_path / "log", f"--metrics_listen=127.0.0.1:{port}"):

        def said():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                return answer.read().decode()

        program = REPOSITORY / "tests" / "operate" / "programs" / "overflowing.py"
        config = write_config(
            tmp_path / "c.json", tmp_path / "dump", level="mix", server=f"unix:{address}", run="overflown"
        )
        run([sys.executable, program, "--config", config, "--steps", 3, "--nan-at", 1])
        wait_until(lambda: "msprobe_overflow_first_step{" in said(), 30, "its overflow is counted")
        assert 'run="overflown"' in said()
        run([client, "--server", f"unix:{address}", "delete", "overflown", "--yes"])
        assert 'run="overflown"' not in said()


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
