"""Many ranks on one server: the load generator's simulated ranks, each a session of the real agent."""

import collections
import json

import pytest
from harness.processes import REPOSITORY, external_server, run

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
RANKS = 256
STEPS = 2


@pytest.mark.timeout(120)
def test_256_ranks_each_have_every_record_of_every_step(tmp_path, reference, short_directory, ask):
    assert GENERATOR.exists(), f"{GENERATOR} is not built: run `make build`, then `ninja -C build`"
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    address = f"unix:{short_directory}/s"
    flags = [f"--server={address}", f"--dump={dump}", f"--ranks={RANKS}", f"--steps={STEPS}", "--memory_mb=2"]
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "server.log"):
        done = run([GENERATOR, *flags, "--records=25", "--seconds=60", f"--spool={tmp_path / 'spool'}"])
        steps = ask("steps", "load", server=address)
    counts = json.loads(done.stdout)
    assert (counts["undrained_ranks"], counts["fragments_dropped"], counts["faults"]) == (0, 0, 0)
    assert collections.Counter(row["step"] for row in steps) == dict.fromkeys(range(STEPS), RANKS)
    assert {row["rank"] for row in steps} == {f"rank{rank}" for rank in range(RANKS)}
    assert {(row["state"].lower(), row["records"], row["gap_fragments"]) for row in steps} == {("complete", 25, 0)}
    assert sum(row["tensors"] for row in steps) == counts["tensors_emitted"]
