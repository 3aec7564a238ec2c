"""Our graph databases against mindstudio-probe's own of the same dumps, row for row, except for rows of
docs/compatibility.md."""

import json
import pathlib
import sys

import parallel_dumps
import pytest
from graph_databases import NO_FORWARD, SIDES, ours, rows, same_rows, theirs
from harness.nightly import mostly_nightly
from harness.processes import run
from test_compare import binary  # noqa: F401

# Name -> target, golden side, options of the command line. Both of the reference's pairs differ in one weight.
PAIRS = {
    "statistics": ("compare/statistics_perturb/step0/proc1", "compare/statistics_golden/step0/proc1", ()),
    "fuzzy": ("compare/statistics_perturb/step0/proc1", "compare/statistics_golden/step0/proc1", ("-fm",)),
    "md5": ("compare/md5_perturb/step0/proc1", "compare/md5_golden/step0/proc1", ()),
    "tensor": ("compare/tensor_perturb/step0/proc1", "compare/tensor_golden/step0/proc1", ()),
    "structure": ("dump/train_structure_mix/step0", "dump/train_structure_mix/step0", ()),
    "build": ("dump/train_statistics_mix/step0", None, ()),
    "gradients": ("dump/train_stat_mix_bf16/step0", None, ()),
}
NODE = """select data_source, node_name, node_order, node_type, up_node, precision_index, micro_step_id, modified, step,
          rank, is_distributed, parallel_merge_info, dump_data_dir from tb_nodes
          order by data_source, step, rank, node_order"""
# Name -> ranks, tp, pp, whether communications name their groups.
LAYOUTS = {
    "tensor": (2, 2, 1, True),
    "pipeline": (2, 1, 2, True),
    "both": (4, 2, 2, False),
    "data": (4, 2, 1, True),
}
JSON = ("sub_nodes", "matched_node_link", "matched_distributed", "input_data", "output_data", "stack_info")


def contents(path):
    """Node -> column -> what its JSON says."""
    columns = ", ".join(JSON)
    joined = f"select tb_nodes.id, {columns} from tb_nodes join tb_stack on stack_id = tb_stack.id"
    return {node: dict(zip(JSON, map(read, cells), strict=True)) for node, *cells in rows(path, joined)}


def read(cell):
    return json.loads(cell) if cell else []


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", mostly_nightly(PAIRS, "statistics", "build"))
def test_every_row_is_the_same(name, reference, oracle_python, binary, tmp_path):  # noqa: F811
    target, golden, options = PAIRS[name]
    sides = (reference / target, golden and reference / golden)
    # `graph-place`: of one rank's directory mindstudio-probe takes step and rank for 0; here its path says them, and
    # the reference's are 0, too.
    same_databases(*sides, tmp_path, options, oracle_python, binary)


@pytest.mark.timeout(400)
def test_modules_of_another_name(reference, oracle_python, binary, tmp_path):  # noqa: F811
    target, golden, _ = PAIRS["statistics"]
    renamed = tmp_path / "renamed"
    renamed.mkdir()
    for name in ("dump.json", "construct.json", "stack.json"):
        text = (reference / golden / name).read_text()
        (renamed / name).write_text(text.replace("self_attn.", "attention.").replace("model.norm.", "model.last."))
    mapping = tmp_path / "mapping.yaml"
    mapping.write_text("Qwen2DecoderLayer: {self_attn: attention}\nQwen2Model: {norm: last}\n")
    same_databases(reference / target, renamed, tmp_path, ("-lm", mapping), oracle_python, binary)


@pytest.mark.timeout(400)
def test_several_ranks_and_steps(oracle_python, binary, tmp_path):  # noqa: F811
    """Communications name their partners, too."""
    sides = [parallel_dumps.write(tmp_path / side, 2, 2, 1, steps=2, shift=shift) for side, shift in SIDES]
    same_databases(*sides, tmp_path, (), oracle_python, binary)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", mostly_nightly(LAYOUTS, "both"))
