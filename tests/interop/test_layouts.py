"""One model on one rank, against the same on two and four ranks with tensor parallelism: written dumps."""

import json
import math

import numpy
import pytest

HIDDEN, WIDE, BATCH = 8, 16, 6


class Model:
    """Two linear layers: the first one's weight in rows, the second one's in columns; their product added up."""

    def __init__(self, nudge=None):
        draw = numpy.random.default_rng(5)
        self.x = draw.standard_normal((BATCH, HIDDEN)).astype("float32")
        self.up = draw.standard_normal((WIDE, HIDDEN)).astype("float32")
        self.down = draw.standard_normal((HIDDEN, WIDE)).astype("float32")
        if nudge:
            getattr(self, nudge[0])[nudge[1]] += 0.5

    def records(self, rank, ranks):
        part = slice(rank * WIDE // ranks, (rank + 1) * WIDE // ranks)
        up, down = self.up[part], self.down[:, part]
        wide = self.x @ up.T
        partial = wide @ down.T
        whole = (self.x @ self.up.T) @ self.down.T
        sequence = whole[rank * BATCH // ranks : (rank + 1) * BATCH // ranks] if ranks < 4 else whole[rank : rank + 1]
        found = {
            "Functional.linear.0.forward": ([self.x, up], wide),
            "Tensor.view.0.forward": ([wide, BATCH, WIDE // ranks], wide),
            "Functional.linear.1.forward": ([wide, down], partial if ranks > 1 else whole),
            "Module.mlp.MLP.forward.0": ([self.x], whole),
        }
        if ranks < 4:  # six rows are not for four ranks
            found["Functional.split.0.forward"] = ([whole], sequence)
        if rank == ranks - 1:
            found["Torch.last_rank.0.forward"] = ([self.x], self.x)
        return found


def leaf(value, file):
    """A value as dump.json has it; its content goes into file where there is one."""
    if isinstance(value, int):
        return {"type": "int", "value": value}
    made = {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": list(value.shape),
        "Max": float(value.max()),
        "Min": float(value.min()),
        "Mean": float(value.mean(dtype="float64")),
        "Norm": float(numpy.linalg.norm(value.astype("float64"))),
        "requires_grad": False,
    }
    if file:
        numpy.save(file, value)
        made["data_name"] = file.name
    return made


def write(root, ranks, model, tensors):
    for rank in range(ranks):
        place = root / "step0" / f"rank{rank}" / "dump_tensor_data"
        place.mkdir(parents=True)
        data = {}
        for name, (inputs, output) in model.records(rank, ranks).items():
            files = [place / f"{name}.input.{i}.npy" if tensors else None for i in range(len(inputs))]
            file = place / f"{name}.output.0.npy" if tensors else None
            data[name] = {
                "input_args": [leaf(value, to) for value, to in zip(inputs, files, strict=True)],
                "output": [leaf(output, file)],
            }
        dump = {"task": "tensor" if tensors else "statistics", "level": "mix", "framework": "pytorch"}
        (place.parent / "dump.json").write_text(json.dumps({**dump, "dump_data_dir": None, "data": data}))
    return root


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    client_module = pytest.importorskip("msprobe_client.client")
    with client_module.Client(data_dir=tmp_path_factory.mktemp("data"), create=True) as client:
        yield client


def compared(client, target, golden, **options):
    found = client.compare(target, golden, across_layouts=True, rows="all", order="execution", **options)
    return {row.name: row for row in found if hasattr(row, "verdict")}


PARTIAL = "Functional.linear.1.forward.output.0"


@pytest.mark.parametrize("tensors", [False, True], ids=["statistics", "contents"])
@pytest.mark.parametrize(("ours", "theirs"), [(2, 1), (1, 2), (4, 1), (4, 2), (2, 4)])
def test_the_same_model_on_other_numbers_of_ranks_is_equal(client, tmp_path, ours, theirs, tensors):
    target = write(tmp_path / "target", ours, Model(), tensors)
    golden = write(tmp_path / "golden", theirs, Model(), tensors)
    rows = compared(client, target, golden)
    split = {name for name in rows if "split" in name}
    for name in rows.keys() - {PARTIAL} - split:
        assert rows[name].verdict in ("equal", "within"), rows[name]
    assert rows[PARTIAL].verdict == "unknown" and "partial sums" in rows[PARTIAL].layout
    joined = rows["Functional.linear.0.forward.input.1"]
    assert joined.target_shape == joined.golden_shape == f"[{WIDE}, {HIDDEN}]" and "along axis 0" in joined.layout
    assert "along axis 1" in rows["Functional.linear.1.forward.input.1"].layout
    assert rows["Tensor.view.0.forward.input.2"].layout == "size of a shard"
    assert "replicated" in rows["Module.mlp.MLP.forward.0.output.0"].layout
    assert rows["Torch.last_rank.0.forward.input.0"].verdict == "equal", "a record that rank 0 lacks"
    if {ours, theirs} == {1, 2}:
        assert "along axis 0 from 2 ranks" in rows["Functional.split.0.forward.output.0"].layout
        assert all(rows[name].verdict in ("equal", "within") for name in split)


@pytest.mark.parametrize("tensors", [False, True], ids=["statistics", "contents"])
def test_a_change_in_the_last_ranks_shard_is_found(client, tmp_path, tensors):
    nudged = Model(nudge=("up", (WIDE - 1, 0)))
    golden = write(tmp_path / "golden", 1, Model(), tensors)
    target = write(tmp_path / "target", 4, nudged, tensors)
    rows = compared(client, target, golden)
    assert rows["Functional.linear.0.forward.input.0"].verdict == "equal"
    assert rows["Functional.linear.0.forward.input.1"].verdict == "differs"
    first = next(each for each in client.first_divergence(target, golden, across_layouts=True) if each.first)
    assert first.op == "Functional.linear.0.forward" and first.culprit == "Functional.linear.0.forward.input.1"
    if tensors:
        metrics = rows["Functional.linear.0.forward.input.1"].metrics
        assert metrics["different"] == 1 and metrics["worst_index"] == (WIDE - 1) * HIDDEN
        assert math.isclose(metrics["max_abs"], 0.5, rel_tol=1e-6)


def test_groups_of_replicas_are_recognised(client, tmp_path):
    """Four ranks are two groups of two: 0 and 1 hold the shards, and so do 2 and 3."""
    golden = write(tmp_path / "golden", 1, Model(), False)
    target = write(tmp_path / "target", 2, Model(), False)
    for rank in (2, 3):
        (target / "step0" / f"rank{rank}").mkdir()
        source = target / "step0" / f"rank{rank - 2}" / "dump.json"
        (target / "step0" / f"rank{rank}" / "dump.json").write_text(source.read_text())
    row = compared(client, target, golden)["Functional.linear.0.forward.input.1"]
    assert row.verdict in ("equal", "within")
    assert row.layout == "joined along axis 0 from 2 ranks, replicated on 2 ranks"
