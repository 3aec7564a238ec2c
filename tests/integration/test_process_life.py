"""Forks, threads, second constructions, checkpointing, and the first use that the README shows."""

import collections
import re
import shutil
import sys

import pytest
from harness.dumps import base_name, entries, exported_steps, read_dump, write_config
from harness.processes import PROGRAMS, REPOSITORY, run, servers_of, wait_until


@pytest.mark.timeout(180)
def test_a_forked_child_that_does_not_start_records_and_says_nothing(dump_path, traced):
    done = traced("forking.py", config_flag=None, timeout=150, env={"PYTHONUNBUFFERED": ""})
    assert "PARENT DONE" in done.stdout
    assert re.findall(r"CHILD ENDED (\d+)", done.stdout) == ["0", "3"]
    assert "LOADED [0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0]" in done.stdout
    children = re.findall(r"CHILD (\d+)", done.stdout)
    text = done.stdout + done.stderr
    assert len(children) == 2 and not re.search("|".join(rf"\({child}\)" for child in children), text), text[-3000:]
    assert "captures nothing" not in text
    assert text.count("WRITTEN BEFORE A FORK") == 1
    ranks = list((dump_path / "step0").iterdir())
    assert len(ranks) == 1, "only the parent has a directory"
    data = read_dump(ranks[0])["data"]
    assert "Torch.abs.0.forward" in data and "Torch.neg.0.forward" in data
    assert not [name for name in data if name.startswith(("Torch.add.", "Torch.mul."))], "nothing of the children"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("when", ["before", "after", "after-in-c"])
def test_a_forked_child_that_starts_captures_or_says_why_not(dump_path, traced, when):
    done = traced("forked_capture.py", when, config_flag=None)
    (child,), (parent,) = re.findall(r"CHILD (\d+)", done.stdout), re.findall(r"PARENT (\d+)", done.stdout)
    assert re.findall(r"CHILD ENDED (\d+)", done.stdout) == ["0"]
    refusals = [line for line in (done.stdout + done.stderr).splitlines() if "forked after start() captures" in line]
    processes = {int(path.name.removeprefix("proc")) for path in dump_path.glob("step*/*")}
    assert re.findall(r"REPLAYED (\d+)", done.stdout) == ["2" if when == "before" else "1"], "passes"
    if when == "before":
        assert (processes, refusals) == ({int(parent), int(child)}, [])
    else:
        assert processes == {int(parent)}
        assert len(refusals) == 1 and child in refusals[0]
    steps = sorted(path.parent.name for path in dump_path.glob(f"step*/proc{parent}"))
    assert steps == [f"step{number}" for number in range(3 if when == "before" else 4)]
    assert all("Torch.abs.0.forward" in read_dump(path)["data"] for path in dump_path.glob("step*/*"))


@pytest.mark.timeout(120)
def test_threads_do_not_mix_their_calls(dump_path, traced):
    traced("threading_calls.py", config_flag=None)
    calls = [value for name, value in entries(dump_path).items() if name.startswith("Torch.mul.")]
    assert len(calls) == 800
    inputs = sorted(call["input_args"][0]["Max"] for call in calls)
    assert inputs == [float(value) for value in range(800)]
    mixed = [call for call in calls if call["output"][0]["Max"] != 2 * call["input_args"][0]["Max"]]
    assert not mixed, f"{len(mixed)} records hold another call's output"


@pytest.mark.timeout(120)
def test_second_construction_and_pairs_of_start_and_stop(tmp_path, dump_path):
    first = write_config(tmp_path / "first.json", dump_path)
    second = write_config(tmp_path / "second.json", tmp_path / "other", level="mix")
    done = run([sys.executable, PROGRAMS / "second_construction.py", first, second])
    assert "BEFORE CONSTRUCTION" in done.stdout
    assert "SAME True" in done.stdout
    text = (done.stdout + done.stderr).lower()
    assert "already" in text or "ignored" in text or "singleton" in text, "the ignored configuration is mentioned"
    assert not (tmp_path / "other").exists()
    assert exported_steps(dump_path) == [0, 1, 2]
    assert list(entries(dump_path, 0)) == ["Torch.abs.0.forward", "Torch.abs.1.forward"]
    assert list(entries(dump_path, 1)) == ["Torch.abs.0.forward"]
    assert list(entries(dump_path, 2)) == ["Torch.abs.0.forward"], "what was open at a normal exit is written"
    assert not list(dump_path.rglob("INCOMPLETE"))


@pytest.mark.timeout(180)
def test_activation_checkpointing_loses_nothing(dump_path, traced):
    traced("checkpointing.py", config_flag=None, level="mix")
    plain, non_reentrant, reentrant = (entries(dump_path, step) for step in range(3))

    def kinds(data):
        return collections.Counter(base_name(name) for name in data)

    for name, data in (("use_reentrant=False", non_reentrant), ("use_reentrant=True", reentrant)):
        lost = kinds(plain) - kinds(data)
        assert not lost, f"{name} lost {sum(lost.values())}: {dict(lost)}"
        # The recomputed calls count on, and each layer has been run twice.
        for layer in (0, 1):
            for count in (0, 1):
                assert any(
                    entry.startswith(f"Module.model.layers.{layer}.mlp.gate_proj.Linear.forward.{count}")
                    for entry in data
                ), (name, layer, count)
        assert "Tensor.lerp_.20.forward" in data, f"{name}: the optimizer is recorded"
        unfinished = [entry for entry, value in data.items() if entry.endswith("forward") and "output" not in value]
        assert len(unfinished) <= 2, f"{name}: only what the early stop cut short has no output: {unfinished}"
    # The first pass and the optimizer have the same numbers as without checkpointing.
    for entry in ("Functional.linear.0.forward", "Functional.cross_entropy.0.forward", "Tensor.lerp_.20.forward"):
        assert non_reentrant[entry] == plain[entry], entry


# A model that answers as the README's does.
AROUND_THE_README = """
import types
import torch

class Model(torch.nn.Linear):
    def forward(self, x):
        return types.SimpleNamespace(loss=torch.nn.functional.relu(super().forward(x)).sum())

model = Model(4, 4)
batch = torch.ones(2, 4)
"""


@pytest.mark.timeout(120)
def test_first_use_as_the_readme_shows_it(tmp_path):
    readme = REPOSITORY / "README.md"
    blocks = [
        block
        for block in re.findall(r"```python\n(.*?)```", readme.read_text(), re.DOTALL)
        if "PrecisionDebugger" in block
    ]
    assert blocks, "README.md shows no first use of PrecisionDebugger"
    program = tmp_path / "first_use.py"
    program.write_text(AROUND_THE_README + blocks[0])
    write_config(tmp_path / "config.json", tmp_path / "dump_path")
    run([sys.executable, program], cwd=tmp_path)
    dumped = list(tmp_path.rglob("dump.json"))
    assert dumped, "the five lines leave a dump.json"


@pytest.mark.timeout(180)
def test_a_dump_path_removed_and_used_again_at_once(dump_path, traced):
    """The server of the first run is still there when its directory goes; it must not write into the second one's."""
    traced("threading_calls.py", config_flag=None)
    first = entries(dump_path)
    shutil.rmtree(dump_path)
    for _ in range(2):
        traced("threading_calls.py", config_flag=None)
        assert entries(dump_path).keys() == first.keys()
        shutil.rmtree(dump_path)
    wait_until(lambda: not servers_of(dump_path), 4, "a server whose directory is gone leaves at once")
    assert not dump_path.exists()
