"""torch, transformers, PyPI grpcio and the agent in one process."""

import pytest
from harness.dumps import entries, exported_steps

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
