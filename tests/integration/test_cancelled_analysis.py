"""Ctrl-C at the client ends the work on the server, which others go on using."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from harness.processes import external_server, free_port

pytest.importorskip("grpc")

STEPS = 10
RECORDS = 5000


def write_dump(root):
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4], "requires_grad": False}
    leaf |= {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
    data = {f"Torch.f.{i}.forward": {"input_args": [leaf] * 3, "output": [leaf]} for i in range(RECORDS)}
    text = json.dumps({"task": "statistics", "level": "L1", "data": data})
    for step in range(STEPS):
        directory = root / f"step{step}" / "rank0"
        directory.mkdir(parents=True)
        (directory / "dump.json").write_text(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    from msprobe_client.client import Client

    root = tmp_path_factory.mktemp("cancelled")
    write_dump(root / "dump")
    socket, port = root / "s", free_port()
    with external_server(socket, root / "data", root / "log", "--metrics_listen", f"127.0.0.1:{port}") as running:
        address = f"unix:{socket}"
        with Client(address) as client:
            client.import_dump(root / "dump", "run")

        def metric(name):
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
            found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
            return float(found[1]) if found else 0.0

        yield address, metric, running, root


# The answer to each is many megabytes, which nobody reads: the server cannot be through with it before it is told.
QUESTIONS = {
    "compare": ["compare", "run:run", "run:run", "--all", "--format", "json"],
    "trend": ["trend", "run", "*", "--limit", "100000", "-s", "norm", "-s", "mean", "-s", "max", "--format", "json"],
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_an_interruption_ends_the_work_on_the_server(server, kind):
    address, metric, running, root = server
    cancelled = f'msprobe_analyses_total{{kind="{kind}",result="cancelled"}}'
    before = metric(cancelled)
    command = [sys.executable, "-m", "msprobe_client", "--server", address, *QUESTIONS[kind]]
    with (root / "errors").open("w+") as errors:
        process = subprocess.Popen(command, env=dict(os.environ), stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout.readline()  # the answer has begun, and there is much of it left
            assert metric("msprobe_analyses_under_way") == 1
            process.send_signal(signal.SIGINT)
            process.stdout.read()
            assert process.wait(30) == 130
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
    running.wait_for(lambda: metric(cancelled) == before + 1, 30, "the server ends the work")
    assert metric("msprobe_analyses_under_way") == 0


def test_what_is_answered_and_what_cannot_be_is_counted_apart(server):
    from msprobe_client import Client, MsprobeError

    address, metric, _, _ = server
    with Client(address) as client:
        assert list(client.first_divergence("run:run", "run:run", steps=[(0, 0)])) == []
        with pytest.raises(MsprobeError):
            list(client.first_divergence("run:run", "run:nowhere"))
    assert metric('msprobe_analyses_total{kind="first_divergence",result="ok"}') == 1
    assert metric('msprobe_analyses_total{kind="first_divergence",result="error"}') == 1
