"""Disturbances of a server and its agents, for a time that the caller gives, and the checks after them.

The short forms are tests/integration/test_under_fire.py, the long ones tests/chaos/test_long.py.
"""

import contextlib
import random
import time

from harness import fire
from harness.fire import PlannedAgent
from harness.processes import accepts_connections, external_server, wait_until

AHEAD_MS = 8000  # ranks may be this far apart when a disturbance hits all
RANKS = 2
# A rank's memory holds about ten steps: what is held up goes through the spool.
MEMORY_MB = 2
# The time that a loaded machine may add to a bound of the agent.
SCHEDULING_MS = 2000


def _agents(stack, directory, server, **flags):
    return [
        stack.enter_context(PlannedAgent(directory, server, rank=rank, memory_mb=MEMORY_MB, **flags))
        for rank in range(RANKS)
    ]


def _pause_ms(seconds):
    """About a thousand steps of each rank, however long it takes: 200 MB of content."""
    return max(20, round(seconds))


def _steps(seconds, pause):
    """More than there is time for: some are made before it begins, and on a busy machine not by all at once."""
    return round((seconds * 1000 + AHEAD_MS) / pause) + 50


def _all_there(agents, data_dir):
    for rank, agent in enumerate(agents):
        fire.check(data_dir, rank=rank, steps=agent.emitted)


def network_gone(directory, seconds):
    """The cable is pulled while ranks emit: nobody is held up, and everything arrives once it is back."""
    pause = _pause_ms(seconds)
    steps = _steps(seconds, pause)
    with contextlib.ExitStack() as stack:
        there = stack.enter_context(fire.network())
        server = stack.enter_context(fire.server_in(there, directory / "data", directory / "server.log"))
        prefix = there.within(there.near)
        agents = _agents(stack, directory, there.address, prefix=prefix, steps=steps, pause_ms=pause)
        for agent in agents:
            agent.wait_for(lambda agent=agent: agent.durable >= 3, 60, "some steps are durable")
        there.plugged(False)
        before = [(agent.emitted, agent.durable) for agent in agents]
        time.sleep(seconds)  # so long the network is gone
        for agent, (emitted, durable) in zip(agents, before, strict=True):
            assert agent.emitted > emitted + 5, "the agents went on"
            # Batches on their way when the cable was pulled may count.
            assert agent.durable - durable < agent.emitted - emitted, "something arrived without a network"
        there.plugged(True)
        for agent in agents:
            outcome = agent.outcome()
            assert (outcome["fragments_dropped"], outcome["payloads_dropped"], outcome["faults"]) == (0, 0, 0)
        fire.end(server)
        _all_there(agents, directory / "data")


def server_frozen(directory, address, seconds, policy):
    """The server stands still: the policy alone decides between holding up and losing, and both are bounded."""
    bound = 1
    pause = _pause_ms(seconds)
    steps = _steps(seconds, pause)
    data = directory / "data"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(external_server(address, data, directory / "server.log"))
        flags = {"steps": steps, "pause_ms": pause, "policy": policy, "stall_bound": bound}
        agents = _agents(stack, directory, f"unix:{address}", **flags)
        for agent in agents:
            agent.wait_for(lambda agent=agent: agent.durable >= 3, 60, "some steps are durable")
        with fire.frozen(server):
            time.sleep(seconds)  # so long it stands still
        outcomes = [agent.outcome() for agent in agents]
        fire.end(server)
        held = 1000 * bound if policy == "stall" else 0
        for rank, (agent, outcome) in enumerate(zip(agents, outcomes, strict=True)):
            assert outcome["held_ms"] <= held + SCHEDULING_MS
            if policy == "spool":
                assert (outcome["fragments_dropped"], outcome["payloads_dropped"]) == (0, 0)
            fire.check(data, rank=rank, steps=agent.emitted, gaps=policy != "spool")
        return outcomes


