"""Trends, searches, previews and slices of captured tensors, compared with numpy."""

import io
import json
import math
import random

import numpy
import pytest

STEPS = 4
NAMES = ("Functional.linear.0.forward", "Torch.add.0.forward", "Module.model.layers.1.Linear.forward.0")


def content(step, rank, name, side):
    draw = numpy.random.default_rng([step, rank, len(name), side == "output"])
    shape = (7, 5, 11) if side == "input" else (3000, 130)
    values = draw.standard_normal(shape).astype("float32")
    values[0, :3] = 0
    if side == "output" and step == 2 and rank == 1:
        values[1, 2], values[2, 0], values[3, 1] = math.nan, math.inf, -math.inf
    return values


def leaf(values, file):
    with numpy.errstate(all="ignore"):
        statistics = {
            "Max": values.max(),
            "Min": values.min(),
            "Mean": values.mean(),
            "Norm": numpy.linalg.norm(values),
        }
    return {
        "type": "mindspore.Tensor",
        "dtype": "Float32",
        "shape": list(values.shape),
        **{key: float(value) for key, value in statistics.items()},
        "data_name": file,
    }


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    root = tmp_path_factory.mktemp("dump")
    for step in range(STEPS):
        for rank in range(2):
            place = root / f"step{step}" / f"rank{rank}"
            (place / "dump_tensor_data").mkdir(parents=True)
            data = {}
            for name in NAMES:
                entry = data[name] = {}
                for side, key in (("input", "input_args"), ("output", "output")):
                    values = content(step, rank, name, side)
                    file = f"{name}.{side}.0.npy"
                    numpy.save(place / "dump_tensor_data" / file, values)
                    entry[key] = [leaf(values, file)]
            document = {"task": "tensor", "level": "mix", "framework": "mindspore", "dump_data_dir": None, "data": data}
            (place / "dump.json").write_text(json.dumps(document))
            stacks = {"0": [[NAMES[0]], ["File train.py, line 7, in step, \n y = linear(x)"]]}
            (place / "stack.json").write_text(json.dumps(stacks))
            (place / "construct.json").write_text(json.dumps({NAMES[0]: NAMES[2], NAMES[1]: None, NAMES[2]: None}))
    return root


@pytest.fixture(scope="module")
def client(dump, tmp_path_factory):
    client_module = pytest.importorskip("msprobe_client.client")
    with client_module.Client(data_dir=tmp_path_factory.mktemp("data"), create=True) as client:
        client.import_dump(dump, "run")
        yield client


@pytest.fixture(params=["run", "files"])
def source(request, dump):
    return "run:run" if request.param == "run" else dump


def close(ours, theirs):
    return ours == pytest.approx(theirs, rel=1e-6, nan_ok=True)


def test_a_trend_is_each_steps_statistic(client, source):
    found = list(client.trend(source, "*.linear.*.output.0", statistics=["norm", "abs_max"]))
    assert [(each.name, str(each.rank), each.statistic) for each in found] == [
        (f"{NAMES[0]}.output.0", f"rank{rank}", statistic) for rank in (0, 1) for statistic in ("norm", "abs_max")
    ]
    for series in found:
        assert [point.step for point in series.points] == list(range(STEPS))
        for point in series.points:
            values = content(point.step, series.rank.number, NAMES[0], "output")
            theirs = numpy.linalg.norm(values) if series.statistic == "norm" else numpy.abs(values).max()
            assert close(point.value, float(theirs)) and point.golden is None


def test_a_trend_of_two_sides_has_both_values_and_what_one_side_lacks(client, source, dump):
    (series,) = client.trend(source, "Torch.add.0.*.input.0", golden=dump / "step1", ranks=[0], steps=[(1, 2)])
    assert [point.step for point in series.points] == [1, 2]
    assert series.points[0].value == series.points[0].golden
    assert series.points[1].golden is None and not math.isnan(series.points[1].value)


def test_a_trend_of_nothing_is_empty_and_a_bad_one_is_refused(client):
    from msprobe_client.errors import MsprobeError

    assert list(client.trend("run:run", "no such name")) == []
    with pytest.raises(MsprobeError, match="name_glob is empty"):
        list(client.trend("run:run", ""))


