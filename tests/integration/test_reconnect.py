"""A server that is killed and comes back changes no value that was captured: tests/chaos/test_reconnect.py in short."""

import contextlib

import pytest
from harness import kills


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("taken", "processes"), [("idle", 4), ("busy", 2)])
def test_no_value_is_another_one(taken, processes, reconnecting):
    with kills.busy() if taken == "busy" else contextlib.nullcontext():
        print(reconnecting.loop(processes))
