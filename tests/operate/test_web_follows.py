"""The page answers before it is asked: the verdict, all ranks, and the steps of a run that streams."""

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.dumps import write_config
from msprobe_client import Client
from web_pages import BAD_RANK, NAN_AT, PROGRAM, RANKS, STEPS, ask


@pytest.fixture
def page(opened, four):
    return opened(four[0], width=1600).open("?run=ranks")


def test_a_run_opens_with_its_verdict_and_the_record_of_it(page):
    place = f"overflowing.py:{1 + PROGRAM.read_text().splitlines().index(line_of_the_log())}"
    assert page.text("#verdict") == f"NaN began at step {NAN_AT}, rank {BAD_RANK}, torch.log, {place}."
    assert page.page.input_value("#rank") == f"rank{BAD_RANK}"
    assert page.text("#record-name") == f"Torch.log.0.forward · rank {BAD_RANK} · step {NAN_AT}"
    assert page.text("#ranks-count") == f"1 of {RANKS} ranks with NaN or infinity"
    assert page.page.locator("#map ~ .chosen").is_visible(), "the cell of the record is marked in the map"
    page.keep("verdict", "page", high=860)


def line_of_the_log():
    return next(line for line in PROGRAM.read_text().splitlines() if "torch.log(" in line)


def test_the_address_brings_back_rank_record_and_tensor(page, opened, four):
    page.page.locator("#tensors-of-record button", has_text="input.0").first.click()
    page.reads(r"^Torch\.log\.0\.forward\.input\.0 ", "#trend-name")
    again = opened(four[0])
    again.page.goto(page.page.url)
    again.reads(r"^Torch\.log\.0\.forward\.input\.0 ", "#trend-name")
    again.rests()
    assert again.text("#record-name") == page.text("#record-name")


def test_a_clean_run_says_so_in_one_line(opened, four):
    page = opened(four[0]).open("?run=healthy")
    assert page.text("#verdict").startswith(f"Clean: no NaN, no infinity in {STEPS} steps of 1 rank, ")
    assert page.page.locator("#record-box").is_hidden()


def test_two_runs_say_where_they_differ_first(opened, four):
    page = opened(four[0]).open("?run=planted&golden=healthy")
    page.reads(rf"^Differs from healthy first at step {NAN_AT}, ", "#divergence")
    page.page.goto(f"{four[0]}/?run=healthy&golden=healthy")
    page.reads(r"^Agrees with healthy within tolerance\.$", "#divergence")


def test_all_ranks_are_rows_and_lead_to_a_record_of_their_own(page):
    page.page.select_option("#rank", "all")
    page.reads(rf"^{STEPS} steps, {RANKS} ranks, ")
    page.page.focus("#map")
    page.press(*["ArrowDown"] * BAD_RANK, *["ArrowRight"] * NAN_AT)
    page.reads(rf"^rank {BAD_RANK}, step {NAN_AT}: NaN at step {NAN_AT} in ", "#cell")
    page.press("ArrowUp")
    page.reads(rf"^rank {BAD_RANK - 1}, step {NAN_AT}: [0-9.]+ at ", "#cell")
    page.press("Enter")
    page.reads(rf" · rank {BAD_RANK - 1} · step {NAN_AT}$", "#record-name")
    page.keep("ranks")


def test_a_place_among_the_ranks_chooses_its_rank_and_lists_what_began_there(page):
    page.page.focus("#line")
    page.press(*["ArrowRight"] * (NAN_AT + 1), "ArrowDown")
    page.reads(rf"^rank 1, step {NAN_AT + 1}: all finite$", "#line-cell")
    page.press("ArrowDown")
    page.reads(rf"^rank {BAD_RANK}, step {NAN_AT + 1}: \d+ tensors with NaN", "#line-cell")
    page.press("ArrowUp", "Enter")
    page.reads(r"^Steps and layers of rank 1$", "#h-map")
    page.reads(rf"at step {NAN_AT + 1}$", "#origins-title")
    assert "rank=rank1" in page.page.url


def test_colours_by_row_show_the_changes_of_a_row_of_small_numbers(page):
    def shades():
        return page.page.evaluate(
            """() => {
              const map = document.querySelector("#map"), context = map.getContext("2d"), seen = new Set();
              const { data } = context.getImageData(map.width * 0.2, map.height * 0.1, map.width * 0.3, 1);
              for (let i = 0; i < data.length; i += 4) seen.add(data.slice(i, i + 4).join());
              return seen.size;
            }"""
        )

    page.page.check("#by-row")
    page.reads("each row by itself", "#legend")
    assert shades() >= 3
    assert "rows=own" in page.page.url
    page.keep("by_row")


