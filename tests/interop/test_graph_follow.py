"""The graph of a run that goes on: steps come into a database that somebody has open."""

import contextlib
import pathlib
import queue
import signal
import sqlite3
import sys
import threading
from contextlib import closing

import numpy
import pytest
from harness.processes import Background, external_server, run
from test_compare import binary  # noqa: F401

sys.path.append(str(pathlib.Path(__file__).parents[1] / "bench"))

STEPS = 3
NODES = "select count(*) from tb_nodes join tb_stack on stack_id = tb_stack.id where step = ? and rank = ?"


@pytest.mark.timeout(120)
def test_steps_are_added_while_the_file_is_open(tmp_path):
    client_module = pytest.importorskip("msprobe_client.client")
    pytest.importorskip("xxhash")
    import stream_run

    gates = [threading.Event() for _ in range(STEPS)]

    def numbers(rank, step, tensors):
        assert gates[step].wait(60)
        return numpy.ones((tensors, 5), dtype="float32")

    path = tmp_path / "log" / "live.vis.db"
    with client_module.Client(data_dir=tmp_path / "data", create=True) as client:
        plan = stream_run.Plan(ranks=1, steps=STEPS, records=4, numbers=numbers)
        sender = threading.Thread(target=stream_run.stream, args=(client.address, "run", plan))
        sender.start()
        reports = queue.Queue()

        def follow():
            while "run" not in {run.run for run in client.runs()}:
                threading.Event().wait(0.02)
            for each in client.follow_graph("run", path, golden="run"):
                reports.put(each.steps)
            reports.put(None)

        follower = threading.Thread(target=follow)
        follower.start()
        try:
            gates[0].set()
            assert reports.get(timeout=60) == 1
            with closing(sqlite3.connect(path, isolation_level=None)) as reader:
                reader.execute("BEGIN")
                (before,) = reader.execute(NODES, (0, 0)).fetchone()
                assert before > 4
                gates[1].set()
                assert reports.get(timeout=60) == 1  # a reader does not hold it up
                assert reader.execute(NODES, (1, 0)).fetchone() == (0,)  # nor does it see half of a step
                reader.execute("COMMIT")
                assert reader.execute(NODES, (1, 0)).fetchone() == (before,)
                assert reader.execute("select step_list, rank_list from tb_config").fetchone() == ("[0, 1]", "[0]")
                # The plugin writes, too.
                reader.execute("update tb_nodes set modified = 1 where step = 0")
                gates[2].set()
                assert reports.get(timeout=60) == 1
                assert reader.execute(NODES, (2, 0)).fetchone() == (before,)
        finally:
            for gate in gates:
                gate.set()
        assert reports.get(timeout=60) is None
        sender.join()
        follower.join()
        whole = tmp_path / "whole.vis.db"
        client.graph("run", whole, "run")
        columns = "id, node_order, matched_node_link, input_data, output_data from tb_nodes order by id"
        live, at_once = (sqlite3.connect(file).execute(f"select {columns}").fetchall() for file in (path, whole))
        assert live == at_once


@contextlib.contextmanager
def following(tmp_path):
    """`graph run --follow` of a server that may not be there, with the file that it writes."""
    path = tmp_path / "live.vis.db"
    command = [sys.executable, "-m", "msprobe_client", "graph", "run", "--follow", "-o", path]
    command += ["--server", f"unix:{tmp_path}/server"]
    with Background(command, tmp_path / "follow.log") as program:
        yield program, path


@pytest.mark.timeout(120)
def test_it_waits_for_its_server_and_run_and_outlasts_a_restart(tmp_path):
    pytest.importorskip("xxhash")
    import grpc
    import stream_run

    gates = [threading.Event() for _ in range(2)]
    restarted = threading.Event()

    def numbers(rank, step, tensors):
        assert gates[step].wait(60)
        return numpy.ones((tensors, 5), dtype="float32")

    def send():
        plan = stream_run.Plan(ranks=1, steps=2, records=4, numbers=numbers)
        with contextlib.suppress(grpc.RpcError):
            stream_run.stream(f"unix:{tmp_path}/server", "run", plan)
        assert restarted.wait(60)
        stream_run.stream(f"unix:{tmp_path}/server", "run", plan)  # the same session

    def server():
        return external_server(tmp_path / "server", tmp_path / "data", tmp_path / "log")

    with following(tmp_path) as (follower, path):
        follower.wait_for(lambda: follower.output.count("trying again") == 1, 30, "it waits for the server")
        sender = threading.Thread(target=send)
        with server() as first:
            follower.wait_for(lambda: "waiting for run run: " in follower.output, 30, "it waits for the run")
            assert not path.exists()
            sender.start()
            gates[0].set()
            follower.wait_for(path.exists, 30, "the first step is there")
            first.kill()
            follower.wait_for(lambda: follower.output.count("trying again") == 2, 30, "it waits for the server")
        with server():
            gates[1].set()
            restarted.set()
            follower.finish()
        sender.join()
        assert follower.output.count("trying again") == 2, "one line for each absence"
        assert follower.output.count("waiting for run") == 1
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("pragma integrity_check").fetchone() == ("ok",)
        first, second = (file.execute(NODES, (step, 0)).fetchone() for step in range(2))
        assert first == second and first[0] > 4


def test_a_signal_ends_the_wait(tmp_path):
    with following(tmp_path) as (follower, path):
        follower.wait_for(lambda: "trying again" in follower.output, 30, "it waits for the server")
        follower.process.send_signal(signal.SIGTERM)
        assert follower.process.wait(30) == 130
    assert not path.exists()


@pytest.mark.parametrize(
    ("target", "more", "message"),
    [
        ("{}", (), "--follow is for a run of a server, and"),
        ("run:monday", ("--step", "1"), "--follow shows all steps of a run: leave out --step"),
        ("run:monday", (), "monday"),
    ],
)
def test_what_cannot_be_followed_is_refused(target, more, message, binary, tmp_path):  # noqa: F811
    command = [sys.executable, "-m", "msprobe_client", "graph", target.format(tmp_path), "--follow"]
    client_module = pytest.importorskip("msprobe_client.client")
    with client_module.Client(data_dir=tmp_path / "data", create=True):
        pass  # a store without a run
    more = [*more, "-o", tmp_path / "a.vis.db", "--data-dir", tmp_path / "data"]
    done = run([*command, *more], MSPROBE_SERVER_BINARY=binary, check=False)
    assert done.returncode in (2, 3) and message in done.stderr, done.stderr
    assert not [*tmp_path.glob("*.vis.db")]
