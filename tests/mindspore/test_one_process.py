"""What else lives in a process that we capture: another framework, and MindSpore's own gRPC."""

import json
import os
import subprocess

import pytest
from harness.mindspore import PROGRAMS, SECONDS, entries
from harness.processes import environment, free_port


@pytest.mark.parametrize("first", ["torch", "mindspore"])
def test_torch_and_mindspore_are_captured_side_by_side(first, run_program, torch_packages, tmp_path):
    ran = run_program(PROGRAMS / "both.py", tmp_path, first, PYTHONPATH=str(torch_packages))
    (said,) = (json.loads(line.removeprefix("said ")) for line in ran.output.splitlines() if line.startswith("said "))
    path = tmp_path / "torch"
    assert said == [
        *(True, True),
        f"dump_path is '{path}', where pytorch of this process is dumped; give mindspore another one",
    ]
    assert "pytorch of this process is captured into run 'pair', mindspore into run 'pair-mindspore'" in ran.output
    assert [path.name for path in (tmp_path / "mindspore").glob("step*")] == ["step0"], "a later step is not started"
    of_torch, of_mindspore = entries(path), entries(tmp_path / "mindspore")
    assert {"Module.first.Linear.backward.0", "Torch.tanh.0.forward", "Functional.linear.0.forward"} <= of_torch.keys()
    assert {"Cell.first.Dense.backward.0", "Mint.tanh.0.forward", "Mint.tanh.0.backward"} <= of_mindspore.keys()


def test_mindspores_own_grpc_goes_on_beside_ours(mindspore_python, tmp_path):
    """A scheduler and two workers, which MindSpore joins by its own gRPC."""
    said = subprocess.run(
        [
            *(mindspore_python, "-m", "mindspore.parallel.cluster.run", "--worker_num=2", "--local_worker_num=2"),
            *(f"--master_port={free_port()}", f"--log_dir={tmp_path / 'log'}", "--join=True"),
            *(PROGRAMS / "cluster.py", tmp_path),
        ],
        env={**environment(PYTHONPATH=None), "PATH": f"{mindspore_python.parent}:{os.environ['PATH']}"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    logs = [path.read_text(errors="replace")[-2000:] for path in sorted((tmp_path / "log").glob("worker_*.log"))]
    assert said.returncode == 0, [said.stdout[-2000:], *logs]
    for rank in (0, 1):
        ranks, is_same, loaded = json.loads((tmp_path / f"rank{rank}.json").read_text())
        assert (ranks, is_same) == (2, True)
        assert {name.partition(".")[0].partition("-")[0] for name in loaded} >= {"libmindspore_grpc++", "libgrpc++"}
        for step in (0, 1):
            path = tmp_path / "dump" / f"step{step}" / f"rank{rank}" / "dump.json"
            data = json.loads(path.read_text())["data"]
            (reduced,) = data["Primitive.reduce.AllReduce.0.forward"]["output"]
            assert reduced["shape"] == [3, 2]
            assert data["Cell.first.Dense.backward.0"]["input"][0]["Norm"] > 0
    both = [
        json.loads((tmp_path / "dump" / "step0" / f"rank{rank}" / "dump.json").read_text())["data"] for rank in (0, 1)
    ]
    sums, given = (
        [each["Primitive.reduce.AllReduce.0.forward"][side][0]["Max"] for each in both]
        for side in ("output", "input_args")
    )
    assert sums[0] == sums[1] and given[0] != given[1]