def test_a_trend_takes_ranks_and_tensors_beside_each_other_and_tells_values(page):
    page.page.locator("#tensors-of-record button", has_text="input.0").first.click()
    page.reads(r"^Torch\.log\.0\.forward\.input\.0 ", "#trend-name")
    page.page.locator("#tensors-of-record button[aria-label], #tensors-of-record button", has_text="add").last.click()
    page.reads(r"input\.0.*output\.0", "#trend-name")
    assert page.page.locator("#trend .began").count() == 1, "where NaN began is marked"
    page.page.focus("#trend svg")
    page.press("Home")
    page.reads(rf"^step {NAN_AT} · Torch\.log\.0\.forward\.input\.0: [0-9.]+ · .*output\.0: NaN$", "#trend-cell")
    # The head ran at every step of every rank.
    page.page.focus("#map")
    page.press("End", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "Home", "Enter")
    page.reads(r"^Module\.head|^Functional\.linear", "#record-name")
    page.page.select_option("#beside", "all")
    page.reads(r"rank 0.*rank 1.*rank 3", "#trend-name")
    page.counts("#trend path.line", RANKS)
    places = "labels => labels.map((label) => label.getAttribute('y'))"
    before = page.page.locator("#trend .axis.end").evaluate_all(places)
    page.page.check("#logarithmic")
    page.reads(r"^\|norm\|$", "#trend .axis:text('norm')")
    assert page.page.locator("#trend .axis.end").evaluate_all(places) != before
    page.page.locator("#smoothing").fill("0.5")
    page.counts("#trend path.smooth", RANKS)
    page.keep("trends")
    page.page.locator("#trend-name button").first.click()
    page.counts("#trend path.smooth", RANKS - 1)


def test_frames_of_libraries_are_folded(page):
    page.reads(r"overflowing\.py", "#stack .own >> nth=0")
    page.reads(r".", "#stack .own >> nth=1")
    fold = page.page.locator("#stack details").first
    assert fold.locator("summary").inner_text().endswith(("frames of torch", "frame of torch"))
    assert fold.get_attribute("open") is None and not fold.locator("li").first.is_visible()


def test_pictures_are_taken_along_as_csv_and_png(page):
    with page.page.expect_download() as saved:
        page.page.click("#keep-map button:has-text('CSV')")
    rows = list(csv.DictReader(io.StringIO(Path(saved.value.path()).read_text())))
    assert {row["rank"] for row in rows} == {f"rank{BAD_RANK}"}
    bad = [row for row in rows if row["norm"] == "NaN"]
    assert {row["first step"] for row in bad} == {str(step) for step in range(NAN_AT, STEPS)}
    for keep in ("#keep-line", "#keep-trend", "#keep-map"):
        with page.page.expect_download() as saved:
            page.page.click(f"{keep} button:has-text('PNG')")
        picture = Path(saved.value.path()).read_bytes()
        assert (
            picture.startswith(b"\x89PNG") and len(picture) > 1000 and saved.value.suggested_filename.endswith(".png")
        )
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.page.click("#keep-map button:has-text('Link')")
    page.reads("^Copied$", "#keep-map button >> nth=0")
    assert page.page.evaluate("navigator.clipboard.readText()") == page.page.url


def test_runs_are_searched_sorted_and_say_who_made_them(page):
    page.page.click("#runs-box summary")
    names = page.page.locator("#runs th[scope=row]")
    page.page.click("#runs th button:has-text('Run')")
    assert names.all_inner_texts() == ["healthy", "planted", "ranks"]
    page.page.click("#runs th button:has-text('Run')")
    assert names.all_inner_texts() == ["ranks", "planted", "healthy"]
    page.page.fill("#search-runs", "Plan")
    assert names.all_inner_texts() == ["planted"]
    page.page.get_by_role("button", name="who made planted").click()
    page.reads("^Who made planted$", "#maker h3 >> nth=0")
    maker = page.text("#maker")
    assert "overflowing.py" in maker and "torch" in maker and '"level": "mix"' in maker
    assert re.search(r"\d+ x \S", maker), "the machine's devices"
    assert re.search(r"NCCL_DEBUG\s+WARN", maker) and "hidden" not in maker and "MY_OWN" not in maker
    page.page.fill("#search-runs", "nothing")
    page.reads("No run is called so", "#no-runs")


def test_panes_are_moved_by_keys_and_by_pointer(page):
    wide = page.page.locator("#map").bounding_box()["width"]
    page.page.focus("#border")
    page.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
    less = page.page.locator("#map").bounding_box()["width"]
    assert less < wide
    box = page.page.locator("#border").bounding_box()
    page.page.mouse.move(box["x"] + box["width"] / 2, 500)
    page.page.mouse.down()
    page.page.mouse.move(1200, 500)
    page.page.mouse.up()
    assert page.page.locator("#map").bounding_box()["width"] > wide
    page.page.reload()
    page.reads("^NaN began", "#verdict")
    assert page.page.locator("#map").bounding_box()["width"] > wide, "the place is kept"


