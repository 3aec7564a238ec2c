"""The graph of the model on the server's page, in a real browser: seen, searched, opened, and used by keyboard."""

import re
import sys

import pytest
from harness.dumps import write_config
from harness.processes import REPOSITORY, external_server, free_port, run
from web_pages import ask, rank_of

RUN, OTHER = "planted", "healthy"
STEPS, NAN_AT = 3, 2
LAYERS, CALLS = 100, 500  # of a graph of 100,000 calls
PARTED = "Torch.add.50000.forward"


@pytest.fixture(scope="module")
def served(place, tmp_path_factory):
    """Address of a page with two runs with captured tensors, of which one has a NaN planted."""
    folder, port = tmp_path_factory.mktemp("graph"), free_port()
    program = REPOSITORY / "tests" / "operate" / "programs" / "overflowing.py"
    with external_server(place / "g", folder / "data", folder / "log", f"--web_listen=127.0.0.1:{port}"):
        for name, nan_at in ((OTHER, -1), (RUN, NAN_AT)):
            config = write_config(
                folder / f"{name}.json",
                folder / "dump",
                level="mix",
                task="tensor",
                server=f"unix:{place / 'g'}",
                run=name,
            )
            run([sys.executable, program, "--config", config, "--steps", STEPS, "--nan-at", nan_at])
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def nested(place, tmp_path_factory):
    """Address of a page with two runs of one step of 100,000 calls."""
    program = REPOSITORY / "build" / "server" / "web" / "nested_store"
    if not program.exists():
        pytest.skip("nested_store is not built: run `make build`")
    folder, port = tmp_path_factory.mktemp("nested"), free_port()
    run([program, folder / "data", LAYERS, CALLS])
    with external_server(place / "n", folder / "data", folder / "log", f"--web_listen=127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


def show(opened, address, query, **options):
    page = opened(address, **options)
    page.page.goto(f"{address}/{query}")
    page.reads(r"\d calls\.", "#graph-say")
    page.rests()
    page.page.locator("#graph").scroll_into_view_if_needed()
    return page


def test_it_opens_where_the_nan_began_and_a_click_shows_the_record(served, opened):
    page = show(opened, served, f"?run={RUN}")
    assert page.text("#graph-say").startswith("NaN or infinity begins in Torch.log.0.forward. ")
    assert page.text("#graph-cell") == "Torch.log.0.forward; critical; norm NaN; it began here"
    assert page.page.input_value("#graph-step") == str(NAN_AT)
    page.page.locator("#graph-target").focus()
    page.press("Enter")
    page.reads("Torch.log.0.forward · ", "#record-name")
    page.reads("128 elements, 0 of them 0; .* NaN", "#histogram")
    page.keep("graph_nan")
    page.page.click("#graph-before")
    page.reads("No NaN and no infinity begins in this step", "#graph-say")
    assert page.page.input_value("#graph-step") == str(NAN_AT - 1)
    assert page.page.is_disabled("#graph-first")


def test_the_keyboard_alone_opens_closes_and_searches(served, opened):
    page = show(opened, served, f"?run={RUN}&graph_step=0")
    page.page.locator("#graph-find").focus()
    page.page.keyboard.type("LAYERS.1.PROJ")
    page.reads("Module.layers.1.proj.Linear.forward.0", "#graph-found")
    page.press("ArrowDown", "Enter")
    page.reads(r"^Module\.layers\.1\.proj\.Linear\.(for|back)ward\.0; 1 call inside, closed", "#graph-cell")
    assert page.page.evaluate("document.activeElement.id") == "graph-target"
    page.press("ArrowRight")
    page.reads("1 call inside, open", "#graph-cell")
    page.press("ArrowRight")
    page.reads(r"^Functional\.linear\.1\.forward; norm ", "#graph-cell")
    page.press("ArrowUp", "ArrowLeft")
    page.reads("1 call inside, closed", "#graph-cell")
    address = page.page.url
    again = show(opened, served, address.partition("/?")[2].join(["?", ""]))
    again.reads(r"Linear\.(for|back)ward\.0; 1 call inside, closed", "#graph-cell")


def test_two_runs_stand_side_by_side_with_one_selection(served, opened):
    page = show(opened, served, f"?run={RUN}&golden={OTHER}&graph_step={NAN_AT}")
    page.reads(r"The two sides part in Tensor\.__sub__\.0\.forward: one side lacks it", "#graph-say")
    assert page.page.is_visible("#graph-golden")
    page.reads("; target only; .*the other side has no such call; it began here", "#graph-cell")
    page.keep("graph_two", "page_graph", of="#graph")
    page.page.locator("#graph-target").focus()
    page.press("ArrowDown", "ArrowDown")
    page.reads(r"^Tensor\.__add__\.2\.forward; non-finite", "#graph-cell")
    page.page.locator("#graph-golden").focus()  # it tells what is chosen there: the partner
    page.reads(r"^Tensor\.__add__\.2\.forward; non-finite", "#graph-cell")
    page.press("Enter")
    page.reads(r"Tensor\.__add__\.2\.forward · ", "#record-name")
    page.page.select_option("#graph-colour", "statistic")
    page.reads(r"\|norm\| of the output", "#graph-legend")
    page.page.select_option("#golden", "")
    page.reads("NaN or infinity begins in ", "#graph-say")
    assert page.page.is_hidden("#graph-golden")


def test_a_clean_run_beside_another_shows_the_record_that_only_that_has(served, opened):
    page = show(opened, served, f"?run={OTHER}&golden={RUN}&graph_step={NAN_AT}")
    page.reads(rf"^Tensor\.__sub__\.0\.forward · process \d+ · step {NAN_AT} · only in {RUN}$", "#record-name")
    page.reads(r"input\.1 *1000 *float", "#tensors-of-record")
    page.reads("128 elements, ", "#histogram")
    page.reads("torch.log", "#stack")
    assert page.page.locator("#trend svg .dot").count() == 1 and page.page.locator("#trend svg .began").count() == 0
    page.keep("record_of_one_side")


@pytest.mark.parametrize("width", [1400, 390])
def test_the_small_picture_hides_no_call(nested, opened, width):
    page = show(opened, nested, "?run=nested&golden=golden", width=width)
    for side in ("target", "golden"):
        drawn = page.page.locator(f"#graph-{side}").bounding_box()
        whole = page.page.locator(f"#graph-{side}-whole").bounding_box()
        around = page.page.locator(f"figure:has(#graph-{side}) .picture").bounding_box()
        assert drawn["x"] + drawn["width"] <= whole["x"], "it stands beside the drawing"
        assert whole["x"] + whole["width"] <= around["x"] + around["width"]
        assert drawn["width"] >= 0.75 * around["width"]
    page.keep(f"graph_whole_{width}")


@pytest.mark.parametrize("width", [1600, 1024, 390])
def test_it_fits_every_width(served, opened, width):
    page = show(opened, served, f"?run={RUN}&golden={OTHER}&graph_step={NAN_AT}", width=width, height=860)
    assert not page.scrolls_sideways()
    box = page.page.locator("#graph-target").bounding_box()
    assert box["width"] >= min(width, 900) * 0.4
    assert box["height"] <= 860 * 0.75, "there is room to scroll the page by touch"
    page.keep(f"graph_{width}")


def test_100000_calls_send_only_what_is_seen(nested, opened):
    page = show(opened, nested, "?run=nested&golden=golden")
    assert page.text("#graph-say").startswith(f"The two sides part in {PARTED}: ")
    answer = ask(nested, "graph", run="nested", rank="rank0", step=0, open="0", show=PARTED, wide=3000, high=2000)[
        "answer"
    ]
    assert answer["nodes"] == LAYERS * (2 * CALLS + 3) + 1
    assert answer["size"][1] > 20_000
    assert 20 < len(answer["boxes"]) < 200
    every = ask(nested, "graph", run="nested", rank="rank0", step=0, open="0", show=PARTED, wide=3000, high=4_000_000)[
        "answer"
    ]
    assert len(every["boxes"]) <= 1500
    page.page.fill("#graph-find", "add.7777.f")
    page.reads(r"Torch\.add\.7777\.forward", "#graph-found")
    page.press("Enter")
    page.reads(r"^Torch\.add\.7777\.forward; equal", "#graph-cell")


def test_what_cannot_be_drawn_is_said_in_the_graph(served):
    answer = ask(served, "graph", run=RUN, rank=rank_of(served, RUN), step=77)
    assert re.search("there is no step 77 of this rank; there are 3, from 0 to 2", answer["error"])
