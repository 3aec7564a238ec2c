"""Both real plugins of TensorBoard on our databases and on mindstudio-probe's own of the same dumps: each route gives
the same answers, except for rows of docs/compatibility.md."""

import dataclasses
import json
import os
import shutil

import parallel_dumps
import pytest
from graph_databases import NO_FORWARD, SIDES, ours, same_rows, theirs
from harness.browser import chromium
from harness.processes import wait_until
from harness.tensorboard import ENVIRONMENTS, program, tensorboard
from plugin_pages import NewerPage, OlderPage
from test_compare import binary  # noqa: F401

# Of which nodes the rows are asked for: every fifth one; every one in `make nightly`.
STRIDE = int(os.environ.get("MSPROBE_NODE_STRIDE", "5"))
NAN_AT = "Functional.gelu.0.forward"
ERRORS = [str(number) for number in range(4)]  # of updatePrecisionError: relative errors of all four statistics
COLOURS = {"#ABCDEF": {"value": [0, 0.5], "description": "a"}, "#123456": {"value": [0.5, 1], "description": "b"}}


@dataclasses.dataclass
class Graph:
    """A database as the plugins name it."""

    run: str
    compare: bool
    places: list  # (step, rank)
    levels: bool = True  # whether both tools give the same overflow levels


@pytest.fixture(scope="module")
def logdir(tmp_path_factory, reference, oracle_python, binary):  # noqa: F811
    """logdir/{tool}_{run}/graph.vis.db"""
    root = tmp_path_factory.mktemp("plugins")

    def put(made, tool, run):
        (root / "log" / f"{tool}_{run}").mkdir(parents=True)
        shutil.copyfile(made, root / "log" / f"{tool}_{run}" / "graph.vis.db")

    compare = reference / "compare"
    perturbed, golden = (compare / f"statistics_{side}/step0/proc1" for side in ("perturb", "golden"))
    put(ours(perturbed, golden, root / "pair", ("-oc",), binary), "ours", "pair")
    recorded = reference / "vis"
    if recorded.is_dir():
        put(recorded / "compare" / "compare.vis.db", "theirs", "pair")
        put(recorded / "build" / "build.vis.db", "theirs", "build")
    else:
        put(theirs(perturbed, golden, root / "their_pair", ("-oc",), oracle_python), "theirs", "pair")
        put(theirs(golden, None, root / "their_build", (), oracle_python), "theirs", "build")
    put(ours(golden, None, root / "build", (), binary), "ours", "build")
    sides = [parallel_dumps.write(root / side, 2, 2, 1, steps=2, shift=shift) for side, shift in SIDES]
    assert parallel_dumps.plant_nan(sides[0] / "step1" / "rank1", NAN_AT) == NAN_AT
    put(ours(*sides, root / "ours", ("-oc",), binary), "ours", "ranks")
    put(theirs(*sides, root / "theirs", ("-oc",), oracle_python), "theirs", "ranks")
    return root / "log"


GRAPHS = (
    Graph("pair", True, [(0, 0)], levels=False),
    Graph("build", False, [(0, 0)]),
    Graph("ranks", True, [(step, rank) for step in range(2) for rank in range(2)]),
)


def needs(plugin):
    if not program(plugin).exists():
        pytest.skip(f"no TensorBoard at {program(plugin)}: run `make tensorboard oracle`")


@pytest.fixture(scope="module", params=ENVIRONMENTS)
def board(request, logdir):
    needs(request.param)
    with tensorboard(request.param, logdir, logdir.parent / f"{request.param}.log") as board:
        found = board.graphs()
        tools = ("ours", "theirs")
        expected = {f"{tool}_{graph.run}": {"type": "db", "tags": ["graph"]} for tool in tools for graph in GRAPHS}
        assert (found["data"], found["error"]) == (expected, [])
        yield board


@pytest.mark.timeout(120)
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.run)
def test_every_answer_is_the_same(graph, board):
    ours, theirs = ([*asked(board, f"{tool}_{graph.run}", graph)] for tool in ("ours", "theirs"))
    assert len(ours) == len(theirs) > 10
    for (question, mine), (_, other) in zip(ours, theirs, strict=True):
        same(mine, other, question, levels=graph.levels)