@pytest.mark.parametrize("width", [1600, 1024, 390])
def test_each_width_has_the_answer_before_the_form(opened, four, width):
    page = opened(four[0], width=width, height=844).open("?run=ranks")
    assert not page.scrolls_sideways()
    verdict = page.page.locator("#verdict").bounding_box()
    assert verdict["y"] + verdict["height"] < 200
    form = page.page.locator("#choice")
    assert form.is_visible() == (width > 700)
    if form.is_visible():
        assert form.bounding_box()["y"] > verdict["y"]
    page.keep(f"width_{width}")


def calls(page):
    return int(re.search(r"(\d+) calls", page.text("#graph-say"))[1])


@pytest.mark.timeout(120)
def test_a_run_that_streams_is_followed_without_a_reload(opened, four, tmp_path):
    address, server = four
    config = write_config(tmp_path / "c.json", tmp_path / "dump", level="mix", server=server, run="live")
    hold, go = tmp_path / "hold", tmp_path / "go"
    command = [sys.executable, PROGRAM, "--config", config, "--steps", 9, "--nan-at", 7, "--pace", 0.7]
    command += ["--hold", hold, "--go", go]
    program = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL)
    try:
        while not any(found["run"] == "live" and found["steps"] for found in ask(address, "runs")["answer"]):
            assert program.poll() is None
        page, reader = opened(address), opened(address)
        for each in (page, reader):
            each.page.goto(f"{address}/?run=live")
            each.reads(r"^Clean: .* so far\.$", "#verdict")
            each.reads(r"\d calls?\.$", "#graph-say")
            each.page.evaluate("window.loaded = true")
        step = reader.page.input_value("#graph-step")
        reader.page.focus("#graph-target")
        reader.press("Home")
        chosen = reader.text("#graph-cell")
        # A graph that nobody touched goes where the NaN begins.
        page.reads(r"^NaN began at step 7, ", "#verdict")
        page.reads(r"step 7$", "#record-name")
        page.reads(r"^Torch\.log\.0\.forward; critical; .*it began here$", "#graph-cell")
        assert page.page.input_value("#graph-step") == "7"
        # The other one stays where its reader is, and has the new steps.
        reader.reads(r"^NaN began at step 7, ", "#verdict")
        reader.page.wait_for_selector("#graph-step[max='8']", timeout=20_000)
        assert reader.page.input_value("#graph-step") == step and reader.text("#graph-cell") == chosen
        # The step in progress grows.
        page.page.fill("#graph-step", "8")
        page.press("Enter")
        page.page.wait_for_url(re.compile("graph_step=8"))
        some = calls(page)
        hold.touch()
        page.reads(rf"(?<!\d)(?!{some}\D)\d+ calls\.$", "#graph-say")
        assert calls(page) > some
        page.reads(r"^Torch\.log\.0\.forward; critical", "#graph-cell")
        page.reads(r"^9 steps, ", "#status")
        assert page.page.evaluate("window.loaded"), "the page was never loaded again"
        assert page.page.locator("#live").is_visible()
        go.touch()
        assert program.wait(60) == 0
        page.page.wait_for_selector("#live", state="hidden")
    finally:
        hold.touch()
        go.touch()
        program.wait(60)


def test_names_that_are_html_stay_text(opened, four, tmp_path):
    address, server = four
    hostile = "<img src=x onerror=alert(1)>"
    folder = tmp_path / "step0" / "rank0"
    folder.mkdir(parents=True)
    tensor = {"type": "torch.Tensor", "dtype": hostile, "shape": [2], "Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
    data = {f"Torch.{hostile}.0.forward": {"input_args": [], "input_kwargs": {}, "output": [tensor]}}
    (folder / "dump.json").write_text(
        json.dumps({"task": "statistics", "level": "L1", "dump_data_dir": None, "data": data})
    )
    with Client(server) as client:
        client.import_dump(tmp_path, f"{hostile} run")
    page = opened(address).open()
    page.reads("^<img", "#choice-text")
    page.page.focus("#map")
    page.press("Enter")
    page.reads("^Torch.<img", "#record-name")
    assert page.page.locator("img").count() == 0
    assert hostile in json.dumps(ask(address, "runs"))


def test_of_checksums_alone_nothing_is_called_clean_without_a_word(opened, four, tmp_path):
    address, server = four
    sums = {"summary_mode": "xor"}
    config = write_config(tmp_path / "c.json", tmp_path / "dump", server=server, run="sums", section=sums)
    subprocess.run([sys.executable, PROGRAM, "--config", config, "--steps", "1"], check=True, timeout=60)
    page = opened(address).open("?run=sums")
    page.reads(r"^Clean, as far as was captured: no NaN, no infinity in 1 step of 1 rank, ", "#verdict")
    page.reads(r"Note: no statistics were captured in 1 step of sums: whether anything is NaN", "#verdict")
