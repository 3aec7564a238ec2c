"""check --engine ray on a real local cluster: the answer of a check without one, also where workers are killed.

make nightly runs it, since Ray takes long to start.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import pytest
from harness.processes import PROGRAMS, environment, external_server
from msprobe_client import Client

pytest.importorskip("ray", reason="Ray is an extra: pip install 'msprobe-client[ray]'")

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8], "requires_grad": False,
          "Max": 2.0, "Min": -1.0, "Mean": 0.5, "Norm": 3.0}  # fmt: skip
CALLS = ["takes_a_while"] * 12 + ["reads_nothing"] + ["takes_a_while"] * 12 + ["off_by_a_percent"] + ["double"] * 6


def dump(folder):
    folder.mkdir(parents=True)
    counts = collections.Counter()
    calls = {}
    for name in CALLS:
        calls[f"faulty_operators.{name}.{counts[name]}.forward"] = {
            "input_args": [TENSOR], "input_kwargs": {}, "output": [TENSOR],
        }  # fmt: skip
        counts[name] += 1
    document = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None, "data": calls}
    (folder / "dump.json").write_text(json.dumps(document))


def ray_processes_at_work():
    """Processes of Ray that keep a worker, each with the worker's."""
    listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in listed.splitlines()]
    keepers = {row[0] for row in rows if row[2].startswith("ray::supervise")}
    return [(int(row[1]), int(row[0])) for row in rows if row[1] in keepers and "msprobe_client.jobs" in row[2]]


def until(condition, seconds=300):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.05)
    return found


@pytest.mark.timeout(900)
def test_each_item_has_one_result_and_the_answer_is_that_without_ray_where_workers_are_killed(client, tmp_path):
    dump(tmp_path / "dump" / "step0" / "rank0")
    paths = os.pathsep.join([str(PROGRAMS), os.environ.get("PYTHONPATH", "")])
    surroundings = environment(OMP_NUM_THREADS=1, PYTHONPATH=paths)
    with (
        tempfile.TemporaryDirectory(prefix="msp") as short,
        external_server(pathlib.Path(short) / "s", tmp_path / "data", tmp_path / "log"),
        Client(f"unix:{short}/s") as asked,
    ):
        asked.import_dump(tmp_path / "dump", "run")

        def check(name, *words):
            command = [client, "--server", f"unix:{short}/s", "check", "run", *words, "--format", "json"]
            return subprocess.Popen(
                [*command, "--output", tmp_path / name], stderr=subprocess.PIPE, text=True, env=surroundings
            )

        here = check("here.json", "--workers", "2")
        assert here.wait(300) == 1, here.stderr.read()
        spread = check("ray.json", "--engine", "ray", "--workers", "2")

        def job():
            assert spread.poll() is None, spread.stderr.read()
            return max(asked.jobs.of_run("run"), key=lambda each: each.job)

        until(lambda: job().state == "sealed" and job().done >= 3)
        number = job().job
        keeper, _ = until(ray_processes_at_work)[0]
        os.kill(keeper, signal.SIGKILL)  # Ray's process, as where its machine dies; the worker goes with it
        before = job().done
        until(lambda: job().done > before and ray_processes_at_work())
        _, worker = ray_processes_at_work()[-1]
        os.kill(worker, signal.SIGKILL)  # the worker alone, with the item that it runs
        assert job().state == "sealed", "it had ended before workers were killed"
        assert spread.wait(300) == 1, spread.stderr.read()
        found = list(asked.jobs.results(number))
        assert sorted(result.item for result in found) == list(range(len(CALLS)))
    rows = {name: json.loads((tmp_path / name).read_text())["rows"] for name in ("here.json", "ray.json")}
    assert rows["ray.json"] == rows["here.json"]
    verdicts = collections.Counter(row["verdict"] for row in rows["ray.json"])
    assert verdicts == {"pass": len(CALLS) - 2, "crashed": 1, "fail": 1}
    (crashed,) = (row for row in rows["ray.json"] if row["verdict"] == "crashed")
    assert crashed["operation"] == "reads_nothing" and "SIGSEGV" in crashed["reason"]
