"""FSDP2, a pipeline, forked loaders and threads in four ranks: every record is there, numbered the same each time."""

import collections
import json
import sys

import pytest
from harness.dumps import read_dump, write_config
from harness.processes import PROGRAMS, launched

RANKS, THREADS, CALLS = 4, 8, 25


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """dumps[rank][step]: the entries of a rank's step."""
    directory = tmp_path_factory.mktemp("parallel")
    config = write_config(directory / "config.json", directory / "dump", level="mix")
    with launched(RANKS, [sys.executable, PROGRAMS / "parallel_ranks.py", config], directory) as programs:
        for program in programs:
            program.finish(240)
            assert program.output.count("LOADED [[0.0, 1.0, 4.0, 9.0], [16.0, 25.0, 36.0, 49.0]]") == 2
            assert "ENDED" in program.output
    written = sorted(str(path.relative_to(directory / "dump")) for path in (directory / "dump").glob("step*/*"))
    assert written == [f"step{step}/rank{rank}" for step in (0, 1) for rank in range(RANKS)]
    return [
        [read_dump(directory / "dump" / f"step{step}" / f"rank{rank}")["data"] for step in (0, 1)]
        for rank in range(RANKS)
    ]


def of_threads(data):
    return {name: entry for name, entry in data.items() if name.startswith("Module.thread.")}


def of_main_thread(data):
    return [name for name in data if all(int(part) < 1_000_000 for part in name.split(".") if part.isdigit())]


@pytest.mark.timeout(400)
def test_steps_are_numbered_alike(dumps):
    for rank in range(RANKS):
        first, second = (of_main_thread(data) for data in dumps[rank])
        assert first == second
        ours, later = (set(data) for data in dumps[rank])
        assert ours == later, "which of the threads calls first is not the same in both steps"
    for data in zip(*(dumps[rank] for rank in range(RANKS)), strict=True):
        sharded = [[name for name in each if ".sharded." in name] for each in data]
        assert sharded[0] and all(each == sharded[0] for each in sharded)


@pytest.mark.timeout(400)
def test_sharded_modules_are_whole(dumps):
    for rank in range(RANKS):
        for step, data in enumerate(dumps[rank]):
            names = [name.replace("FSDP", "") for name in data if ".sharded." in name]
            for layer in ("0.Linear", "1.ReLU", "2.Linear"):
                assert f"Module.sharded.{layer}.forward.0" in names
                assert f"Module.sharded.{layer}.backward.0" in names
            starts = "Module.sharded.0."
            (first,) = (each for name, each in data.items() if name.startswith(starts) and ".forward." in name)
            assert first["input_args"][0]["Max"] == rank + 1 + 10 * step, "each rank has its own input"


@pytest.mark.timeout(400)
def test_the_stages_of_a_pipeline_agree(dumps):
    for rank in (0, 2):
        for ours, next_ in zip(dumps[rank], dumps[rank + 1], strict=True):
            sent, arrived = ours["Distributed.send.0.forward"], next_["Distributed.recv.0.forward"]
            assert sent["input_args"][0]["Norm"] == arrived["output"][0]["Norm"]
            assert ours["Module.stage.Stage.forward.0"]["output"][0]["Max"] == sent["input_args"][0]["Max"]
            gradient, back = next_["Distributed.send.0.forward"], ours["Distributed.recv.0.forward"]
            assert gradient["input_args"][0]["Norm"] == back["output"][0]["Norm"]
            assert ours["Module.stage.Stage.backward.0"]["input"][0]["Norm"] == back["output"][0]["Norm"]


@pytest.mark.timeout(400)
def test_every_call_of_every_thread_is_there_in_its_order(dumps):
    for rank in range(RANKS):
        for data in dumps[rank]:
            calls = collections.defaultdict(list)
            for name, entry in of_threads(data).items():
                calls[name.split(".")[2]].append((int(name.rsplit(".", 1)[1]), entry["input_args"][0]["Max"]))
            assert sorted(calls) == [str(number) for number in range(THREADS)]
            lanes = [{count // 1_000_000 for count, _ in calls[str(number)]} for number in range(THREADS)]
            assert lanes == [{number + 1} for number in range(THREADS)], "numbered in the order they were started"
            for number, made in calls.items():
                values = [value for _, value in sorted(made)]
                assert values == [float(int(number) * CALLS + call) for call in range(CALLS)], json.dumps(made)


@pytest.mark.timeout(400)
def test_the_loaders_workers_left_nothing(dumps):
    assert not [name for rank in dumps for data in rank for name in data if name.startswith("Torch.mul.")]
