"""The graph of a run that goes on: steps come into a database that somebody has open."""

import pathlib
import queue
import sqlite3
import sys
import threading
from contextlib import closing

import numpy
import pytest
from harness.processes import run
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
    (tmp_path / "data").mkdir()
    more = [*more, "-o", tmp_path / "a.vis.db", "--data-dir", tmp_path / "data"]
    done = run([*command, *more], MSPROBE_SERVER_BINARY=binary, check=False)
    assert done.returncode in (2, 3) and message in done.stderr, done.stderr
    assert not [*tmp_path.glob("*.vis.db")]
