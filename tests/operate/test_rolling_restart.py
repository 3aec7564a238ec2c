"""Three servers of a cluster on three hosts, restarted one after the other while ranks stream to them."""

import contextlib

import pytest
from harness import answers
from harness.fire import PlannedAgent, check, end
from harness.hosts import hosts
from harness.processes import Background, find_binary, run

PORT = 50051
RANKS = 5
STEPS_BETWEEN = 6  # that each rank ends while a server is away, and after it has come back


class Machine:
    """A host with a server, which can be replaced."""

    def __init__(self, host, shards, folder):
        self.host, self._folder, self.data, self._starts = host, folder, folder / f"data{host.ip}", 0
        self._flags = [
            f"--listen={host.ip}:{PORT}",
            f"--shards={shards}",
            f"--this_shard={host.ip}:{PORT}",
            "--insecure",
        ]
        self.server, self._stack = None, contextlib.ExitStack()

    def start(self, seen_from):
        self._starts += 1
        log = self._folder / f"{self.host.ip}.{self._starts}.log"
        command = [*self.host.within(), find_binary("msprobe-server"), *self._flags, f"--data_dir={self.data}"]
        self.server = self._stack.enter_context(Background(command, log))
        self.server.wait_for(lambda: seen_from.answers(self.host.ip, PORT), 30, "the server accepts connections")

    def drain(self):
        """Sends SIGTERM; gives the server's output. The server ends with 0, without cutting anybody off."""
        end(self.server)
        return self.server.output

    def close(self):
        self._stack.close()


@pytest.mark.timeout(300)
def test_three_shards_are_restarted_under_load_and_nothing_is_lost(tmp_path, client):
    with hosts(4) as (*servers, workers), contextlib.ExitStack() as stack:
        shards = ",".join(f"{host.ip}:{PORT}" for host in servers)
        machines = [Machine(host, shards, tmp_path) for host in servers]
        for machine in machines:
            stack.callback(machine.close)
            machine.start(workers)
        within = workers.within()
        ranks = [
            stack.enter_context(PlannedAgent(tmp_path, shards, rank=rank, prefix=within, pause_ms=100, steps=-1))
            for rank in range(RANKS)
        ]

        def all_reach(more):
            goals = [rank.emitted + more for rank in ranks]
            for rank, goal in zip(ranks, goals, strict=True):
                rank.reaches(goal, 120)

        all_reach(STEPS_BETWEEN)
        for machine in machines:
            said = machine.drain()
            assert "shutting down" in said and "are cut" not in said, said[-2000:]
            all_reach(STEPS_BETWEEN)  # no program waits for it
            machine.start(workers)
            all_reach(STEPS_BETWEEN)
        for rank in ranks:
            rank.process.terminate()
        outcomes = [rank.outcome() for rank in ranks]
        command = [*within, client, "--server", f"{servers[1].ip}:{PORT}", "--format", "json", "steps", "job"]
        rows = answers.rows(run(command).stdout)
        homes = {}
        for machine in machines:
            said = machine.drain()
            homes |= {rank: machine.data for rank in range(RANKS) if f"of run job (rank{rank}," in said}

    for rank, outcome in enumerate(outcomes):
        assert (outcome["fragments_dropped"], outcome["payloads_dropped"], outcome["faults"]) == (0, 0, 0), outcome
        mine = [row for row in rows if row["rank"] == f"rank{rank}"]
        assert len(mine) == outcome["steps"] > 6 * STEPS_BETWEEN
        assert {(row["state"], row["gap_fragments"]) for row in mine} == {("complete", 0)}
    assert sorted(homes) == list(range(RANKS)) and len(set(homes.values())) > 1, homes
    for rank, data in homes.items():
        assert check(data, rank=rank, acknowledged=outcomes[rank]["steps"]) == outcomes[rank]["steps"]
