"""Overflow of a run that still goes on: reported as its steps complete."""

import pathlib
import queue
import sys
import threading

import numpy
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1] / "bench"))


def test_follow_tells_of_each_step_as_it_ends_and_ends_with_the_run(tmp_path):
    client_module = pytest.importorskip("msprobe_client.client")
    pytest.importorskip("xxhash")
    import stream_run

    gates = [threading.Event() for _ in range(3)]

    def numbers(rank, step, tensors):
        assert gates[step].wait(60)
        values = numpy.ones((tensors, 5), dtype="float32")
        if step == 1:
            values[-1] = numpy.nan  # the output of the last call
        return values

    with client_module.Client(data_dir=tmp_path / "data", create=True) as client:
        plan = stream_run.Plan(ranks=1, steps=3, records=4, numbers=numbers)
        sender = threading.Thread(target=stream_run.stream, args=(client.address, "run", plan))
        sender.start()
        try:
            found = queue.Queue()
            steps = queue.Queue()

            def follow():
                while "run" not in {run.run for run in client.runs()}:
                    threading.Event().wait(0.02)
                gates[0].set()
                for each in client.overflow("run", follow=True, progress=lambda done, total: steps.put(done)):
                    found.put(each)
                found.put(None)

            follower = threading.Thread(target=follow)
            follower.start()
            assert steps.get(timeout=60) == 1
            assert found.empty()
            gates[1].set()
            told = found.get(timeout=60)
            assert (told.step, told.op, told.origin) == (1, "Torch.operation3.0.forward", "computation")
            assert follower.is_alive()
        finally:
            for gate in gates:
                gate.set()
        assert found.get(timeout=60) is None
        sender.join()
        follower.join()
        assert [each.step for each in client.overflow("run")] == [1, 1]
