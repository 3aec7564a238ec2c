"""mindstudio-probe reads our exports: `msprobe compare` finds no difference, `graph_visualize` builds."""

import ast
import csv
import json
import shutil
import sqlite3

import pytest
from harness.nightly import mostly_nightly
from harness.processes import run

FULL = {"statistics": "train_statistics_mix", "tensor": "train_tensor_mix", "md5": "fwd_stat_md5_mix"}
NO_DATA = ("N/A", "unsupported", "None", "")


@pytest.fixture(scope="session")
def mindstudio(oracle_python):
    tool = oracle_python.parent / "msprobe"
    if not tool.exists():
        pytest.skip(f"no msprobe beside {oracle_python}")
    return tool


def compare(mindstudio, target, golden, out):
    command = [mindstudio, "compare", "-tp", target / "dump.json", "-gp", golden / "dump.json", "-o", out]
    run(command, OMP_NUM_THREADS=1, PYTHONPATH=None)
    (result,) = out.glob("compare_result_*.csv")
    with result.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", mostly_nightly(FULL, "statistics"))
def test_compare_passes_every_row(mode, side_by_side, mindstudio, tmp_path):
    pair = side_by_side.case(FULL[mode])
    # mindstudio-probe's module hooks change bits of gradients (docs/compatibility.md, "module-backward"), which
    # AdamW makes large where a gradient is nearly zero. With such hooks in the program, both dump the same step.
    ours = pair.ours if mode == "md5" else side_by_side.one(FULL[mode], "ours with hooks")
    rows = compare(mindstudio, ours, pair.real, tmp_path / "ours_and_real")
    expected = compare(mindstudio, pair.real, pair.real, tmp_path / "real_and_real")
    assert [row["NPU Name"] for row in rows] == [row["NPU Name"] for row in expected]
    assert len(rows) > 300
    failed = [row for row in rows if row["Result"] != "pass" or json.loads(row["Err_message"])]
    assert not failed, failed[:3]
    # The tool calls a row without a partner, or without data, "pass" as well.
    unmatched = [row["NPU Name"] for row in rows if row["Bench Name"] != row["NPU Name"]]
    assert not unmatched, unmatched[:5]
    for row, other in zip(rows, expected, strict=False):
        assert_row_is_compared(mode, row, other)


def assert_row_is_compared(mode, row, other):
    name = row["NPU Name"]
    assert row["Requires_grad Consistent"] == other["Requires_grad Consistent"], name
    for column in ("NPU Dtype", "NPU Tensor Shape", "NPU Requires_grad"):
        assert row[column] == other[column], (name, column)
    if mode == "md5":
        assert row["NPU MD5"] == row["BENCH MD5"], name
    elif mode == "tensor":
        # The same tensor on both sides gives the same cells, data or none.
        for column in ("Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr", "One Thousandth Err Ratio"):
            assert row[column] == other[column], (name, column)
        if ast.literal_eval(other["Data_name"])[0] != "-1":
            assert row["MaxAbsErr"] not in NO_DATA, name
    else:
        for column in ("Max diff", "Min diff", "MaxRelativeErr", "MinRelativeErr"):
            assert row[column] == other[column], (name, column)


def build(mindstudio, rank, out):
    # A step directory of its own: the recorded cases have more beside it.
    step = out / "step0" / "rank0"
    shutil.copytree(rank, step)
    run([mindstudio, "graph_visualize", "-tp", step, "-o", out / "graph"], PYTHONPATH=None)
    (database,) = (out / "graph").glob("build_*.vis.db")
    connection = sqlite3.connect(database)
    nodes = connection.execute(
        "select node_name, node_type, up_node, sub_nodes, node_order from tb_nodes order by node_order"
    ).fetchall()
    opened = connection.execute(
        "select count(*) from tb_nodes join tb_stack on tb_nodes.stack_id = tb_stack.id"
    ).fetchone()[0]
    connection.close()
    return nodes, opened


@pytest.mark.timeout(300)
def test_graph_visualize_builds_the_same_graph(side_by_side, mindstudio, tmp_path):
    pair = side_by_side.case("train_statistics_mix")
    nodes, opened = build(mindstudio, pair.ours, tmp_path / "ours")
    expected, expected_opened = build(mindstudio, pair.real, tmp_path / "real")
    assert len(nodes) > 400
    assert nodes == expected
    assert opened == expected_opened
