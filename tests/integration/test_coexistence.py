"""torch, transformers, PyPI grpcio and the agent in one process."""

import sys

import pytest
from harness.dumps import entries, exported_steps, write_config
from harness.processes import run

ORDERS = [
    ("torch", "transformers", "grpc", "msprobe.pytorch"),
    ("msprobe.pytorch", "grpc", "transformers", "torch"),
    pytest.param(("grpc", "msprobe.pytorch", "torch", "transformers"), marks=pytest.mark.nightly),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("order", ORDERS, ids="-".join)
def test_import_order(order, traced, dump_path):
    done = traced("coexist.py", *order, config_flag=None, level="mix")
    assert "TOGETHER" in done.stdout
    assert exported_steps(dump_path) == [0, 1]
    first = entries(dump_path, 0)
    assert "Functional.linear.0.forward" in first and "Module.lm_head.Linear.backward.0" in first
    assert list(first) == list(entries(dump_path, 1))


TWO_THREADS = """
import sys, threading
import torch
from msprobe.pytorch import PrecisionDebugger

inside, done = threading.Event(), threading.Event()
made = PrecisionDebugger._make_parts

def slowly(self):
    inside.set()
    done.wait(1)  # the other thread does not come so far before this one is ready
    made(self)

def second():
    inside.wait()
    PrecisionDebugger(sys.argv[1]).start()
    PrecisionDebugger.stop()
    done.set()
    print("CAPTURED")

PrecisionDebugger._make_parts = slowly
other = threading.Thread(target=second)
other.start()
PrecisionDebugger(sys.argv[1])
other.join()
"""


def test_two_threads_construct_it_at_once(tmp_path):
    config = write_config(tmp_path / "config.json", tmp_path / "dump")
    done = run([sys.executable, "-c", TWO_THREADS, config])
    assert "CAPTURED" in done.stdout and "Error" not in done.stderr, done.stdout + done.stderr