@pytest.mark.parametrize(
    ("question", "fits"),
    [
        ({"name": "Functional.*"}, lambda each: each.name.startswith("Functional.")),
        ({"regex": r"add.*output\.0$"}, lambda each: "add" in each.name and "output" in each.name),
        ({"shape": "[7, *, 11]"}, lambda each: each.shape == "[7, 5, 11]"),
        ({"shape": "[..., 130]"}, lambda each: each.shape == "[3000, 130]"),
        ({"dtypes": ["Float32"], "where": [("max", ">", 4.5)]}, lambda each: each.max > 4.5),
        ({"where": [("norm", "<", 30), ("min", "<=", -2.5)]}, lambda each: each.norm < 30 and each.min <= -2.5),
        ({"where": [("max", "==", math.nan)]}, lambda each: math.isnan(each.max)),
        ({"dtypes": ["int64"]}, lambda each: False),
        ({"module": "model.layers"}, lambda each: "add" not in each.name),
        ({"stack": "linear(x)"}, lambda each: "linear" in each.name and "Module" not in each.name),
        ({"steps": [(1, 2)], "ranks": [1]}, lambda each: each.step in (1, 2) and each.rank.number == 1),
    ],
)
def test_find_gives_what_fits_and_nothing_else(client, source, question, fits):
    everything = list(client.find(source))
    assert len(everything) == STEPS * 2 * len(NAMES) * 2
    found = list(client.find(source, **question))
    assert [(each.step, each.rank, each.name) for each in found] == [
        (each.step, each.rank, each.name) for each in everything if fits(each)
    ]


def test_find_stops_at_its_limit(client, source):
    assert [each.name for each in client.find(source, limit=3)] == [each.name for each in client.find(source)][:3]


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ({"regex": "("}, "cannot be read"),
        ({"shape": "[2, x]"}, "neither a size"),
        ({"dtypes": ["float33"]}, "no such dtype"),
    ],
)
def test_a_question_that_cannot_be_read_is_refused(client, question, words):
    from msprobe_client.errors import MsprobeError

    with pytest.raises(MsprobeError, match=words):
        list(client.find("run:run", **question))


@pytest.mark.parametrize("step", [0, 2])
def test_a_preview_is_numpys(client, source, step):
    values = content(step, 1, NAMES[1], "output")
    preview = client.preview(source, f"{NAMES[1]}.output.0", step=step, rank=1, bins=7, top=4)
    finite = values[numpy.isfinite(values)].astype("float64")
    assert preview.shape == values.shape and preview.elements == values.size and preview.finite == finite.size
    assert preview.nan_count == numpy.isnan(values).sum() and preview.zero_count == (values == 0).sum()
    assert preview.positive_inf_count == numpy.isposinf(values).sum()
    assert (preview.max, preview.min) == (finite.max(), finite.min())
    assert preview.mean == pytest.approx(finite.mean(), rel=1e-9, abs=1e-12)
    assert preview.std == pytest.approx(finite.std(), rel=1e-12)
    assert preview.norm == pytest.approx(numpy.linalg.norm(finite), rel=1e-12)
    counts, edges = numpy.histogram(finite, bins=7)
    assert list(preview.bin_counts) == list(counts) and preview.bin_edges == pytest.approx(edges)
    known = numpy.where(numpy.isnan(values), -math.inf, values)
    order = numpy.argsort(-known, axis=None, kind="stable")[:4]
    assert [each.index for each in preview.largest] == [numpy.unravel_index(at, values.shape) for at in order]
    assert all(values[each.index] == each.value for each in (*preview.largest, *preview.smallest))
    bad = [tuple(map(int, index)) for index in numpy.argwhere(~numpy.isfinite(values))][:4]
    assert [each.index for each in preview.first_non_finite] == bad


def test_slices_are_numpys(client):
    draw = random.Random(3)

    def one(size):
        kind = draw.randrange(4)
        if kind == 0:
            return draw.randrange(-size, size)
        if kind == 1:
            return slice(None)
        bounds = [draw.choice([None, draw.randrange(-size - 2, size + 3)]) for _ in range(2)]
        return slice(*bounds, draw.choice([None, 1, 2, 5]))

    for _ in range(60):
        side = draw.choice(["input", "output"])
        values = content(1, 0, NAMES[0], side)
        slices = tuple(one(values.shape[i]) for i in range(draw.randint(1, values.ndim)))
        got = client.tensor("run", f"{NAMES[0]}.{side}.0", step=1, rank=0, slices=slices)
        part = numpy.load(io.BytesIO(got))
        assert part.shape == values[slices].shape and numpy.array_equal(part, values[slices]), slices


def test_a_slice_outside_of_the_tensor_is_refused(client):
    from msprobe_client.errors import MsprobeError

    with pytest.raises(MsprobeError, match="outside of dimension 0"):
        client.tensor("run", f"{NAMES[0]}.input.0", step=1, rank=0, slices=(7,))
    with pytest.raises(MsprobeError, match="4 slices"):
        client.tensor("run", f"{NAMES[0]}.input.0", step=1, rank=0, slices=(0, 0, 0, 0))
