"""Many ranks over three servers. `make test` runs twelve of them (tests/integration/test_shards.py)."""

import collections
import json

import pytest
from harness.cluster import Cluster
from harness.processes import REPOSITORY, run

GENERATOR = REPOSITORY / "build" / "tests" / "bench" / "load_generator"
RANKS = 256
STEPS = 2


@pytest.mark.timeout(300)
def test_256_ranks_over_three_servers(tmp_path, reference, short_directory, ask):
    dump = reference / "dump" / "train_statistics_mix" / "step0" / "proc0"
    (tmp_path / "data").mkdir()
    with Cluster(short_directory, tmp_path / "data") as three:
        flags = [f"--server={','.join(three.addresses)}", f"--dump={dump}", f"--ranks={RANKS}", f"--steps={STEPS}"]
        done = run(
            [GENERATOR, *flags, "--memory_mb=2", "--records=25", "--seconds=60", f"--spool={tmp_path / 'spool'}"],
            timeout=200,
        )
        counts = json.loads(done.stdout.splitlines()[-1])
        assert (counts["undrained_ranks"], counts["fragments_dropped"], counts["faults"]) == (0, 0, 0), done.stderr
        answers = [ask("steps", "load", server=address) for address in three.addresses]
    assert answers[0] == answers[1] == answers[2]
    assert collections.Counter(row["step"] for row in answers[0]) == dict.fromkeys(range(STEPS), RANKS)
    assert {(row["state"].lower(), row["records"], row["gap_fragments"]) for row in answers[0]} == {("complete", 25, 0)}
    assert sum(row["tensors"] for row in answers[0]) == counts["tensors_emitted"]
