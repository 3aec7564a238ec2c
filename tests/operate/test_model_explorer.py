"""Graphs in the real Model Explorer: its classes take our files, and a browser shows a pair side by side."""

import json
import os
import sys
import time
import urllib.parse
from pathlib import Path

import pytest
from harness import browser
from harness.processes import Background, free_port, is_listening, run

CLIENT = "from msprobe_client.commands import main; main()"
# Entries of each side; `make nightly` makes files of 30,000.
ENTRIES = int(os.environ.get("MSPROBE_EXPLORER_ENTRIES", "300"))
BLOCKS = 60  # of a layer
RENUMBERED = 100_000  # the golden side's first call
START_S = 60
DRAWN_S = 60 + ENTRIES // 100


def environment():
    return {
        "MSPROBE_SERVER_BINARY": os.environ.get("MSPROBE_SERVER_BINARY", Path(sys.executable).parent / "msprobe-server")
    }


def leaf(value):
    numbers = {"Max": value, "Min": -value, "Mean": value / 4, "Norm": value * 2}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "requires_grad": False} | numbers


def write_dump(place, scale, lonely, number=0):
    """Blocks of four calls and their module, in layers of sixty. `lonely`: a call that the other side has not.
    `number`: of the first call."""
    data, construct = {}, {}
    net = "Module.net.Net.forward.0"
    for block in range(ENTRIES // 5):
        layer = f"Module.net.layers.{block // BLOCKS}.Layer.forward.0"
        module = f"Module.net.layers.{block // BLOCKS}.blocks.{block % BLOCKS}.Block.forward.0"
        construct |= {module: layer, layer: net}
        for at in range(4):
            name = f"Functional.linear.{number + 4 * block + at}.forward"
            construct[name] = module
            data[name] = {"input_args": [leaf(1.0)], "output": [leaf(2.0 * (scale if block == 1 else 1))]}
        data[module] = {"input_args": [leaf(1.0)], "output": [leaf(3.0 * (scale if block == 1 else 1))]}
    data[lonely] = {"input_args": [], "output": [leaf(1.0)]}
    construct |= {lonely: net, net: None}
    place.mkdir(parents=True)
    (place / "construct.json").write_text(json.dumps(construct))
    stacks = {"0": [list(data), ["File train.py, line 7, in step, \n model(x)"]]}
    (place / "stack.json").write_text(json.dumps(stacks))
    (place / "dump.json").write_text(json.dumps({"task": "statistics", "level": "mix", "data": data}))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    root = tmp_path_factory.mktemp("pair")
    write_dump(root / "target" / "step0" / "rank0", 4.0, "Torch.here.0.forward")
    write_dump(root / "golden" / "step0" / "rank0", 1.0, "Torch.there.0.forward", RENUMBERED)
    return root


@pytest.fixture(scope="module")
def files(pair, tmp_path_factory):
    """The files of both sides."""
    out = tmp_path_factory.mktemp("explorer") / "files"
    sides = [pair / "target", pair / "golden"]
    run(
        [sys.executable, "-c", CLIENT, "graph", *sides, "--to", "model-explorer", "--fuzzy", "--overflow", "-o", out],
        **environment(),
    )
    return out


def test_its_classes_take_the_files(files):
    node_data = pytest.importorskip("model_explorer.node_data_builder", reason="make test-operate installs it")
    builder = pytest.importorskip("model_explorer.graph_builder")
    dacite = pytest.importorskip("dacite")
    ids = {}
    for side in ("target", "golden"):
        collection = dacite.from_dict(
            builder.GraphCollection, json.loads((files / f"{side}.json").read_text()), dacite.Config(strict=True)
        )
        (graph,) = collection.graphs
        ids[graph.id] = {node.id for node in graph.nodes}
        assert all(edge.sourceNodeId in ids[graph.id] for node in graph.nodes for edge in node.incomingEdges)
    assert set(ids) == {"target step0 rank0", "golden step0 rank0"}
    names = {path.name.removeprefix("node_data_").removesuffix(".json") for path in files.glob("node_data_*")}
    assert {"max", "min", "mean", "norm", "verdict", "overflow", "max_diff", "norm_relative_percent"} <= names
    for name in names:
        said = json.loads((files / f"node_data_{name}.json").read_text())
        for graph, data in said.items():
            made = dacite.from_dict(node_data.GraphNodeData, data, dacite.Config(check_types=False, strict=True))
            assert made.name == name and made.results.keys() <= ids[graph]
    mapping = json.loads((files / "mapping_step0_rank0.json").read_text())
    (target,) = json.loads((files / "target.json").read_text())["graphs"]
    layers = {f"{node['namespace']}___group___" for node in target["nodes"] if node["namespace"]}
    assert layers <= {node for entry in mapping["mappingEntries"] for node in entry["leftNodeIds"]}
    lonely = [
        sorted(ids[graph] - {node for entry in mapping["mappingEntries"] for node in entry[side]})
        for graph, side in (("target step0 rank0", "leftNodeIds"), ("golden step0 rank0", "rightNodeIds"))
    ]
    assert lonely == [["Torch.here.0.forward"], ["Torch.there.0.forward"]]


def test_the_extension_offers_a_run(pair, tmp_path, monkeypatch):
    pytest.importorskip("model_explorer", reason="make test-operate installs it")
    from msprobe_client.errors import InvalidArgument
    from msprobe_client.explorer.main import MsprobeAdapter, MsprobeData

    for name, value in environment().items():
        monkeypatch.setenv(name, str(value))
    file = tmp_path / "pair.msprobe"
    asked = {"target": str(pair / "target"), "golden": str(pair / "golden"), "step": 0, "overflow": True, "fuzzy": True}
    file.write_text(json.dumps(asked))
    graphs = MsprobeAdapter().convert(str(file), {})["graphCollections"]
    assert [collection.label for collection in graphs] == ["target", "golden"]
    data = MsprobeData().run("msprobe_data", str(file), graphs[0].graphs[0].id, {}, None)
    found = {one.name: one for one in data.result}
    assert found["verdict"].results["Functional.linear.4.forward"].value == "error"
    assert found["max"].results["Functional.linear.4.forward"].value == 8.0
    for text, problem in (
        ("{", "Expecting"),
        ("{}", 'needs "target"'),
        ('{"target": "a", "stepp": 1}', "no field 'stepp'"),
    ):
        file.write_text(text)
        with pytest.raises(InvalidArgument, match=problem):
            MsprobeAdapter().convert(str(file), {})
        assert problem in MsprobeData().run("msprobe_data", str(file), "x", {}, None).error


# Whether the information of each pane's selected node has these texts.
SEEN = """(wanted) => wanted.every(([pane, text]) =>
  document.querySelectorAll("split-pane")[pane]?.querySelector("info-panel")?.innerText.includes(text))"""


def reads(page, pane, *texts):
    """Waits until the information of a pane's selected node has these texts."""
    for text in texts:
        page.wait_for_function(SEEN, arg=[[pane, text]], timeout=DRAWN_S * 1000)


def select(page, pane, name, done, wanted=None):
    """Finds a node, which brings it into the middle of the pane, and clicks there until `done` holds of `wanted`.

    A click that comes before the node has arrived hits another one, so the node is found again for each click. That
    other one's information may name the node too, so `done` must be what only the node's selection brings about.
    """
    within = page.locator("split-pane").nth(pane)
    within.locator("search-bar input").fill(f"^{name}$".replace(".", r"\."))
    found = within.locator(".search-results-container").get_by_text(name).first
    box = within.locator("graph-panel").bounding_box()
    deadline, moving_ms = time.monotonic() + DRAWN_S, 500
    while time.monotonic() < deadline:
        found.click(timeout=DRAWN_S * 1000)
        page.wait_for_timeout(moving_ms)
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        patience = time.monotonic() + 2 * moving_ms / 1000
        while time.monotonic() < patience:
            if page.evaluate(done, wanted):
                return
            page.wait_for_timeout(200)
        moving_ms = min(2 * moving_ms, 8000)
    raise AssertionError(f"{name} is not selected")


@pytest.mark.timeout(900)
def test_the_page_shows_a_pair(pair, files, tmp_path):
    """Both sides beside each other, coloured by the verdict. With the mapping, one side's call selects the other's."""
    pytest.importorskip("model_explorer", reason="make test-operate installs it")
    file, port = tmp_path / "pair.msprobe", free_port()
    file.write_text(json.dumps({"target": str(pair / "target"), "golden": str(pair / "golden"), "fuzzy": True}))
    program = Path(sys.executable).parent / "model-explorer"
    command = [program, "--extensions=msprobe_client.explorer", "--port", port, "--no_open_in_browser"]
    panes = [
        {
            "deepestExpandedGroupNodeIds": [],
            "selectedNodeId": f"Functional.linear.{first + 4}.forward",
            "selectedGraphId": f"{side} step0 rank0",
            "selectedCollectionLabel": f"pair.msprobe ({side})",
            "widthFraction": 0.5,
        }
        for side, first in (("target", 0), ("golden", RENUMBERED))
    ]
    asked = {
        "models": [{"url": str(file), "adapterId": "msprobe"}],
        "nodeData": [str(files / "node_data_verdict.json")],
        "nodeDataTargets": [""],
        "uiState": {"paneStates": panes},
    }
    said = []
    software = ("--enable-unsafe-swiftshader", "--use-angle=swiftshader")  # for WebGL
    with (
        Background(command, tmp_path / "log", **environment()) as server,
        browser.chromium(*software) as opened,
    ):
        server.wait_for(lambda: is_listening(port), START_S, "Model Explorer listens")
        page = opened.new_page(viewport={"width": 1500, "height": 950})
        page.on("pageerror", lambda error: said.append(str(error)))
        began = time.monotonic()
        page.goto(f"http://localhost:{port}/?data={urllib.parse.quote(json.dumps(asked))}")
        # The norm of either side, the verdict, and where the call stands.
        reads(page, 0, "16.0", "error", "File train.py, line 7, in step, model(x)")
        reads(page, 1, "4.0")
        print(f"a pair of {ENTRIES} entries is drawn after {time.monotonic() - began:.1f} s")
        browser.keep_picture(page, f"model_explorer/pair_{ENTRIES}", "model_explorer")
        # Numbers of calls differ, so without the mapping a call has no partner.
        page.get_by_text("Sync", exact=True).click()
        page.get_by_text("Upload mapping from computer").click()
        page.locator("input.upload-mapping-input").set_input_files(files / "mapping_step0_rank0.json")
        page.locator(".uploaded-file-name", has_text="mapping_step0_rank0.json").wait_for(timeout=DRAWN_S * 1000)
        page.keyboard.press("Escape")
        page.mouse.click(700, 20)  # closes the choice
        began = time.monotonic()
        both = [[0, "Functional.linear.6.forward"]]
        both += [[1, f"Functional.linear.{RENUMBERED + number}.forward"] for number in (5, 6)]
        select(page, 0, "Functional.linear.5.forward", SEEN, both)
        print(f"a call and its partner are selected after {time.monotonic() - began:.1f} s")
        browser.keep_picture(page, f"model_explorer/mapped_{ENTRIES}")
        # The message goes after some seconds.
        page.evaluate(
            """() => {
              const message = document.querySelector(".no-mapped-node-message");
              new MutationObserver(() => (window.said ||= message.classList.contains("show"))).observe(message, {
                attributes: true,
              });
            }"""
        )
        select(page, 0, "Torch.here.0.forward", "() => window.said === true")
        browser.keep_picture(page, f"model_explorer/lonely_{ENTRIES}")
    assert not said
