"""The page shows what checks of operators have found, while the run goes on."""

import re
import sys
from contextlib import ExitStack

import pytest
from harness.dumps import write_config
from harness.processes import PROGRAMS, Background, external_server, free_port
from web_pages import ask

STEPS = 6


@pytest.fixture
def job(place, tmp_path, client):
    """(address of the page, the program that waits after its third step, the file it waits for, start_worker)."""
    port, hold, server = free_port(), tmp_path / "hold", f"unix:{place / 'checks'}"
    hold.touch()
    section = {"budget_ms": 1000}
    config = write_config(
        tmp_path / "c.json", tmp_path / "dump", task="check", section=section, server=server, run="tuesday"
    )
    with ExitStack() as stack:
        data = tmp_path / "data"
        stack.enter_context(external_server(place / "checks", data, tmp_path / "log", f"--web_listen=127.0.0.1:{port}"))
        command = [sys.executable, PROGRAMS / "live_check.py", hold, STEPS, config, "wrong"]
        program = stack.enter_context(Background(command, tmp_path / "program.log"))

        def start_worker():
            words = [client, "--server", server, "worker", "--kinds", "check"]
            stack.enter_context(Background(words, tmp_path / "worker.log", OMP_NUM_THREADS=1))

        yield f"http://127.0.0.1:{port}", program, hold, start_worker


@pytest.mark.timeout(150)
def test_verdicts_appear_while_the_run_goes_on_and_lead_to_their_command(job, opened):
    address, program, hold, start_worker = job
    program.wait_for(lambda: "step 2" in program.output, 60, "three steps have run")
    program.wait_for(lambda: ask(address, "runs")["answer"], 60, "the run has begun")
    program.wait_for(lambda: ask(address, "verdicts", run="tuesday")["answer"]["jobs"], 30, "calls are to be checked")
    page = opened(address)
    page.page.goto(f"{address}/?run=tuesday")
    page.reads(r"^0 of \d+ calls checked, none wrong; more may come$", "#checks-count")
    page.page.evaluate("window.loaded = true")
    start_worker()
    page.reads(r"checked, 3 wrong; more may come$", "#checks-count", timeout=60_000)
    assert page.page.evaluate("window.loaded"), "the page was never loaded again"
    assert program.alive()
    cards = page.page.locator("#check-rows li")
    assert cards.count() == 3 and all(".gelu." in text for text in cards.all_inner_texts())
    summary = cards.first.inner_text()
    assert re.search(r"^fail .*Functional\.gelu\.0\.forward\.output\.0 step \d, process \d+ .*, should be ", summary)

    # By keyboard alone.
    page.page.focus("#check-rows summary >> nth=0")
    page.press("ArrowDown", "Enter")
    opened_card = cards.nth(1)
    page.page.wait_for_selector("#check-rows li:nth-child(2) details[open]")
    page.reads(r"\] is \S+, should be", "#check-rows li >> nth=1")  # what is inside is asked for when it opens
    details = opened_card.inner_text()
    for said in ("gelu", "float32 · [16, 64]", "default: max_abs", "limit", "activation.py"):
        assert said in details, details
    assert re.search(r"\[\d+, \d+\] is \S+, should be \S+", details)
    command = opened_card.locator("code.repeat").inner_text()
    assert command.startswith("msprobe-client check tuesday --step ") and "--name Functional.gelu.0.forward" in command
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.press("Tab", "Enter")
    page.reads("^Copied$", "#check-rows li >> nth=1 >> button >> nth=0")
    assert page.page.evaluate("navigator.clipboard.readText()") == command
    page.keep("checks", high=900)

    # The address brings it back, on a telephone too.
    narrow = opened(address, width=390, height=844)
    narrow.page.goto(page.page.url)
    narrow.page.wait_for_selector("#check-rows details[open]")
    assert narrow.text("#check-rows details[open] code.repeat") == command
    assert not narrow.scrolls_sideways()
    narrow.keep("checks_390")

    # Other verdicts, and a name.
    page.page.click("#check-filter button:has-text('pass')")
    page.reads("^pass ", "#check-rows li >> nth=0")
    assert "check_verdict=pass" in page.page.url
    page.page.fill("#check-name", "cross_entropy")
    page.reads("cross_entropy", "#check-rows li >> nth=0")
    assert all("cross_entropy" in text for text in cards.all_inner_texts())
    page.page.fill("#check-name", "no such call")
    page.reads("^No call has such a verdict", "#check-none")
    page.page.fill("#check-name", "")
    page.page.click("#check-filter button:has-text('wrong')")
    page.page.click("#check-rows summary >> nth=0")
    page.page.click("#check-rows li:first-child button:has-text('Open the record')")
    page.reads(r"^Functional\.gelu\.0\.forward", "#record-name")

    hold.unlink()
    program.finish()
    page.reads(rf"checked, {STEPS} wrong$", "#checks-count", timeout=60_000)
    assert cards.count() == STEPS


def test_a_run_without_checks_has_no_such_list(opened, four):
    page = opened(four[0]).open("?run=healthy")
    assert page.page.locator("#checks").is_hidden()
