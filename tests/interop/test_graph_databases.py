"""Our graph databases against mindstudio-probe's own of the same dumps, row for row, except for rows of
docs/compatibility.md."""

import json
import pathlib
import sqlite3
import sys

import pytest
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
          rank, is_distributed, parallel_merge_info, dump_data_dir from tb_nodes order by data_source, node_order"""
JSON = ("sub_nodes", "matched_node_link", "matched_distributed", "input_data", "output_data", "stack_info")
NO_FORWARD = "This backward node cannot find the forward node and cannot retrieve stack information."


def ours(target, golden, out, options, binary):  # noqa: F811
    program = "from msprobe_client.compat.legacy import main; main()"
    sides = ["-tp", target, *(["-gp", golden] if golden else [])]
    run(
        [sys.executable, "-c", program, "graph_visualize", *sides, "-o", out, *options],
        MSPROBE_SERVER_BINARY=binary,
        timeout=120,
    )
    return only(out)


def theirs(target, golden, out, options, python):
    sides = ["-tp", target, *(["-gp", golden] if golden else [])]
    run(
        [pathlib.Path(python).parent / "msprobe", "graph_visualize", *sides, "-o", out, *options],
        PYTHONPATH=None,
        OMP_NUM_THREADS=1,
        timeout=240,
    )
    return only(out)


def only(directory):
    (path,) = directory.glob("*.vis.db")
    return path


def rows(path, sql):
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def contents(path):
    """(side, node) -> column -> what its JSON says."""
    columns = ", ".join(JSON)
    joined = f"select data_source, node_name, {columns} from tb_nodes join tb_stack on stack_id = tb_stack.id"
    return {(side, name): dict(zip(JSON, map(read, cells), strict=True)) for side, name, *cells in rows(path, joined)}


def read(cell):
    return json.loads(cell) if cell else []


def same_rows(ours, theirs, where):
    """`graph-values`: None alone has no more to say than null."""
    assert list(ours) == list(theirs), where
    for name, row in ours.items():
        other = theirs[name]
        if other == {"value": "null"}:
            assert row.get("Max") in (None, "null"), (where, name)
            continue
        distance = row.pop("EucDist", "0"), other.pop("EucDist", "0")
        if distance[0] != distance[1]:  # `euclidean-distance`
            assert float(distance[0]) == pytest.approx(float(distance[1]), rel=1e-13), (where, name)
        # `graph-infinities`: without the tab that keeps a spreadsheet from taking them for names.
        assert row == {key: value.removesuffix("\t") for key, value in other.items()}, (where, name)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", PAIRS)
def test_every_row_is_the_same(name, reference, oracle_python, binary, tmp_path):  # noqa: F811
    target, golden, options = PAIRS[name]
    sides = (reference / target, golden and reference / golden)
    here = ours(*sides, tmp_path / "ours", options, binary)
    there = theirs(*sides, tmp_path / "theirs", options, oracle_python)
    # `graph-place`: of one rank's directory mindstudio-probe takes step and rank for 0; here its path says them, and
    # the reference's are 0, too.
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
