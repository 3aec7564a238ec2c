"""Models, argument trees and filters drawn at random: nothing raises, no bit changes, and the dump is right.

A run without the agent writes down the expected dump (programs/random_models.py), in an encoding written from its
documentation (programs/encoding.py).
"""

import itertools
import json
import sys

import pytest
from harness.drawn import drawn
from harness.dumps import rank_directory, read_dump, write_config
from harness.fork_server import ForkServer
from harness.processes import PROGRAMS
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(PROGRAMS))
import encoding
import random_values

pytestmark = pytest.mark.nightly  # make properties
STEPS = 4  # of one process
EXAMPLES = 25

# Risk levels by the bare name, of the functions that random_models.py calls.
HIDDEN_AT_FOCUS = {"cat", "split", "clone", "reshape", "transpose", "unsqueeze"}
CORE = {"linear", "layer_norm", "__matmul__"}


# Argument trees.

numbers = st.one_of(
    st.booleans().map(lambda value: ["value", value]),
    st.integers(-(2**63), 2**63 - 1).map(lambda value: ["value", value]),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: ["value", value]),
    st.sampled_from(["nan", "inf", "-inf", "-0.0"]).map(lambda value: ["float", value]),
)
bounds = st.none() | st.integers(-9, 9)
tensors = st.tuples(
    st.just("tensor"),
    st.sampled_from(random_values.DTYPES),
    st.sampled_from(random_values.SHAPES),
    st.sampled_from(random_values.LAYOUTS),
    st.integers(0, 1000),
    st.sampled_from([None, None, None, "nan", "inf", "-inf", "-0.0"]),
    st.just(False),
)
floats_with_gradient = st.tuples(
    st.just("tensor"),
    st.sampled_from(["float32", "float64", "bfloat16"]),
    st.sampled_from(random_values.SHAPES),
    st.just("plain"),
    st.integers(0, 1000),
    st.none(),
    st.just(True),
)
leaves = st.one_of(
    tensors,
    tensors,
    floats_with_gradient,
    numbers,
    st.text(max_size=6).map(lambda value: ["text", value]),
    st.sampled_from(sorted(random_values.CONSTANTS)).map(lambda name: ["constant", name]),
    st.tuples(bounds, bounds, st.none() | st.integers(1, 9)).map(lambda parts: ["slice", *parts]),
    st.lists(st.integers(0, 9), max_size=3).map(lambda sizes: ["size", sizes]),
    st.tuples(st.just("numpy"), st.sampled_from(["float32", "float64", "int64", "int8", "bool_"]), st.integers(0, 100)),
    st.tuples(st.just("array"), st.sampled_from(random_values.ARRAYS), st.integers(0, 20)),
)
# A plain value under "device" or "dtype" is taken for one by mindstudio-probe: these stand below, by themselves.
keys = st.sampled_from(["a", "b", "with.dot", "Ünï", "x y", ""])


def containers(inner):
    items = st.lists(inner, max_size=3)
    pairs = st.tuples(inner, inner).map(list)
    entries = st.lists(st.tuples(keys | st.integers(0, 9), inner), max_size=3, unique_by=lambda each: str(each[0]))
    return st.one_of(
        items.map(lambda each: ["list", each]),
        items.map(lambda each: ["tuple", each]),
        pairs.map(lambda each: ["namedtuple", each]),
        pairs.map(lambda each: ["dataclass", each]),
        entries.map(lambda each: ["dict", each]),
    )


values = st.recursive(leaves, containers, max_leaves=6)
keywords = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["a", "x", "layout"]), values),
        st.tuples(st.sampled_from(["dtype", "output_dtype", "a"]), st.just(["constant", "dtype"])),
        st.tuples(st.sampled_from(["device", "a"]), st.just(["constant", "device"])),
    ),
    max_size=2,
    unique_by=lambda each: each[0],
)
calls = st.lists(st.tuples(st.lists(values, max_size=3), keywords), min_size=1, max_size=4)

# Models.