def asked(board, run, graph):
    """(question, answer) of all that the page asks; the last ones change the database."""
    sides = ("NPU", "Bench") if graph.compare else ("Single",)

    def place(step, rank):
        return {"run": run, "tag": "graph", "type": "db", "lang": "en", "microStep": -1, "step": step, "rank": rank}

    def post(route, meta, **body):
        return (route, meta["step"], meta["rank"], body), board.post(route, {"metaData": meta} | body)

    for step, rank in graph.places:
        meta = place(step, rank)
        yield "loadGraphData", board.get("loadGraphData", **meta)
        yield post("loadGraphConfigInfo", meta)
        yield (nodes := post("loadGraphAllNodeList", meta))
        if board.newer:
            yield post("loadGraphMatchedRelations", meta)
        for side in sides:
            yield post("changeNodeExpandState", meta, nodeInfo={"nodeName": "root", "nodeType": side})
            for name in nodes[1]["data"]["benchNodeList" if side == "Bench" else "npuNodeList"][::STRIDE]:
                info = {"nodeName": name, "nodeType": side}
                yield post("getNodeInfo", meta, nodeInfo=info)
                if name.startswith(("Module.", "Apis_")) and step == 0:
                    yield post("changeNodeExpandState", meta, nodeInfo=info)
            yield post("updateHierarchyData", meta, graphType=side)
        yield from filtered(board, post, meta, graph)
        if graph.compare:
            yield from matched(board, post, meta, nodes[1]["data"])
    colours = json.dumps(COLOURS)
    yield post("updateColors", meta, colors=colours)
    yield post("loadGraphConfigInfo", meta)


def filtered(board, post, meta, graph):
    for values in (["pass"], ["warning", "error", -1]) if board.newer else ([[0, 0.3]], [[0.3, 0.6], [0.6, 1], -1]):
        yield post("screen", meta, type="precision", values=values)
        if board.newer:
            yield post("filterNodes", meta, type="precision", values=values)
    if graph.levels:
        for level in ("medium", "high", "critical"):
            yield post("filterNodes" if board.newer else "screen", meta, type="overflow", values=[level])
    yield post("updatePrecisionError", meta, filterValue=ERRORS)


def matched(board, post, meta, nodes):
    """A leaf, and a module with all in it, are parted, and matched again; the leaf also with another one."""
    names = nodes["npuNodeList"]
    first, second = [name for name in names if name.startswith(("Functional.linear.", "Torch.matmul."))][:2]
    module = next(name for name in names if name.startswith("Module.") and "Linear" in name)
    for name, children in ((first, False), (module, True)):
        pair = {"npuNodeName": name, "benchNodeName": name}
        yield post("deleteMatchNodes", meta, **pair, isUnMatchChildren=children)
        yield post("getNodeInfo", meta, nodeInfo={"nodeName": name, "nodeType": "NPU"})
        yield post("addMatchNodes", meta, **pair, isMatchChildren=children)
        yield post("getNodeInfo", meta, nodeInfo={"nodeName": name, "nodeType": "NPU"})
    yield post("deleteMatchNodes", meta, npuNodeName=second, benchNodeName=second, isUnMatchChildren=False)
    yield post("deleteMatchNodes", meta, npuNodeName=first, benchNodeName=first, isUnMatchChildren=False)
    yield post("addMatchNodes", meta, npuNodeName=first, benchNodeName=second, isMatchChildren=False)
    yield post("getNodeInfo", meta, nodeInfo={"nodeName": first, "nodeType": "NPU"})
    yield (saved := post("saveMatchedRelations", meta))
    yield post("addMatchNodesByConfig", meta, configFile=saved[1]["data"])
    yield post("loadGraphMatchedRelations" if board.newer else "loadGraphAllNodeList", meta)


