"""The lines about a server of the cluster that did not answer."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from conftest import Run, rows, strict
from fake_analysis import RANK1
from fake_server import FakeServer

from msprobe_client.client import Client
from msprobe_client.errors import MissingShardsWarning
from msprobe_client.proto import query_pb2

MISSING = query_pb2.MissingShards(
    shards=[query_pb2.MissingShard(shard="s2:50051", why="connection refused", run="training", ranks=[RANK1])]
)


def test_an_answer_that_lacks_a_server_warns(server: FakeServer) -> None:
    server.missing = MISSING
    with Client(server.address) as client:
        with pytest.warns(MissingShardsWarning, match="without rank1 of run training: the server s2:50051") as warned:
            assert len(client.steps("training")) == 4
        assert [shard.shard for shard in warned[0].message.shards] == ["s2:50051"]  # type: ignore[union-attr]
        with pytest.warns(MissingShardsWarning):
            client.runs()
        server.missing = None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            client.steps("training")


def test_the_command_line_shows_what_there_is_and_ends_with_3(server: FakeServer, run_client: Run) -> None:
    server.missing = MISSING
    done = run_client("--server", server.address, "--format", "json", "steps", "training")
    assert done.returncode == 3
    assert len(rows(done)) == 4 and "without rank1" in strict(done.stdout)["warnings"][0]
    assert done.stderr == (
        "msprobe-client: the answer is incomplete: without rank1 of run training: "
        "the server s2:50051 cannot be reached (connection refused)\n"
    )


def test_an_export_that_lacks_a_server_ends_with_3(server: FakeServer, run_client: Run, tmp_path: Path) -> None:
    server.missing = MISSING
    done = run_client("--server", server.address, "export", "training", "-o", tmp_path / "out")
    assert done.returncode == 3
    assert (tmp_path / "out" / "step0" / "rank0" / "dump.json").exists()
    assert done.stderr.count("the answer is incomplete") == 1
