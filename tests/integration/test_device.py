"""Capture on a device (tests/npu_backend): asynchronous, with memory that kills the host that touches it."""

import json
import math
import signal
import sys

import pytest
from harness.device_values import close, differences_from_host, extended_values
from harness.dumps import exported_steps, leaves, rank_directory, read_dump, write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, run, run_program, wait_for_servers_to_leave

STEPS = 2
LEVELS = ("L0", "L1", "mix")


def train(directory, *arguments, agent=True, timeout=100, **configuration):
    """Runs on_device.py; gives what it printed and its dump_path."""
    directory.mkdir(parents=True, exist_ok=True)
    more = ["--agent", "off"]
    if agent:
        more = ["--config", write_config(directory / "config.json", directory / "dump", **configuration)]
    out = directory / "out.json"
    run_program(PROGRAMS / "on_device.py", *more, "--steps", STEPS, "--out", out, *arguments, timeout=timeout)
    return json.loads(out.read_text()), directory / "dump"


@pytest.fixture(scope="module")
def off(tmp_path_factory):
    """off(*arguments): the program's results without the agent; each runs once."""
    known = {}

    def get(*arguments):
        if arguments not in known:
            known[arguments], _ = train(tmp_path_factory.mktemp("off"), *arguments, agent=False)
        return known[arguments]

    return get


def computed(found):
    return found["losses"], found["states"]


def differences(ours, theirs, exact=True):
    """Compares two tensors' numbers: extremes exactly (or not), sums within rounding."""
    count = math.prod(theirs["shape"])
    norm = theirs["Norm"]
    size = norm / math.sqrt(count) if norm is not None and math.isfinite(norm) and count else 0
    found = {key: (ours[key], theirs[key]) for key in ("dtype", "shape") if ours[key] != theirs[key]}
    scales = {"Max": 0 if exact else size, "Min": 0 if exact else size, "Mean": size, "Norm": abs(norm or 0)}
    for key, scale in scales.items():
        if not close(ours[key], theirs[key], scale):
            found[key] = (ours[key], theirs[key])
    return found


@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    ("net", "level"),
    mostly_nightly([("mlp", "L0"), ("mlp", "L1"), ("mlp", "mix"), ("qwen2", "mix")], ("mlp", "L1"), ("qwen2", "mix")),
)
def test_the_numbers_are_those_of_the_host(tmp_path, level, net):
    _, there = train(tmp_path / "npu", "--net", net, level=level)
    _, here = train(tmp_path / "cpu", "--net", net, "--device", "cpu", level=level)
    assert exported_steps(there) == exported_steps(here) == list(range(STEPS))
    for step in range(STEPS):
        ours, theirs = (read_dump(rank_directory(path, step))["data"] for path in (there, here))
        assert list(ours) == list(theirs)
        numbers = dict(leaves(ours))
        assert numbers.keys() == dict(leaves(theirs)).keys()
        # Some of Qwen2's operators are, on this device, compositions of others than the host's.
        exact = net != "qwen2"
        wrong = {place: differences(numbers[place], host, exact) for place, host in leaves(theirs)}
        assert not {place: what for place, what in wrong.items() if what}
        assert len(numbers) > 20


@pytest.mark.timeout(200)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("level", mostly_nightly(LEVELS, "mix"))
def test_nobody_waits_for_the_device(tmp_path, level, task, off):
    # Held from start() to stop(): the program could not go on if anything waited for a kernel.
    found, dump_path = train(tmp_path, "--hold", level=level, task=task)
    assert exported_steps(dump_path) == list(range(STEPS))
    assert computed(found) == computed(off())
    counters = found["counters"]
    for step in counters:
        assert (step["synchronizations"], step["waiting_device_to_host"], step["host_to_device"]) == (0, 0, 0)
    # Held, the device gives no slab back: at most one is new for each copy, none for a tensor. In the first step there
    # is scratch memory, too: three tensors for each stream.
    more = [on["allocations"] - plain["allocations"] for on, plain in zip(counters, off()["counters"], strict=True)]
    assert more[0] <= counters[0]["device_to_host"] + 3
    assert more[1] <= counters[1]["device_to_host"]
    records = sum(len(read_dump(rank_directory(dump_path, step))["data"]) for step in range(STEPS))
    copies = sum(step["device_to_host"] for step in counters)
    tensors = sum(len(list(leaves(read_dump(rank_directory(dump_path, step))["data"]))) for step in range(STEPS))
    assert records >= 6 * STEPS
    # A slab is copied once, when it is full or 20 ms old: how many there are depends on the machine's speed.
    assert copies < tensors if task == "statistics" else copies <= tensors