@pytest.mark.parametrize("compare", [False, True], ids=["build", "compare"])
def test_merged_ranks(name, compare, oracle_python, binary, tmp_path):  # noqa: F811
    ranks, tp, pp, group = LAYOUTS[name]
    sides = [parallel_dumps.write(tmp_path / side, ranks, tp, pp, shift=shift, group=group) for side, shift in SIDES]
    options = layout(ranks, tp, pp, sides=1 + compare)
    same_databases(sides[0], sides[1] if compare else None, tmp_path, options, oracle_python, binary)


def layout(ranks, tp, pp, vpp=1, sides=1):
    values = {"--rank_size": ranks, "--tp": tp, "--pp": pp, "--vpp": vpp}
    return [text for key, value in values.items() for text in [key, *[str(value)] * sides]]


@pytest.mark.timeout(400)
@pytest.mark.nightly
@pytest.mark.parametrize(("ranks", "tp", "compare"), [(2, 1, True), (4, 2, False)], ids=["pipeline", "both"])
def test_chunks_of_a_virtual_pipeline(ranks, tp, compare, oracle_python, binary, tmp_path):  # noqa: F811
    sides = [
        parallel_dumps.write(tmp_path / side, ranks, tp, 2, shift=shift, group=False, vpp=2) for side, shift in SIDES
    ]
    options = layout(ranks, tp, 2, 2, 1 + compare)
    same_databases(sides[0], sides[1] if compare else None, tmp_path, options, oracle_python, binary)


def test_what_is_outside_of_layers_stays(binary, tmp_path):  # noqa: F811
    root = parallel_dumps.write(tmp_path / "dump", 2, 1, 2, vpp=3, head=True)
    here = ours(root, None, tmp_path / "out", layout(2, 1, 2, 3), binary)
    names = [name for (name,) in rows(here, "select node_name from tb_nodes order by node_order")]
    assert not [name for name in names if name.startswith(("Module.1.", "Module.2."))]
    layers = [name for name in names if name.endswith(".TransformerLayer.forward.0")]
    assert layers == [f"Module.0.module.decoder.layers.{i}.TransformerLayer.forward.0" for i in range(12)]
    back = [name for name in names if name.endswith(".TransformerLayer.backward.0")]
    assert [name.replace("backward", "forward") for name in back] == layers[::-1]
    parents = dict(rows(here, "select node_name, up_node from tb_nodes"))
    model, block = "Module.0.module.GPTModel.forward.0", "Module.0.module.decoder.TransformerBlock.forward.0"
    # `graph-vpp`: what only the last chunk of the last rank has.
    assert parents["Module.0.module.output_layer.Linear.forward.0"] == model
    assert parents["Module.0.module.decoder.final_layernorm.LayerNorm.forward.0"] == block
    assert names.index("Module.0.module.output_layer.Linear.forward.0") > names.index(block)


@pytest.mark.timeout(400)
@pytest.mark.nightly
def test_merged_ranks_as_a_dump(oracle_python, binary, tmp_path):  # noqa: F811
    root = parallel_dumps.write(tmp_path / "dump", 4, 2, 2, group=False)
    options = [*layout(4, 2, 2), "--file_type", "json"]
    program = "from msprobe_client.compat.legacy import main; main()"
    command = ["graph_visualize", "-tp", root, *options, "-o"]
    run([sys.executable, "-c", program, *command, tmp_path / "ours"], MSPROBE_SERVER_BINARY=binary)
    run([pathlib.Path(oracle_python).parent / "msprobe", *command, tmp_path / "theirs"], PYTHONPATH=None, timeout=240)
    assert [path.name for path in (tmp_path / "ours").iterdir()] == ["step0"]
    mine, other = (
        {path.stem: json.loads(path.read_text()) for path in (tmp_path / side / "step0" / "rank0").iterdir()}
        for side in ("ours", "theirs")
    )
    assert list(mine["construct"].items()) == list(other["construct"].items())
    assert mine["stack"] == other["stack"]
    mine_records, records = mine["dump"].pop("data"), other["dump"].pop("data")
    assert mine["dump"] == other["dump"]
    assert list(mine_records) == list(records)
    for name, record in records.items():
        record.pop("input_kwargs", None)  # empty
        if ".backward" in name:  # `graph-json`
            inputs = record.pop("input", None) or record.pop("input_args")
            assert len(mine_records[name].pop("input")) == len(inputs)
        assert mine_records[name] == record, name
    # It is a dump like any other: drawn, it is the graph that it was written from.
    again = ours(tmp_path / "ours", None, tmp_path / "again", (), binary)
    direct = ours(root, None, tmp_path / "direct", layout(4, 2, 2), binary)
    same = "select node_name, up_node, node_order, input_data, output_data from tb_nodes order by node_order"
    assert rows(again, same) == rows(direct, same)


