"""Capture that goes on and off costs torch.compile no graph, except one for each that ran before the first start."""

import json
import sys

import pytest
from harness.dumps import entries, exported_steps, write_config
from harness.nightly import mostly_nightly
from harness.processes import PROGRAMS, run

CYCLES = 50
FRAMES = {"broken": 2}  # that a model is compiled as; of the others one
AGENTS = {
    "L0": ("L0", [], {}),
    "L1": ("L1", [], {}),
    "mix": ("mix", [], {}),
    "mix once": ("mix", ["--once"], {}),
    "mix all": ("mix", [], {"capture": "all"}),
}

pytestmark = pytest.mark.timeout(400)


def outcome_of(directory, *arguments):
    out = directory / "out.json"
    run([sys.executable, PROGRAMS / "compiled.py", "--out", out, "--cycles", CYCLES, *arguments], timeout=380)
    return json.loads(out.read_text())


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    return outcome_of(tmp_path_factory.mktemp("without"))


@pytest.fixture(scope="module", params=mostly_nightly(AGENTS, "mix"))
def captured(request, tmp_path_factory):
    level, arguments, more = AGENTS[request.param]
    directory = tmp_path_factory.mktemp("captured")
    config = write_config(directory / "config.json", directory / "dump", level=level, **more)
    return outcome_of(directory, "--config", config, *arguments), directory / "dump"


def test_graphs_that_are_compiled_after_the_first_start_are_those_without_us(captured, without):
    for name, found in captured[0]["fresh"].items():
        assert found == without["fresh"][name], f"{name}: graphs, frames that dynamo looked at, or bits differ"


def test_graphs_that_ran_before_the_first_start_are_compiled_once_more_at_most(captured, without):
    for name, found in captured[0]["warmed"].items():
        expected = without["warmed"][name]
        assert found["digest"] == expected["digest"], f"{name}: other bits"
        further = found["graphs"] - expected["graphs"]
        assert 0 <= further <= FRAMES.get(name, 1), f"{name}: {further} further graphs"


def test_every_cycle_is_captured_alike(captured):
    dump = captured[1]
    assert len(exported_steps(dump)) == CYCLES
    assert list(entries(dump, 11)) == list(entries(dump, CYCLES - 1))


def test_a_stop_while_another_thread_compiles_leaves_nothing_in(captured):
    assert captured[0]["left in"] == []