def same(ours, theirs, question, *, levels):
    """Of two answers."""
    if isinstance(theirs, dict):
        assert isinstance(ours, dict) and ours.keys() == theirs.keys(), question
        for key, other in theirs.items():
            if key in ("input_data", "output_data"):
                same_rows(ours[key], other, (question, key))
            elif key == "tooltips" and other:
                assert ours[key].keys() == other.keys(), question  # `graph-language`
            elif key == "stack_info" and other == [NO_FORWARD]:
                assert ours[key] == []  # `graph-stacks`
            elif key == "description" or (key in ("overflowLevel", "overflow_level") and not levels):
                continue  # `graph-language`, `graph-overflow`
            else:
                same(ours[key], other, (question, key), levels=levels)
    elif isinstance(theirs, list):
        assert isinstance(ours, list) and len(ours) == len(theirs), question
        for mine, other in zip(ours, theirs, strict=True):
            same(mine, other, question, levels=levels)
    else:
        assert ours == theirs, question


@pytest.mark.timeout(180)
@pytest.mark.parametrize("plugin", ENVIRONMENTS)
def test_a_person_finds_where_nan_began(plugin, binary, tmp_path):  # noqa: F811
    """In Chromium: graphs, colours, expand, search, rows and stack of a node, the filter, a match by hand."""
    needs(plugin)
    sides = [parallel_dumps.write(tmp_path / side, 1, 1, 1, shift=shift) for side, shift in SIDES]
    parallel_dumps.plant_nan(sides[0] / "step0" / "rank0", NAN_AT)
    ours(*sides, tmp_path / "log" / "pair", ("-oc",), binary)
    with tensorboard(plugin, tmp_path / "log", tmp_path / "log.txt") as board, chromium() as browser:
        page = (NewerPage if board.newer else OlderPage)(browser, board)
        for side in ("NPU", "Bench"):
            page.shows(side, "Module.module.GPTModel.forward.0", "Apis_Between_Modules.0")
        page.has_colour("Module.module.GPTModel.backward.0", "#FF704D")
        page.expand("NPU", "Module.module.GPTModel.forward.0")
        for side in ("NPU", "Bench"):  # the page keeps both sides alike
            page.shows(side, "Module.module.decoder.TransformerBlock.forward.0")
        page.has_colour("Module.module.embedding.Embedding.forward.0", "#FFFCF3")
        page.search(NAN_AT)
        page.has_colour(NAN_AT, "#FF704D")
        page.reads("input.0", "output.0", "Max diff", "torch.float32")
        page.opens_stack("train.py")
        page.keep(f"{plugin}_found", "tensorboard_graph" if board.newer else None)
        page.part("Torch.matmul.0.forward")
        page.counts_unmatched(1)
        page.match("Torch.matmul.0.forward")
        page.counts_unmatched(0)
        page.filter_critical(1)
        page.keep(f"{plugin}_critical")
        assert page.errors == []


@pytest.mark.timeout(120)
def test_the_plugin_makes_a_graph_of_dumps_with_our_command(oracle_python, binary, tmp_path):  # noqa: F811
    """It runs `msprobe graph_visualize` of PATH, and follows its PROGRESS lines."""
    for side, shift in SIDES:
        parallel_dumps.write(tmp_path / "log" / side, 1, 1, 1, shift=shift)
    with tensorboard("mindstudio-probe", tmp_path / "log", tmp_path / "log.txt") as board:
        assert {"target", "target/step0/rank0"} <= set(board.get("loadConvertedGraphData")["data"]["dirs"])
        for golden, kind in (("", "build"), ("golden", "compare")):
            asked = {"npu_path": "target", "bench_path": golden, "output_path": kind, "overflow_check": True}
            assert board.post("convertToGraph", asked) == {"success": True}
            wait_until(lambda kind=kind: [*(tmp_path / "log" / kind).glob("*.vis.db")], 60, f"the graph of {kind}")
            wait_until(lambda: '"progress": 100, "status": "done"' in board.get("getConvertProgress"), 30, "the end")
        assert {*board.graphs()["data"]} == {"build", "compare"}
