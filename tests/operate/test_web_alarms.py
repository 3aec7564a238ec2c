"""The page's time line of alarms: along the steps, live, and each leads to its record or its trend."""

import sys
from contextlib import ExitStack

import pytest
from harness.dumps import write_config
from harness.processes import Background, external_server, free_port
from web_pages import PROGRAM, ask

ALARMING = PROGRAM.with_name("alarming.py")


@pytest.fixture
def alarming(place, tmp_path):
    """(address of the page, the program, the file that it waits for before its last alarm)."""
    port, hold, server = free_port(), tmp_path / "hold", f"unix:{place / 'alarms'}"
    hold.touch()
    config = write_config(tmp_path / "c.json", tmp_path / "dump", level="L0", server=server, run="tuesday")
    with ExitStack() as stack:
        data = tmp_path / "data"
        stack.enter_context(external_server(place / "alarms", data, tmp_path / "log", f"--web_listen=127.0.0.1:{port}"))
        program = stack.enter_context(Background([sys.executable, ALARMING, config, hold], tmp_path / "program.log"))
        yield f"http://127.0.0.1:{port}", program, hold


@pytest.mark.timeout(150)
def test_alarms_stand_along_the_steps_and_lead_to_what_they_are_of(alarming, opened):
    address, program, hold = alarming
    program.wait_for(lambda: ask(address, "runs")["answer"], 60, "the run has begun")
    program.wait_for(lambda: len(ask(address, "alarms", run="tuesday")["answer"]) == 2, 60, "two alarms are raised")
    page = opened(address).open("?run=tuesday")
    page.reads(r"^2 alarms, 2 of them going on$", "#alarms-count")
    page.page.evaluate("window.loaded = true")
    rows = page.page.locator("#alarm-rows li")
    first, second = rows.all_inner_texts()
    assert first.startswith("not-finite at step 12 rank 0, Module.0.Linear.forward.0.input.0:norm: it is nan")
    assert second.startswith("gradient-explodes at step 16 rank 0, grad_norm: ")
    line = page.page.locator("#alarm-line")
    assert line.get_attribute("aria-label") == "2 alarms of 2 rows of rule and rank over 20 columns of steps"

    # By keyboard: of the line to the record, of the list to the trend.
    page.page.focus("#alarm-line")
    page.press("Home", *["ArrowRight"] * 12)
    page.reads(r"^not-finite, rank 0, step 12: at step 12 \S+ is NaN: it is nan$", "#alarm-cell")
    page.press("Enter")
    page.reads(r"^Module\.0\.Linear\.forward\.0 at step 12\.$")
    page.rests()
    page.reads(r"^Module\.0\.Linear\.forward\.0 · rank 0 · step 12", "#record-name")
    page.page.focus("#alarm-rows button >> nth=0")
    page.press("ArrowDown", "Enter")
    page.reads(r"^grad_norm, rank 0, alarm at step 16$", "#alarm-trend-name")
    page.reads(r"^step 16 · grad_norm: 1e9$", "#alarm-trend-cell")

    # As it is raised.
    hold.unlink()
    page.reads(r"^3 alarms", "#alarms-count", timeout=60_000)
    assert page.page.evaluate("window.loaded"), "the page was never loaded again"
    assert rows.nth(2).inner_text().startswith("update-too-large at step 25 rank 0, update_ratio/w: ")
    program.finish()
    page.reads(r"^3 alarms$", "#alarms-count", timeout=60_000)
    page.keep("alarms", high=900)

    # By pointer, on a telephone too.
    narrow = opened(address, width=390, height=844).open("?run=tuesday")
    narrow.page.click("#alarm-rows button >> nth=2")
    narrow.reads(r"^update_ratio/w, rank 0, alarm at step 25$", "#alarm-trend-name")
    assert not narrow.scrolls_sideways()
    narrow.keep("alarms_390")


def test_a_run_without_alarms_has_no_such_line(opened, four):
    page = opened(four[0]).open("?run=healthy")
    assert page.page.locator("#alarms").is_hidden()
