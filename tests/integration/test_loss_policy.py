"""The fate of records under each loss policy while the server is frozen, gone or slow, as `steps` shows it."""

import contextlib
import json
import signal
import threading

import pytest
from harness.processes import REPOSITORY, Background, external_server

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
RANKS = 4
STEPS = 30
# A rank's memory holds about a tenth of what it emits.
MEMORY_MB = 1
DEFAULT_BOUND = 30  # seconds, as docs/config.md says of stall_bound_s
REASONS = {"stall": "stall_expired", "drop": "dropped"}


@contextlib.contextmanager
def frozen(server):
    server.process.send_signal(signal.SIGSTOP)
    yield
    server.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def slow(server):
    """It runs a tenth of the time."""
    over = threading.Event()

    def toggle():
        while not over.wait(0.01):
            server.process.send_signal(signal.SIGSTOP)
            over.wait(0.09)
            server.process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=toggle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def load(tmp_path, reference, address, policy):
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    flags = [f"--server=unix:{address}", f"--dump={dump}", f"--ranks={RANKS}", f"--steps={STEPS}", "--seconds=100"]
    # A spool waits for its disk, which others use, too: with so short a bound it would lose what `stall` shall lose.
    bound = DEFAULT_BOUND if policy == "spool" else 0.2
    flags += [f"--policy={policy}", f"--memory_mb={MEMORY_MB}", f"--stall_bound={bound}"]
    flags += [f"--spool={tmp_path / 'spool'}"]
    return Background([GENERATOR, *flags], tmp_path / "load.log")


def emitted(program):
    program.wait_for(lambda: "emitted" in program.output, 60, "every record was emitted")


def outcome(program, ask, address):
    program.finish()
    counts = json.loads(program.output.strip().splitlines()[-1])
    assert (counts["undrained_ranks"], counts["faults"]) == (0, 0)
    return counts, ask("steps", "load", server=f"unix:{address}")


def check(policy, counts, steps, *, may_be_whole):
    lost = counts["fragments_dropped"]
    assert sum(row["gap_fragments"] for row in steps) == lost, "each loss stands in a gap of its step"
    tensors = sum(row["tensors"] for row in steps)
    if policy == "spool":
        assert (lost, tensors) == (0, counts["tensors_emitted"])
        assert {row["state"].lower() for row in steps} == {"complete"}
        return
    assert may_be_whole or 0 < lost < counts["fragments_emitted"]
    assert tensors < counts["tensors_emitted"] or lost == 0
    assert {gap["reason"] for row in steps for gap in row["gaps"]} <= {REASONS[policy]}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("policy", ["spool", "stall", "drop"])
@pytest.mark.parametrize("ill", ["frozen", "slow", "gone"])
def test_a_policy_does_what_it_says(ill, policy, tmp_path, reference, short_directory, ask):
    assert GENERATOR.exists(), f"{GENERATOR} is not built: run `make build`, then `ninja -C build`"
    address, data, log = short_directory / "s", tmp_path / "data", tmp_path / "server.log"
    if ill == "gone":
        with load(tmp_path, reference, address, policy) as program:
            emitted(program)
            with external_server(address, data, log):
                counts, steps = outcome(program, ask, address)
    else:
        with (
            external_server(address, data, log) as server,
            {"frozen": frozen, "slow": slow}[ill](server),
            load(tmp_path, reference, address, policy) as program,
        ):
            emitted(program)
            server.process.send_signal(signal.SIGCONT)
            counts, steps = outcome(program, ask, address)
    # A slow server may be fast enough for a stall.
    check(policy, counts, steps, may_be_whole=ill == "slow")
