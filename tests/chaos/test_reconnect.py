"""Servers killed at every phase of a step and back after every delay: no value changes."""

import contextlib

import pytest
from harness import kills


@pytest.mark.timeout(5400)
@pytest.mark.parametrize(("taken", "processes"), [("idle", 350), ("busy", 150)])
def test_no_value_is_another_one(taken, processes, reconnecting):
    with kills.busy() if taken == "busy" else contextlib.nullcontext():
        print(f"\n{reconnecting.loop(processes)}")
