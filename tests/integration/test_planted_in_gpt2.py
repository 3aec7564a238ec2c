"""A real model, captured as its users do, with a planted fault: analysis finds it, and finds nothing in a clean one."""

import json

import pytest
from harness.processes import run

pytestmark = pytest.mark.nightly
PROGRAM = "planted_gpt2.py"
SIDES = {"clean": [], "weight": ["--fault", "weight"], "nan": ["--fault", "nan"]}


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    """Where the dump of (side, task) is; made when it is asked for."""
    root = tmp_path_factory.mktemp("gpt2")
    made = {}

    def call(traced, side, task):
        if (side, task) not in made:
            path = root / f"{side}_{task}"
            traced(PROGRAM, *SIDES[side], dump_path=path, task=task, level="mix")
            made[side, task] = path
        return made[side, task]

    return call


def answer(client, *arguments, expected):
    done = run([client, *arguments, "--format", "json"], check=False)
    assert done.returncode == expected, done.stdout[-2000:] + done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_only_what_became_nan_by_itself_is_told(dumps, traced, client, task):
    found = answer(client, "overflow", dumps(traced, "nan", task), expected=1)["rows"]
    told = [(origin["step"], origin["tensor"], origin["origin"], origin["module"]) for origin in found]
    # From step 3 on the optimizer has made every weight NaN: only the first one is listed.
    assert told == [
        (2, "Functional.layer_norm.4.forward.input.2", "weight", "transformer.h.2.ln_1"),
        (3, "Functional.embedding.0.forward.input.1", "weight", "transformer.wte"),
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("task", "other"), [("statistics", "tensor"), ("tensor", "statistics"), ("tensor", "tensor")])
def test_the_weight_that_was_nudged_is_blamed(dumps, traced, client, task, other):
    sides = dumps(traced, "weight", task), dumps(traced, "clean", other)
    (found,) = answer(client, "first-divergence", *sides, expected=1)["rows"]
    assert (found["op"], found["module"], found["blame"], found["step"]) == (
        "Torch.addmm.6.forward",
        "transformer.h.1.mlp.c_fc",
        "weight",
        0,
    )


@pytest.mark.timeout(300)
def test_a_dump_of_statistics_and_one_of_tensors_of_the_same_run_are_equal(dumps, traced, client):
    sides = dumps(traced, "clean", "tensor"), dumps(traced, "clean", "statistics")
    summary = answer(client, "compare", *sides, expected=0)
    assert not summary.get("target_only") and not summary.get("golden_only"), summary
    assert answer(client, "overflow", sides[0], expected=0)["rows"] == []
