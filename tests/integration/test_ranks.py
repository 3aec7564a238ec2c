"""Several ranks of one launch share one run and one server."""

import json
import sys

import pytest
from harness.dumps import embedded_data_directory, read_dump, write_config
from harness.processes import PROGRAMS, launched, servers_of, wait_until


@pytest.mark.timeout(180)
def test_two_ranks_under_ddp_share_one_run(tmp_path, dump_path, ask):
    config = write_config(tmp_path / "config.json", dump_path, level="mix")
    max_servers = 0
    with launched(2, [sys.executable, PROGRAMS / "ddp_train.py", config], tmp_path) as (first, second):

        def both_ended():
            nonlocal max_servers
            max_servers = max(max_servers, len(servers_of(dump_path)))
            return not first.alive() and not second.alive()

        wait_until(both_ended, 120, "both ranks end")
        first.finish()
        second.finish()
    # A loser of the race for the data directory may live for a moment; the exported data shows that all had one server.
    assert max_servers >= 1
    assert sorted(str(path.relative_to(dump_path)) for path in dump_path.glob("step*/*")) == [
        "step0/rank0",
        "step0/rank1",
        "step1/rank0",
        "step1/rank1",
    ]
    for step in (0, 1):
        data = [read_dump(dump_path / f"step{step}" / f"rank{rank}")["data"] for rank in (0, 1)]
        assert list(data[0]) == list(data[1])
        inputs = [entries["Functional.linear.0.forward"]["input_args"][0]["Max"] for entries in data]
        assert inputs == [1.0 + 10 * step, 2.0 + 10 * step], "each rank's directory holds its own numbers"
        # DDP has averaged them: the gradients are the same on both ranks.
        gradients = [name for name in data[0] if ".parameters_grad." in name]
        assert gradients
    runs = ask("runs", data_dir=embedded_data_directory(dump_path))
    assert len(runs) == 1, json.dumps(runs)
    assert sorted(runs[0]["ranks"]) == ["rank0", "rank1"]
    assert runs[0]["steps"] == 2
