"""Level L0 in GRAPH_MODE: the operators in MindSpore's own graph, and the records of what they write."""

import collections
import json
import re

import pytest
from harness.mindspore import PROGRAMS
from msprobe_client.client import Client

PROGRAM = PROGRAMS / "graph_cells.py"
CALLS = {  # in a step
    **{"Cell.net.Net": 1, "Cell.net.embedding.Embedding": 1, "Cell.net.split.Split": 1},
    **{"Cell.net.blocks.0.Dense": 2, "Cell.net.blocks.1.Dense": 1},
}
WITHOUT_GRADIENT = {f"{cell}.backward.output.0" for cell in ("Cell.net.Net", "Cell.net.embedding.Embedding")}
TENSORS = collections.Counter(
    {
        name: count
        for cell, count in CALLS.items()
        for place in ("forward.input.0", "forward.output.0", "backward.input.0", "backward.output.0")
        if (name := f"{cell}.{place}") not in WITHOUT_GRADIENT
    }
)

# Gradients come first for the last call, which numbers them in a graph.
TURNED = {f"Cell.net.blocks.0.Dense.backward.{n}": f"Cell.net.blocks.0.Dense.backward.{1 - n}" for n in (0, 1)}


def said(ran):
    (line,) = (line.removeprefix("said ") for line in ran.output.splitlines() if line.startswith("said "))
    return json.loads(line)


def numbers(client, run, step):
    """By record, then by tensor: what is known of each. The Norm of a single number is the number in a dump."""
    (rank,) = {summary.rank for summary in client.steps(run)}
    return {
        record.full_name: {
            name: (stats.dtype, stats.shape, stats.max, stats.min, abs(stats.norm)) for name, stats in record.tensors()
        }
        for record in client.records(run, step=step, rank=rank)
    }


def test_cells_between_operators_compute_the_same_and_their_files_become_records(run_program, tmp_path):
    same, told, marks, refusals = said(run_program(PROGRAM, "eager", tmp_path))
    assert same, "the operators changed the run"
    assert told == ["what cells of its graphs get and give", ""]
    assert marks == 4, "the host's step and the device's have ended twice"
    for step in (0, 1):
        files = (tmp_path / "graph" / f"step{step}" / "rank0" / "dump_tensor_data").iterdir()
        names = (re.fullmatch(r"(.+)_(int32|float32)_\d+\.npy", path.name)[1] for path in files)
        assert collections.Counter(names) == TENSORS
    files = (tmp_path / "forward" / "step2" / "rank0" / "dump_tensor_data").iterdir()
    assert {path.name.split(".")[-4] for path in files} == {"forward"}
    assert refusals == {
        "task": "task is 'structure'; at level L0 in GRAPH_MODE it should be one of ['statistics', 'tensor']",
        "rank": "rank is [1]; at level L0 in GRAPH_MODE every cell of every rank is dumped, leave it out",
        "list": "list is ['Dense']; at level L0 in GRAPH_MODE every cell of every rank is dumped, leave it out",
        "data_mode": (
            "data_mode is ['input']; at level L0 in GRAPH_MODE it should be one of ['all', 'forward', 'backward']"
        ),
        "md5": "summary_mode is 'md5'; at level L0 in GRAPH_MODE it should be 'statistics'",
    }

    with Client(data_dir=tmp_path / "data", create=True) as client:
        client.import_dump(tmp_path / "eager", "eager")
        report = client.import_dump(tmp_path / "graph", "graph")
        assert report.steps == 2 and report.warnings == ()
        for step in (0, 1):
            ours, captured = (numbers(client, run, step) for run in ("graph", "eager"))
            assert {name for name in captured if ".parameters_grad." not in name} == ours.keys()
            for name, tensors in ours.items():
                eager = captured[TURNED.get(name, name)]
                for tensor, (*exact, norm) in tensors.items():
                    there = eager[tensor.replace(name, TURNED.get(name, name))]
                    assert there == (*exact, pytest.approx(norm, rel=1e-6)), tensor
        parents = {record.full_name: record.parent for record in client.records("graph", step=0, rank=0)}
        assert parents["Cell.net.blocks.0.Dense.forward.1"] == "Cell.net.Net.forward.0"
        assert parents["Cell.net.blocks.0.Dense.backward.1"] == "Cell.net.Net.backward.0"


def test_mindspore_compiles_the_operators_into_the_graph(run_program, tmp_path):
    error, settings = said(
        run_program(PROGRAM, "graph", tmp_path / "dump", MS_DEV_SAVE_GRAPHS="2", MS_DEV_SAVE_GRAPHS_PATH=str(tmp_path))
    )
    assert "TensorDump" in error, "a CPU has no kernel of it"
    common = settings["common_dump_settings"]
    assert (common["kernels"], common["saved_data"], common["iteration"]) == (["TensorDump"], "statistic", "1|3")
    assert common["statistic_category"] == ["max", "min", "avg", "l2norm"]
    (graph,) = tmp_path.glob("*_validate_*.ir")
    written = re.findall(r"TensorDump\(\"[^\"]*/\{step\}/\{rank\}/dump_tensor_data/([\w-]+)\"", graph.read_text())
    assert collections.Counter(name.replace("-", ".") for name in written) == TENSORS
