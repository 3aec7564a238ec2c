"""The wait at the end of a program is over when it says so, whatever a server takes meanwhile."""

import re
import threading
import time
from types import SimpleNamespace

import pytest
from msprobe._common import arguments, leaving
from msprobe._common.errors import MsprobeError

BOUND = 0.4  # seconds, for the two minutes


@pytest.mark.parametrize(("trickles", "said"), [(True, BOUND), (False, 0.1)], ids=["a trickle", "nothing"])
def test_the_wait_ends_at_its_bound(trickles, said, capsys, monkeypatch):
    monkeypatch.delenv("MSPROBE_LOG_LEVEL", raising=False)
    monkeypatch.setattr(leaving, "_LONGEST_SECONDS", BOUND)
    monkeypatch.setattr(leaving, "_SILENT_SECONDS", 0)
    sent = 0

    def counters():
        nonlocal sent
        sent += trickles
        return {"durable_through": 0, "bytes_sent": sent}

    wait = leaving._Wait(SimpleNamespace(counters=counters), 0.1, threading.Event())
    while wait.goes_on("7 batches are not durable"):
        time.sleep(0.01)  # between two looks, as the end of a program has it
    assert said <= time.monotonic() - wait.began < said + 5
    printed = capsys.readouterr().out
    assert re.search(r"at most 0 s more, 0 s if nothing is taken, Ctrl-C leaves: 7 batches are not durable", printed)


def test_files_that_a_server_writes_may_take_the_whole_time(capsys, monkeypatch):
    monkeypatch.delenv("MSPROBE_LOG_LEVEL", raising=False)
    monkeypatch.setattr(leaving, "_SILENT_SECONDS", 0)
    agent = SimpleNamespace(counters=lambda: {"durable_through": 9, "bytes_sent": 9})
    wait = leaving._Wait(agent, 0, threading.Event())
    assert wait.goes_on("not exported: step 3")
    assert re.search(r"at most 1[12]\d s more, Ctrl-C leaves: not exported: step 3", capsys.readouterr().out)


@pytest.mark.parametrize("timeout", ["x", None, -1, float("nan"), True])
def test_a_wait_is_asked_for_in_seconds(timeout):
    with pytest.raises(MsprobeError, match=r"^timeout is .*; it should be a number of seconds, at least 0$"):
        arguments.seconds(timeout, "timeout")
    assert arguments.seconds(2, "timeout") == 2
