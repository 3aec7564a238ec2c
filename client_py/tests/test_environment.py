"""msprobe-client environment: what a run's processes ran in, and where two runs differ."""

from __future__ import annotations

import pytest
from conftest import Run, rows
from fake_server import FakeServer

from msprobe_client.proto import environment_pb2, ingest_pb2, record_pb2


def process(
    number: int, variables: dict[str, str], *, torch: str = "2.13.0", kind: int = 0
) -> environment_pb2.ProcessEnvironment:
    kinds = (record_pb2.Rank.RANK, record_pb2.Rank.PROCESS)
    return environment_pb2.ProcessEnvironment(
        rank=record_pb2.Rank(kind=kinds[kind], number=number),
        host=f"host{number}",
        process_id=1000 + number,
        started_unix_us=1_700_000_000_000_000,
        program="train.py",
        framework_version=torch,
        settings=ingest_pb2.CaptureSettings(
            task="statistics", level="mix", framework="pytorch", config_json='{"dump_path": "/a", "step": [1, 2]}'
        ),
        environment=[ingest_pb2.EnvironmentVariable(name=name, value=value) for name, value in variables.items()],
        devices=["8 x NVIDIA H100 80GB HBM3"],
        checkout=ingest_pb2.Checkout(commit="a" * 40, branch="main"),
    )


@pytest.fixture
def runs(server: FakeServer) -> FakeServer:
    server.environments = {
        "tuesday": [process(rank, {"NCCL_ALGO": "Ring", "RANK": str(rank)}) for rank in range(3)],
        "monday": [
            process(rank, {"NCCL_ALGO": "Tree", "RANK": str(rank), "OMP_NUM_THREADS": "8"}) for rank in range(2)
        ],
        "elsewhere": [process(rank, {"NCCL_ALGO": "Ring", "RANK": str(rank)}) for rank in range(3)],
        "single": [process(4321, {"NCCL_ALGO": "Ring"}, kind=1)],
        "again": [process(77, {"NCCL_ALGO": "Ring"}, torch="2.12.1", kind=1)],
    }
    for each in server.environments["elsewhere"]:
        each.host = "other"
        each.settings.config_json = '{"dump_path": "/b", "step": [1, 2]}'
    return server


def test_a_fact_that_all_ranks_share_stands_once(runs: FakeServer, run_client: Run) -> None:
    result = run_client("environment", "tuesday", "--format", "json", "--server", runs.address)
    assert result.returncode == 0, result.stderr
    found = [(row["name"], row["value"], row["ranks"]) for row in rows(result)]
    everybody = ["rank0", "rank1", "rank2"]
    assert ("env.NCCL_ALGO", "Ring", everybody) in found
    assert ("devices", "8 x NVIDIA H100 80GB HBM3", everybody) in found
    assert ("config.step", "[1, 2]", everybody) in found
    assert {("git.commit", "a" * 40, tuple(everybody)), ("git.branch", "main", tuple(everybody))} <= {
        (name, value, tuple(ranks)) for name, value, ranks in found
    }
    assert [(value, ranks) for name, value, ranks in found if name == "env.RANK"] == [
        ("0", ["rank0"]), ("1", ["rank1"]), ("2", ["rank2"]),
    ]  # fmt: skip


def test_two_runs_are_compared_rank_by_rank(runs: FakeServer, run_client: Run) -> None:
    result = run_client("environment", "tuesday", "monday", "--format", "json", "--server", runs.address)
    assert result.returncode == 1, result.stderr
    assert [(row["name"], row["value"], row["golden"], row["ranks"]) for row in rows(result)] == [
        ("env.NCCL_ALGO", "Ring", "Tree", ["rank0", "rank1"]),
        ("env.OMP_NUM_THREADS", "", "8", ["rank0", "rank1"]),
    ]
    assert "rank2: one of the runs alone has it" in result.stdout


def test_where_a_run_ran_is_no_difference_unless_asked(runs: FakeServer, run_client: Run) -> None:
    result = run_client("environment", "tuesday", "elsewhere", "--server", runs.address)
    assert (result.returncode, "nothing differs" in result.stdout) == (0, True)
    result = run_client("environment", "tuesday", "elsewhere", "--all", "--format", "json", "--server", runs.address)
    assert result.returncode == 1
    assert {row["name"] for row in rows(result)} == {"host", "config.dump_path"}


def test_processes_without_ranks_are_paired_in_order(runs: FakeServer, run_client: Run) -> None:
    result = run_client("environment", "single", "again", "--format", "json", "--server", runs.address)
    assert [(row["name"], row["value"], row["golden"]) for row in rows(result)] == [
        ("framework", "pytorch 2.13.0", "pytorch 2.12.1")
    ]
