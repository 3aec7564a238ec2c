"""MSProbe Debugging Guide, the guide of vllm-ascend's users: its results come out on vLLM's own engine.

Starting the service, its flags and curl are in test_serve.py, compiled models in test_compiled.py.
"""

import json
import re

import pytest
from harness.dumps import exported_steps, rank_directory, read_dump
from harness.processes import run

pytestmark = pytest.mark.timeout(300)
STEPS = [0, 1, 2, 3]

# The configurations that the guide shows, but for the path.
EAGER = """{
  "task": "statistics",
  "dump_path": "/home/data_dump",
  "rank": [],
  "step": [],
  "level": "L1",
  "async_dump": false,

  "statistics": {
    "scope": [],
    "list": [],
    "tensor_list": [],
    "data_mode": ["all"],
    "summary_mode": "statistics"
  }
}"""
GRAPH = '{"task": "statistics", "level": "L1", "dump_path": "/home/data_dump", "statistics": {"list": []}}'


@pytest.fixture
def dumped(tmp_path, generate_in_fork, plain):
    """dumped(text, **changes): dump_path after the three prompts. Fields of the task's section go into `section`."""

    def call(text, section=None, **changes):
        config = {**json.loads(text), "dump_path": str(tmp_path / "dump"), **changes}
        if section or config["task"] not in config:
            config[config["task"]] = section or {"list": []}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config, indent=2))
        found = generate_in_fork("--watch", env={"MSPROBE_CONFIG": str(path)})
        assert found.tokens == plain
        return tmp_path / "dump"

    return call


def beside(dump_path):
    return {path.name for path in rank_directory(dump_path, 1).iterdir()}


def document(dump_path, name):
    return json.loads((rank_directory(dump_path, 1) / name).read_text())


@pytest.mark.parametrize("text", [EAGER, GRAPH], ids=["the eager one", "the one for graphs"])
def test_its_configurations_work_and_l1_has_no_structure(text, dumped):
    dump_path = dumped(text)
    assert exported_steps(dump_path) == STEPS
    assert rank_directory(dump_path, 1).name == "rank0"
    assert beside(dump_path) == {"dump.json", "stack.json", "construct.json"}, "no error log where nothing went wrong"
    assert document(dump_path, "construct.json") == {}
    data = read_dump(rank_directory(dump_path, 1))["data"]
    assert data and not any(name.startswith("Module.") for name in data)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_a_level_with_modules_can_be_visualised(level, dumped, oracle_python, tmp_path):
    dump_path = dumped(EAGER, level=level)
    construct = document(dump_path, "construct.json")
    assert construct["Module.model.layers.0.mlp.Qwen2MLP.forward.0"].startswith("Module.model.layers.0.")
    if level == "L0":
        return  # the tool that draws takes long to begin
    visualise = oracle_python.with_name("msprobe")
    run([visualise, "graph_visualize", "-tp", rank_directory(dump_path, 1), "-o", tmp_path / "graph"], PYTHONPATH=None)
    assert list((tmp_path / "graph").glob("build_*.vis.db"))


def test_tensors_lie_in_files_named_after_what_they_are(dumped):
    dump_path = dumped(EAGER, task="tensor", level="mix", section={"list": [], "data_mode": ["all"]})
    names = sorted(path.name for path in (rank_directory(dump_path, 1) / "dump_tensor_data").iterdir())
    assert "Module.model.layers.0.mlp.Qwen2MLP.forward.0.output.0.pt" in names
    assert "Module.model.norm.RMSNorm.forward.0.parameters.weight.pt" in names
    told = re.findall(r'"data_name": *"([^"]+)"', (rank_directory(dump_path, 1) / "dump.json").read_text())
    assert names == sorted(told), "each is told in dump.json"


def test_troubleshooting_dumps_too_large(dumped):
    """Statistics, then a narrower `list`: fewer records, and the right ones."""
    size, sizes = lambda path: sum(file.stat().st_size for file in path.rglob("step*/**/*") if file.is_file()), []
    for changes in (
        {"task": "tensor", "section": {"list": []}},
        {"task": "statistics", "section": {"list": []}},
        {"task": "statistics", "section": {"list": ["down_proj"]}},
    ):
        dump_path = dumped(EAGER, level="L0", **changes)
        sizes.append(size(dump_path))
        narrowed = read_dump(rank_directory(dump_path, 1))["data"]
        for step in dump_path.glob("step*"):
            step.rename(dump_path.parent / f"{len(sizes)} {step.name}")
    assert sizes[0] > sizes[1] > 3 * sizes[2]
    assert narrowed and all("down_proj" in name for name in narrowed)


def test_troubleshooting_no_dump_files_as_the_path_is_wrong(generate_in_fork, tmp_path):
    missing = tmp_path / "absent.json"
    found = generate_in_fork("--watch", check=False, env={"MSPROBE_CONFIG": str(missing)})
    assert found.tokens is None and f"config_path '{missing}' cannot be read" in found.output


def test_troubleshooting_no_dump_files_as_nobody_may_write_there(generate_in_fork, tmp_path):
    taken = tmp_path / "dump"
    taken.write_text("a file")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(GRAPH), "dump_path": str(taken)}))
    found = generate_in_fork("--watch", check=False, env={"MSPROBE_CONFIG": str(config)})
    assert "dump_path" in found.output and str(taken) in found.output