def agent_frozen(directory, address, seconds):
    """An agent stands still in mid-stream; the other one does not notice, and it goes on where it stood."""
    pause = _pause_ms(seconds)
    # The frozen one still has all of its steps to make when it goes on: not more of them than a minute takes.
    steps = [_steps(lasts, pause) for lasts in (min(seconds, 60), seconds)]
    data = directory / "data"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(external_server(address, data, directory / "server.log"))
        agents = [
            stack.enter_context(
                PlannedAgent(
                    directory, f"unix:{address}", rank=rank, memory_mb=MEMORY_MB, steps=steps[rank], pause_ms=pause
                )
            )
            for rank in range(RANKS)
        ]
        for agent in agents:
            agent.wait_for(lambda agent=agent: agent.durable >= 3, 60, "some steps are durable")
        with agents[0].frozen():
            durable = agents[1].durable
            agents[1].wait_for(lambda: agents[1].durable > durable, 60, "the other agent's steps become durable")
            time.sleep(seconds)  # so long it stands still
        for agent in agents:
            agent.outcome()
        fire.end(server)
        _all_there(agents, data)


def agents_killed(directory, address, kills, seed=1):
    """kill -9 of agents at random moments, every third with a server that stands still, so that the spool holds what
    the next process has to send. A prefix of each is found, with everything acknowledged.
    """
    chance = random.Random(seed)
    data = directory / "data"
    acknowledged, spooled = [], 0
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(external_server(address, data, directory / "server.log"))
        for kill in range(kills):
            flags = {"run_name": f"job{kill}", "memory_mb": MEMORY_MB, "pause_ms": 5}
            with PlannedAgent(directory, f"unix:{address}", **flags) as agent:
                agent.reaches(1)
                with fire.frozen(server) if kill % 3 == 2 else contextlib.nullcontext():
                    agent.reaches(agent.emitted + chance.randrange(60))
                    time.sleep(chance.random() * 0.05)  # the kill comes anywhere between two steps
                    agent.kill()
                    spooled += kill % 3 == 2 and fire.spooled_bytes(directory / "spool0") > 0
            acknowledged.append(agent.durable)

        def drained():
            with PlannedAgent(directory, f"unix:{address}", run_name="last", steps=1) as agent:
                agent.outcome()
            return fire.spooled_bytes(directory / "spool0") == 0

        wait_until(drained, 120, "what the killed processes left was sent")
        fire.end(server)
    found = [fire.check(data, run_name=f"job{kill}", acknowledged=acknowledged[kill]) for kill in range(kills)]
    assert spooled >= kills // 6, "hardly anything was left in a spool: this tests too little"
    drained_steps = sum(found[kill] - acknowledged[kill] for kill in range(2, kills, 3))
    assert drained_steps > 0, "nothing of what was spooled arrived"
    return found


def disk_full(directory, address, reserve_mib, ask):
    """A file system without room: new content is refused, reading goes on, and with room again everything arrives."""
    with contextlib.ExitStack() as stack:
        disk = stack.enter_context(fire.small_disk(directory / "disk", 400))
        flags = [f"--reserve_disk_mib={reserve_mib}", "--log_level=info"]
        server = stack.enter_context(external_server(address, disk / "data", directory / "server.log", *flags))
        agents = _agents(stack, directory, f"unix:{address}", steps=300, pause_ms=10)
        for agent in agents:
            agent.wait_for(lambda agent=agent: agent.durable >= 3, 60, "some steps are durable")
        ballast = disk / "ballast"
        with ballast.open("wb", buffering=0) as stream, contextlib.suppress(OSError):
            while True:
                stream.write(b"\0" * (1 << 20))

        def standing():
            before = [agent.durable for agent in agents]
            time.sleep(1)  # many times what a step takes to become durable
            return [agent.durable for agent in agents] == before

        wait_until(standing, 60, "nothing new becomes durable")
        assert server.alive(), server.output[-4000:]
        durable = [agent.durable for agent in agents]
        rows = ask("steps", "job", server=f"unix:{address}")
        complete = [row for row in rows if row["state"].lower() == "complete"]
        assert len(complete) >= sum(durable), "what was acknowledged is read while the disk is full"
        ballast.unlink()
        for agent in agents:
            agent.outcome()
        assert accepts_connections(address)
        fire.end(server)
        _all_there(agents, disk / "data")