def same_databases(target, golden, scratch, options, oracle_python, binary):  # noqa: F811
    here = ours(target, golden, scratch / "ours", options, binary)
    there = theirs(target, golden, scratch / "theirs", options, oracle_python)
    assert rows(here, NODE) == rows(there, NODE)
    mine, other = contents(here), contents(there)
    assert mine.keys() == other.keys()
    for node, columns in mine.items():
        for column in JSON:
            expected = other[node][column]
            if column in ("input_data", "output_data"):
                same_rows(columns[column], expected, (node, column))
            elif column == "stack_info" and expected == [NO_FORWARD]:
                assert columns[column] == []  # `graph-stacks`
            else:
                assert columns[column] == expected, (node, column)
    config = "select graph_type, task, micro_steps, overflow_check, rank_list, step_list from tb_config"
    assert rows(here, config) == rows(there, config)
    colours, expected = (json.loads(rows(path, "select node_colors from tb_config")[0][0]) for path in (here, there))
    if expected is None:
        assert colours is None
        return
    words = ("value", "accuracy_level")  # `graph-language`
    assert {colour: [facts[word] for word in words] for colour, facts in colours.items()} == {
        colour: [facts[word] for word in words] for colour, facts in expected.items()
    }


def test_the_recorded_database(reference, binary, tmp_path):  # noqa: F811
    """The same without mindstudio-probe at hand; and no false alarm of its -oc."""
    pair = [reference / f"compare/statistics_{side}/step0/proc1" for side in ("perturb", "golden")]
    here = ours(*pair, tmp_path, ("-oc",), binary)
    there = reference / "vis" / "compare" / "compare.vis.db"
    assert rows(here, NODE) == rows(there, NODE)
    assert rows(there, "select count(*) from tb_nodes where overflow_level is not null") == [(22,)]
    assert rows(here, "select count(*) from tb_nodes where overflow_level is not null") == [(0,)]  # `graph-overflow`


def test_step_and_rank_are_those_of_the_path(binary, tmp_path):  # noqa: F811
    root = parallel_dumps.write(tmp_path / "dump", 2, 2, 1, steps=2)
    here = ours(root / "step1" / "rank1", None, tmp_path / "out", (), binary)
    assert rows(here, "select distinct step, rank from tb_nodes") == [(1, 1)]  # `graph-place`
    assert rows(here, "select type from sqlite_master where name = 'tb_nodes'") == [("view",)]  # `graph-packed`
    indexes = dict(rows(here, "select name, sql from sqlite_master where type = 'index'"))
    assert "WHERE modified = 1" in indexes["index6"] and "index5" not in indexes  # `graph-index`