@pytest.mark.timeout(200)
def test_no_profiler_sees_what_the_agent_launches(tmp_path, off):
    found, _ = train(tmp_path, "--profile", level="mix")
    assert computed(found) == computed(off("--profile"))
    assert found["operators"] == off("--profile")["operators"]
    assert all(len(operators) > 50 for operators in found["operators"])


@pytest.mark.timeout(200)
@pytest.mark.parametrize("arguments", [("--stream",), ("--threads", 3)], ids=["a stream of its own", "three threads"])
def test_streams_and_threads(tmp_path, arguments, off):
    found, dump_path = train(tmp_path / "npu", *arguments, level="mix")
    assert computed(found) == computed(off(*arguments))
    assert [step["synchronizations"] for step in found["counters"]] == [0] * STEPS
    assert exported_steps(dump_path) == list(range(STEPS))
    if "--stream" in arguments:
        _, here = train(tmp_path / "cpu", "--device", "cpu", level="mix")
        for step in range(STEPS):
            ours, theirs = (dict(leaves(read_dump(rank_directory(path, step))["data"])) for path in (dump_path, here))
            assert not [place for place in theirs if differences(ours[place], theirs[place])]
    else:
        # Models, batches and all are the same in each thread.
        data = read_dump(rank_directory(dump_path, 1))["data"]
        first = {name: record for name, record in data.items() if name.startswith("Functional.gelu.0.forward")}
        others = [data[f"Functional.gelu.{1_000_000 * thread}.forward"] for thread in (1, 2)]
        assert first
        assert all(other == next(iter(first.values())) for other in others)


@pytest.mark.timeout(100)
def test_a_kill_loses_what_had_not_come_back(tmp_path):
    arguments = ("--hold", "--killed-in", 1, "--steps", STEPS, "--out", tmp_path / "out.json")
    config = write_config(tmp_path / "config.json", tmp_path / "dump", level="mix")
    done = run([sys.executable, PROGRAMS / "on_device.py", "--config", config, *arguments], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    wait_for_servers_to_leave(tmp_path / "dump")  # it has exported what it had
    whole = rank_directory(tmp_path / "dump", 0)
    assert not (whole / "INCOMPLETE").exists()
    assert all(leaf["Max"] is not None for _, leaf in leaves(read_dump(whole)["data"]))
    # The device had not begun step 1.
    assert exported_steps(tmp_path / "dump") == [0] or (rank_directory(tmp_path / "dump", 1) / "INCOMPLETE").exists()


@pytest.mark.timeout(200)
def test_tensors_and_checksums(tmp_path):
    import torch

    section = {"summary_mode": "md5"}
    _, there = train(tmp_path / "npu", level="mix", task="tensor", section=section)
    _, here = train(tmp_path / "cpu", "--device", "cpu", level="mix", task="tensor", section=section)
    for step in range(STEPS):
        ours, theirs = (rank_directory(path, step) for path in (there, here))
        numbers = dict(leaves(read_dump(ours)["data"]))
        checked = 0
        for place, host in leaves(read_dump(theirs)["data"]):
            assert {**numbers[place]} == {**host}, place
            checked += 1
            assert torch.equal(
                torch.load(ours / "dump_tensor_data" / host["data_name"], map_location={"npu:0": "cpu"}),
                torch.load(theirs / "dump_tensor_data" / host["data_name"]),
            )
        assert checked > 90


@pytest.mark.timeout(120)
def test_every_type_and_layout(tmp_path, dump_path, ask, client):
    config = write_config(tmp_path / "config.json", dump_path, level="debug")
    run_program(PROGRAMS / "on_device_values.py", "--config", config)
    data = extended_values(dump_path, 0, ask, client, tmp_path / "out")
    wrong, checked = differences_from_host(data, "npu:0")
    assert not wrong
    assert checked == len(data) / 2 > 80
