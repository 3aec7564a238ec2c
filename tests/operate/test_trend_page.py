"""A trend database in the real TrendVis, in TensorBoard and a browser: a heat map, and the curve of a cell."""

import json
import os
import sys
from pathlib import Path

import pytest
from harness.browser import keep_picture
from harness.processes import run
from harness.tensorboard import tensorboard

PROGRAM = "from msprobe_client.compat.legacy import main; main()"
STEPS, RANKS, LAYERS = 8, 2, 12
SPIKE = (1, 0, 3)  # step, rank and layer of a value that mindstudio-probe's own databases would cut off
SPIKE_VALUE = 3e12


@pytest.fixture
def page(chromium):
    with chromium.new_context(viewport={"width": 1500, "height": 950}) as context:
        yield context.new_page()


def write_dump(root):
    for step in range(STEPS):
        for rank in range(RANKS):
            data = {}
            for layer in range(LAYERS):
                value = SPIKE_VALUE if (step, rank, layer) == SPIKE else 1.0 + layer + step / 10
                leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Mean": 0.0, "Norm": value}
                last = layer == LAYERS - 1 and step == STEPS - 1
                leaf |= {"Max": float("inf") if last else value, "Min": -value, "requires_grad": False}
                data[f"Module.net.layers.{layer}.Linear.forward.0"] = {"input_args": [], "output": [leaf]}
            place = root / f"step{step}" / f"rank{rank}"
            place.mkdir(parents=True)
            construct = json.dumps(dict.fromkeys(data, "Module.net.Net.forward.0") | {"Module.net.Net.forward.0": None})
            (place / "construct.json").write_text(construct)
            (place / "dump.json").write_text(json.dumps({"task": "statistics", "level": "L0", "data": data}))
    return root


@pytest.mark.usefixtures("oracle_python")
def test_a_heat_map_and_a_curve_are_drawn(page, tmp_path):
    binary = os.environ.get("MSPROBE_SERVER_BINARY", Path(sys.executable).parent / "msprobe-server")
    logs = tmp_path / "logs"
    data = write_dump(tmp_path / "dump")
    run([sys.executable, "-c", PROGRAM, "data2db", "--data", data, "--db", logs], MSPROBE_SERVER_BINARY=binary)
    answers = {}
    page.on("requestfinished", lambda request: answers.update({request.url.rpartition("/")[2]: request}))
    said = []
    page.on("pageerror", lambda error: said.append(str(error)))
    with tensorboard("mindstudio-probe", logs, tmp_path / "log") as board:
        with page.expect_request_finished(lambda request: request.url.endswith("/heatmap_data"), timeout=60_000):
            page.goto(f"http://127.0.0.1:{board.port}/#TrendVis")
        frame = page.frame(url="**/TrendVis/index.html")
        heat_map, curve = (frame.locator("canvas").nth(at) for at in (0, 1))
        # One target at all ranks and steps: a square of numbers.
        choose(page, frame, 3, "Module")
        choose(page, frame, 4, f"{SPIKE[2] + 1}_0_Module.net.layers.{SPIKE[2]}.Linear.output.0_0")
        cells = json.loads(answers["heatmap_data"].response().text())["data"]
        assert [cell[2] for cell in cells if cell[0] == SPIKE[0]] == [SPIKE_VALUE, pytest.approx(4.1)]
        settle(page)
        shown = colours(heat_map)
        assert any(red > 150 and blue < 60 and green < 30 for red, green, blue in shown), "a red cell"
        assert any(red < 80 and blue > 170 for red, _, blue in shown), "among blue ones"
        before = drawn(curve)
        box = heat_map.bounding_box()
        with page.expect_request_finished(lambda request: request.url.endswith("/trend")):
            page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        settle(page)
        keep_picture(page, "trend_page/heat_map_and_curve", "tensorboard_trends")
        assert drawn(curve) > before + 200, "a curve is on the screen"
    assert not said


def choose(page, frame, at, text):
    """Picks from the list `at` of the page's menus."""
    frame.locator(".ant-select").nth(at).click()
    with page.expect_request_finished(lambda request: "TrendVis" in request.url):
        frame.locator(
            ".ant-select-dropdown:not(.ant-select-dropdown-hidden) .ant-select-item-option", has_text=text
        ).first.click()


def settle(page):
    """Until the page has been drawn and looks the same twice."""
    last = b""
    for _ in range(20):
        now = page.screenshot()
        if now == last:
            return
        last = now


def pixels(canvas):
    return canvas.evaluate(
        """canvas => {
             const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
             const found = {};
             for (let i = 0; i < data.length; i += 4) {
               const key = `${data[i]},${data[i + 1]},${data[i + 2]},${data[i + 3]}`;
               found[key] = (found[key] || 0) + 1;
             }
             return found;
           }"""
    )


def colours(canvas):
    """Those of at least 500 pixels."""
    return {tuple(map(int, key.split(",")))[:3] for key, count in pixels(canvas).items() if count >= 500}


def drawn(canvas):
    """Pixels that are neither empty nor white nor grey."""
    found = 0
    for key, count in pixels(canvas).items():
        red, green, blue, alpha = map(int, key.split(","))
        found += count if alpha > 128 and max(red, green, blue) - min(red, green, blue) > 60 else 0
    return found