def test_calls_without_their_parents_are_shown(binary, tmp_path):  # noqa: F811
    rank = parallel_dumps.write(tmp_path / "dump", 1, 1, 1) / "step0" / "rank0"
    construct = json.loads((rank / "construct.json").read_text())
    lost = {"Torch.lost.0.forward": "Module.gone.Gone.forward.0"}
    other = {f"Module.other.Other.{way}.0": None for way in ("forward", "backward")}
    again = {"Module.module.GPTModel.forward.1": None}
    (rank / "construct.json").write_text(json.dumps(construct | lost | other | again))
    here = ours(rank, None, tmp_path / "out", (), binary)
    parents = dict(rows(here, "select node_name, up_node from tb_nodes"))
    assert parents["Module.gone.Gone.forward.0"] == "DefaultModel"  # `graph-orphans`
    assert parents["Torch.lost.0.forward"] == "Module.gone.Gone.forward.0"
    steps = dict(rows(here, "select node_name, micro_step_id from tb_nodes where up_node = 'DefaultModel'"))
    assert steps["Module.other.Other.forward.0"] == 0  # `graph-micro-steps`: another model
    assert steps["Module.module.GPTModel.forward.1"] == 1


def test_a_graph_is_replaced_whole_and_needs_no_stacks(binary, tmp_path):  # noqa: F811
    root = parallel_dumps.write(tmp_path / "dump", 2, 2, 1)
    for file in root.glob("*/*/stack.json"):
        file.unlink()
    client = [sys.executable, "-m", "msprobe_client", "graph", root, "-o", tmp_path / "a.vis.db"]
    for _ in range(2):  # `graph-repeated`
        done = run(client, MSPROBE_SERVER_BINARY=binary)
    assert f"{root}/step0/rank1/stack.json is missing" in done.stderr  # `graph-no-stacks`
    assert rows(tmp_path / "a.vis.db", "select distinct stack_info from tb_stack") == [("[]",)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-lm", "{}/nothing.yaml"), "nothing.yaml: it names no module"),  # `graph-mapping`
        (("-lm", "{}/other.yaml"), "other.yaml renames no module"),
        (("--rank_size", 2, 2, "--tp", 2, 2, "--pp", 1, 1), "capture with task statistics"),  # `graph-merged-tensors`
        (("--rank_size", 3, 2, "--tp", 1, 2, "--pp", 1, 1), "a rank_size of 3, and the number of ranks is 2"),
        (("--rank_size", 2, 2, "--tp", 2, 2, "--pp", 1, 1, "--vpp", 2, 2), "(vpp) needs a pp of 2 or more"),
        (("--rank_size", 2, 2, "--tp", 2, 1, "--pp", 1, 1), "merged into 1 graphs and the golden side's into 2"),
        (("--rank_size", 2, 2, "--tp", 2, 2, "--pp", 2, 2), "the number of ranks must be a multiple of tp times pp"),
        (("--rank_size", 2, 2, "--tp", 2, 2, "--pp", 1, 1, "--order", "tp-tp", "tp-tp"), "the order has a name twice"),
        (
            ("--rank_size", 2, 2, "--tp", 2, 2, "--pp", 1, 1, "--order", "tp-x", "tp-x"),
            "names of tp, cp, ep, dp and pp",
        ),
        (("--file_type", "json"), "--file_type json is for merging the ranks of one side"),
    ],
)
def test_what_cannot_be_shown_is_refused(options, message, binary, tmp_path):  # noqa: F811
    root = parallel_dumps.write(tmp_path / "dump", 2, 2, 1)
    (tmp_path / "nothing.yaml").write_text("{}")
    (tmp_path / "other.yaml").write_text("NoSuchClass: {a: b}")
    for file in root.glob("*/*/dump.json") if "task" in message else ():
        file.write_text(file.read_text().replace('"task": "statistics"', '"task": "tensor"'))
    program = "from msprobe_client.compat.legacy import main; main()"
    given = [str(option).format(tmp_path) for option in options]
    sides = ["-tp", root, "-gp", root, "-o", tmp_path / "out"]
    done = run(
        [sys.executable, "-c", program, "graph_visualize", *sides, *given], MSPROBE_SERVER_BINARY=binary, check=False
    )
    assert done.returncode in (2, 3) and message in done.stderr, done.stderr
    assert not list(tmp_path.glob("out/*"))