operations = st.lists(
    st.tuples(
        st.sampled_from(
            "add plus scaled relu softmax sigmoid in_place view transposed matmul halves largest without_grad".split()
            + ["call", "call by name"] * 5
        ),
        st.integers(0, 20),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=5,
)
module_leaves = st.one_of(
    st.sampled_from(["linear", "norm", "relu", "relu_", "dropout", "same"]).map(lambda kind: {"kind": kind}),
    st.integers(0, 9).map(lambda number: {"kind": "alias", "of": number}),
)


def nodes(inner):
    return st.fixed_dictionaries(
        {
            "kind": st.just("node"),
            "children": st.lists(inner, min_size=1, max_size=3),
            "ops": operations,
            "returns": st.sampled_from(["tensor", "tensor", "tuple", "list", "dict", "namedtuple"]),
            "turns": st.sampled_from([0, 0, 0, 2]),
        }
    )


models = st.fixed_dictionaries(
    {
        "tree": nodes(st.recursive(module_leaves, nodes, max_leaves=5)),
        "seed": st.integers(0, 100),
        "input_grad": st.booleans(),
        "backward": st.booleans(),
    }
)

# Configurations.

patterns = st.lists(
    st.sampled_from(["part0", "part1.part", "Linear", "add", "relu", "Tensor", "forward.1", "nothing"]), max_size=2
)
data_modes = st.sampled_from(
    [["all"], [], ["forward"], ["backward"], ["input"], ["output"], ["forward", "input"], ["backward", "output"]]
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ForkServer([sys.executable, PROGRAMS / "random_runs.py"], tmp_path_factory.mktemp("server") / "log")
    yield made
    made.close()


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    root = tmp_path_factory.mktemp("random")
    return (root / str(number) for number in itertools.count())


def traced(server, directory, steps, *, mode="statistics", cuts=(), section=None, **config):
    """(outcomes, dump_path): the program's results and expectations, one a step."""
    directory.mkdir()
    section = {"summary_mode": mode, **({"slice": list(cuts)} if cuts else {}), **(section or {})}
    path = write_config(directory / "config.json", directory / "dump", section=section, **config)
    request = {"out": str(directory), "config": str(path), "mode": mode, "cuts": list(cuts), "steps": steps}
    code = server.ask(request)["code"]
    log = (directory / "log.txt").read_text(errors="replace")
    assert code == 0, f"ended with {code}\n{log[-4000:]}"
    outcomes = json.loads((directory / "outcome.json").read_text())
    for outcome in outcomes:
        assert "raised" not in outcome, outcome["raised"]
        assert not outcome["changed"], f"changed by the agent: {outcome['changed']}"
    assert len(outcomes) == len(steps)
    return outcomes, directory / "dump"


def dumped(dump_path, step):
    """The entries of a step; a step without one has no directory."""
    if not (dump_path / f"step{step}").exists():
        return {}, {}, {}
    rank = rank_directory(dump_path, step)
    assert not (rank / "INCOMPLETE").exists()
    assert not (rank / "dump_error_info.log").exists(), (rank / "dump_error_info.log").read_text()[:2000]
    files = [rank / name for name in ("construct.json", "stack.json")]
    return read_dump(rank)["data"], *(json.loads(path.read_text()) if path.exists() else {} for path in files)


def same(expected, actual):
    """Fails with the first differences of two ordered mappings of entries."""
    assert list(actual) == list(expected)
    found = [each for name in expected for each in encoding.differences(expected[name], actual[name], name)]
    assert not found, "\n".join(found[:20])


def with_keys(entries, data_mode):
    """The part of entries that a data_mode keeps."""
    modes = set(data_mode) or {"all"}
    if "all" in modes:
        return dict(entries)
    directions, sides = modes & {"forward", "backward"}, modes & {"input", "output"}
    kept = {}
    for name, entry in entries.items():
        if directions and not any(f".{each}." in f"{name}." for each in directions):
            continue
        keys = {"input": ("input_args", "input_kwargs", "input"), "output": ("output", "parameters")}
        chosen = [key for side in sides or keys for key in keys[side]]
        kept[name] = {key: value for key, value in entry.items() if key in chosen}
    return kept


@pytest.mark.timeout(1800)
@drawn(EXAMPLES)
@given(
    steps=st.lists(calls, min_size=STEPS, max_size=STEPS),
    mode=st.sampled_from(["statistics", "statistics", "md5", "xor"]),
    cuts=st.lists(
        st.fixed_dictionaries(
            {"dim": st.integers(0, 2)}, optional={"begin": st.integers(0, 3), "end": st.integers(1, 4)}
        ),
        max_size=1,
    ),
    data_mode=data_modes,
)
def test_argument_trees(steps, mode, cuts, data_mode, server, directories):
    steps = [{"calls": each} for each in steps]
    section = {"data_mode": data_mode}
    outcomes, dump_path = traced(server, next(directories), steps, mode=mode, cuts=cuts, section=section)
    for step, outcome in enumerate(outcomes):
        data, _, stack = dumped(dump_path, step)
        expected = with_keys(outcome["expected"], data_mode)
        same(expected, data)
        # data_mode keeps entries out of dump.json, not out of stack.json.
        assert [name for names, _ in stack.values() for name in names] == list(outcome["expected"])


def is_module(name):
    return name.startswith("Module.")


def bare(name):
    """The name that risk levels go by: Tensor.add_.0.forward -> add_."""
    return name.split(".")[1]


def of_level(names, level):
    return [name for name in names if level == "mix" or is_module(name) == (level == "L0")]


def passes_risk(name, risk):
    if is_module(name) or risk == "ALL":
        return True
    return bare(name) in CORE if risk == "CORE" else bare(name) not in HIDDEN_AT_FOCUS


def listed(name, patterns_, parents, level):
    if any(pattern in name for pattern in patterns_):
        return True
    inside = parents.get(name) if level == "mix" else None
    return inside is not None and listed(inside, patterns_, parents, level)


def kept(outcome, level, risk, patterns_):
    """Names of the forward entries that the filters leave, in order."""
    names = of_level(outcome["expected"], level)
    if patterns_:
        return [name for name in names if listed(name, patterns_, outcome["parents"], level)]
    return [name for name in names if passes_risk(name, risk)]


@pytest.mark.timeout(1800)
@drawn(EXAMPLES)
@given(
    steps=st.lists(models, min_size=STEPS, max_size=STEPS),
    level=st.sampled_from(["L0", "L1", "mix", "mix"]),
    risk=st.sampled_from(["FOCUS", "ALL", "CORE"]),
    patterns_=st.one_of(st.just([]), patterns),
    data_mode=data_modes,
    mode=st.sampled_from(["statistics", "md5", "xor"]),
)
def test_models(steps, level, risk, patterns_, data_mode, mode, server, directories):
    section = {"list": patterns_, "data_mode": data_mode}
    config = {"level": level, "risk_level": risk, "section": section, "mode": mode}
    outcomes, dump_path = traced(server, next(directories), [{"model": each} for each in steps], **config)
    whole = not data_mode or data_mode == ["all"]
    for step, outcome in enumerate(outcomes):
        data, construct, stack = dumped(dump_path, step)
        names = kept(outcome, level, risk, patterns_)
        forward = {name: outcome["expected"][name] for name in names}
        if not whole:
            forward = with_keys(forward, data_mode)
        if "input" in data_mode and "output" not in data_mode:
            # A module moves to where it ended with its output; without that it stays where it began.
            forward = {name: forward[name] for name in outcome["parents"] if name in forward}
        same(forward, {name: data[name] for name in data if ".forward" in name})
        if level == "mix":
            parents = {name: parent for name, parent in construct.items() if ".forward" in name}
            assert parents == outcome["parents"]
        assert {name for group, _ in stack.values() for name in group} == set(names)
        check_backward(outcome, data, level, risk, patterns_, data_mode)


def check_backward(outcome, data, level, risk, patterns_, data_mode):
    apis = {name: data[name] for name in data if name.endswith(".backward") and not is_module(name)}
    if level == "L1":
        names = [name for name in outcome["backward"] if passes_risk(name, risk) or patterns_]
        names = [name for name in names if not patterns_ or any(pattern in name for pattern in patterns_)]
        expected = with_keys({name: outcome["backward"][name] for name in names}, data_mode)
        assert set(apis) == set(expected)
        same({name: expected[name] for name in apis}, apis)
    for name, entry in apis.items():
        found = encoding.differences(with_keys({name: outcome["backward"][name]}, data_mode)[name], entry, name)
        assert not found, found[:5]
    gradients = {name: data[name] for name in data if ".parameters_grad." in name}
    for name, entry in gradients.items():
        assert not encoding.differences(outcome["parameters_grad"][name], entry, name)
    if level != "L1" and not patterns_ and (not data_mode or "all" in data_mode or data_mode == ["backward"]):
        assert set(gradients) == set(outcome["parameters_grad"])
    for name in data:
        if is_module(name) and ".backward." in name:
            assert name.replace(".backward.", ".forward.") in outcome["parents"], name
