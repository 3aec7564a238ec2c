"""The server's page in a real browser: seen, clicked and typed into, without a complaint of the browser."""

import json
import re
import statistics
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from harness.dumps import write_config
from harness.processes import REPOSITORY, external_server, free_port, run
from web_pages import SUMMARY, Page, ask, rank_of

RUN, OTHER = "planted", "healthy"
STEPS, NAN_AT = 12, 6
TOKEN = "0123456789abcdef0123456789abcdef"
LARGE_STEPS, LAYERS, LARGE_NAN = 10_000, 500, (7_321, 333)  # step and layer of the NaN
NARROW = 360


@pytest.fixture(scope="module")
def served(place, tmp_path_factory):
    """Address of a page with two runs, of which one has a NaN planted."""
    folder, port = tmp_path_factory.mktemp("web"), free_port()
    program = Path(__file__).parent / "programs" / "overflowing.py"
    with external_server(place / "s", folder / "data", folder / "log", f"--web_listen=127.0.0.1:{port}"):
        for name, nan_at in ((OTHER, -1), (RUN, NAN_AT)):
            config = write_config(
                folder / f"{name}.json", folder / "dump", level="mix", server=f"unix:{place / 's'}", run=name
            )
            run([sys.executable, program, "--config", config, "--steps", STEPS, "--nan-at", nan_at, "--log"])
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(scope="module")
def large(place, tmp_path_factory):
    """Address of a page with one run of 10,000 steps and 500 layers."""
    program = REPOSITORY / "build" / "server" / "web" / "layered_store"
    if not program.exists():
        pytest.skip("layered_store is not built: run `make build`")
    folder, port = tmp_path_factory.mktemp("large"), free_port()
    run([program, folder / "data", LARGE_STEPS, LAYERS, *LARGE_NAN])
    with external_server(place / "l", folder / "data", folder / "log", f"--web_listen=127.0.0.1:{port}"):
        yield f"http://127.0.0.1:{port}"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("query", ["?run=deleted", f"?run={RUN}&golden=deleted"])
def test_an_address_of_a_run_that_is_gone_says_so_and_shows_no_other(opened, served, query):
    page = opened(served)
    page.page.goto(f"{served}/{query}")
    page.reads(r"^The run deleted is not on this server: it was deleted, or never streamed here\.")
    assert page.page.input_value("#run") == ("" if query == "?run=deleted" else RUN)
    page.page.select_option("#run", OTHER)
    page.reads(SUMMARY)


@pytest.mark.timeout(180)
def test_a_nan_is_found_from_the_time_line_to_its_stack(opened, served):
    page = opened(served).open(f"?run={RUN}")
    assert page.text("#status").startswith(f"{STEPS} steps")
    first = page.page.locator("#origins button").first
    assert re.match(rf"step {NAN_AT}, process \d+: NaN in Torch\.log\.0\.forward\.output", first.inner_text())
    first.click()
    page.reads(rf"^Torch\.log\.0\.forward at step {NAN_AT}\.$")
    assert re.match(rf"Torch\.log\.0\.forward · process \d+ · step {NAN_AT}$", page.text("#record-name"))
    assert page.page.locator("#tensors-of-record td.bad").count() >= 1
    trend = page.page.locator("#trend svg")
    assert f"over steps {NAN_AT} to {STEPS - 1}" in trend.get_attribute("aria-label"), "the log runs from then on"
    assert page.page.locator("#trend .mark-nan").count() == STEPS - NAN_AT
    assert "overflowing.py" in page.text("#stack") and "torch.log(y" in page.text("#stack")
    page.keep("record")
    page.page.select_option("#scalars", "loss")
    page.reads(r"Torch\.log\.0.*loss", "#trend-name")
    assert page.page.locator("#trend path.line").count() == 1, "that of the loss: the tensor is NaN throughout"


@pytest.mark.timeout(180)
def test_the_map_shows_the_nan_in_its_layer_and_step(opened, served):
    page = opened(served).open(f"?run={RUN}")
    answer = page.page.evaluate(
        """async ([run, rank]) => {
          const { ask } = await import("/server.js"), { columnOf } = await import("/map.js");
          const { answer } = await ask("heat_map", { run, rank, statistic: "norm", tensors: "*.forward*.output*" });
          const values = columnOf(Float32Array, answer.values), wide = answer.columns.length;
          const first = (row) => answer.columns.findIndex((_, at) => Number.isNaN(values[row * wide + at]));
          return { nan: answer.layers.map((layer, row) => [layer, first(row)]), columns: answer.columns };
        }""",
        [RUN, rank_of(served, RUN)],
    )
    assert answer["columns"] == [[step, step] for step in range(STEPS)]
    began = dict(answer["nan"])
    assert began["layers.2"] == NAN_AT and began["layers.3"] == NAN_AT, "it is passed on"
    assert began["layers.0"] == -1 and began["layers.1"] == -1
    # The picture shows the answer: the cell's pixel has the colour of NaN.
    page.page.focus("#map")
    row = [layer for layer, _ in answer["nan"]].index("layers.2")
    page.press(*["ArrowDown"] * row, *["ArrowRight"] * NAN_AT)
    page.reads(rf"^layers\.2, step {NAN_AT}: NaN at step {NAN_AT} in ", "#cell")
    colour = page.page.evaluate(
        """() => {
          const map = document.querySelector("#map"), box = map.nextElementSibling.getBoundingClientRect();
          const of = map.getBoundingClientRect(), ratio = map.width / of.width;
          const at = [(box.left + box.width / 2 - of.left) * ratio, (box.top + box.height / 2 - of.top) * ratio];
          const found = [...map.getContext("2d").getImageData(...at, 1, 1).data].slice(0, 3);
          const wanted = getComputedStyle(document.documentElement).getPropertyValue("--nan").trim();
          return [found.map((part) => part.toString(16).padStart(2, "0")).join(""), wanted.slice(1)];
        }"""
    )
    assert colour[0] == colour[1]
    page.keep("map")


@pytest.mark.timeout(180)
def test_it_is_used_by_keyboard_alone(opened, served):
    page = opened(served).open(f"?run={RUN}")
    for _ in range(60):
        page.press("Tab")
        if page.page.evaluate("document.activeElement.id") == "map":
            break
    assert page.page.evaluate("document.activeElement.id") == "map"
    page.press("End")
    page.reads(rf"step {STEPS - 1}: ", "#cell")
    page.press("Home", "ArrowRight", "ArrowDown")
    page.reads("step 1: ", "#cell")
    page.press("Enter")
    page.reads(r" at step 1\.$")
    assert page.page.evaluate("document.activeElement.id") == "h-record"
    assert page.page.locator("#tensors-of-record tr").count() > 1
    page.page.focus("#map")
    page.press("+")
    page.reads(r"^[1-9] steps, ")
    page.press("0")
    page.reads(rf"^{STEPS} steps, ")
    # A name in the table leads to that tensor's trend.
    page.page.focus("#tensors-of-record button")
    page.press("Enter")
    page.reads(r"\.(input|output)\.0 ", "#trend-name")
    for selector in ("#map", "#line", "#trend svg"):
        assert len(page.page.locator(selector).get_attribute("aria-label")) > 10


@pytest.mark.timeout(180)
def test_a_difference_of_two_runs(opened, served):
    page = opened(served, scheme="dark").open(f"?run={RUN}")
    page.page.select_option("#golden", OTHER)
    page.reads("that of healthy", "#legend")
    page.reads(SUMMARY)
    page.page.focus("#map")
    page.reads(r"step 0: 0 at", "#cell")  # the same seed gives the same numbers
    assert f"golden={OTHER}" in page.page.url
    page.page.locator("#origins button").first.click()
    page.reads(r"^Torch\.log")
    assert "healthy" in page.text("#trend"), "both runs are in the plot"
    page.keep("difference_dark")


@pytest.mark.timeout(180)
def test_a_narrow_screen_needs_no_scrolling_sideways(opened, served):
    page = opened(served, width=NARROW, height=740).open(f"?run={RUN}")
    assert not page.scrolls_sideways()
    page.page.click("#runs-box summary")
    page.page.locator("#origins button").first.click()
    page.reads(r"^Torch\.log")
    assert not page.scrolls_sideways()
    page.keep("narrow")


@pytest.mark.timeout(180)
def test_runs_are_listed_and_chosen(opened, served):
    page = opened(served).open()
    page.page.click("#runs-box summary")
    rows = page.page.locator("#runs tr")
    assert rows.count() == 3
    assert rows.nth(1).inner_text().startswith(RUN), "the latest first"
    page.page.get_by_role("button", name=OTHER, exact=True).click()
    page.reads(r"^Clean: no NaN, no infinity in ", "#verdict")
    page.reads(SUMMARY)
    assert f"run={OTHER}" in page.page.url


@pytest.mark.timeout(180)
def test_a_large_run_stays_responsive(opened, large):
    began = time.perf_counter()
    page = opened(large).open()
    shown = time.perf_counter() - began
    assert page.text("#status").startswith("10 000 steps, 500 layers")
    # Frames in which a key moves the cursor, beside frames in which nothing happens.
    page.page.focus("#map")
    frames = page.page.evaluate(
        """async () => {
          const map = document.querySelector("#map");
          const key = new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true });
          const measure = async (work) => {
            const times = [];
            for (let i = 0, before = await new Promise(requestAnimationFrame); i < 60; ++i) {
              work();
              const now = await new Promise(requestAnimationFrame);
              times.push(now - before);
              before = now;
            }
            return times;
          };
          return { still: await measure(() => {}), moved: await measure(() => map.dispatchEvent(key)) };
        }"""
    )
    still, moved = statistics.median(frames["still"]), statistics.median(frames["moved"])
    page.reads(r"steps [1-9]", "#cell")
    page.keep("large")
    # The NaN is one of five million values; the picture has it at its place all the same.
    rank = rank_of(large, "large")
    question = {"run": "large", "rank": rank, "tensors": "*", "columns": 400, "rows": 320}
    times, answers = {}, {}
    for name, last in (("tenth", LARGE_STEPS // 10 - 1), ("whole", LARGE_STEPS - 1)):
        before = time.perf_counter()
        answers[name] = ask(large, "heat_map", last=last, **question)["answer"]
        times[name] = time.perf_counter() - before
    sizes = {name: len(json.dumps(answer)) for name, answer in answers.items()}
    print(f"whole page shown in {shown:.2f} s; heat map answered in {times['whole']:.2f} s, a tenth of its steps in")
    print(f"{times['tenth']:.2f} s; {sizes['whole']} bytes; frames {still:.1f} ms still, {moved:.1f} ms moving")
    assert moved < 2 * still, "moving the cursor drops frames"
    assert sizes["whole"] < 1.5 * sizes["tenth"], "an answer grows with the picture, not with the run"
    origins = ask(large, "origins", run="large")["answer"]
    assert [(found["step"], found["module"]) for found in origins] == [(LARGE_NAN[0], f"layers.{LARGE_NAN[1]}")]
    page.page.locator("#origins button").first.click()
    page.reads(rf"at step {LARGE_NAN[0]}\.$")
    assert page.page.locator("#trend .mark-nan").count() == 1


@pytest.mark.timeout(180)
def test_a_token_is_asked_for(chromium, tmp_path, short_directory):
    port = free_port()
    (tmp_path / "tokens").write_text(f"read dashboard {TOKEN}\nwrite trainers {TOKEN[::-1]}\n")
    flags = (f"--web_listen=127.0.0.1:{port}", f"--tokens={tmp_path / 'tokens'}")
    address = f"http://127.0.0.1:{port}"
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "log", *flags):
        for token, status in ((None, 401), ("f" * 32, 401), (TOKEN[::-1], 403)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(address, "runs", token)
            assert refused.value.code == status
        assert ask(address, "runs", TOKEN)["answer"] == []
        page = Page(chromium, address)
        page.page.goto(address)
        page.reads("asks for a token")
        page.page.fill("#token", "f" * 32)
        page.press("Enter")
        page.reads("does not know the token")
        page.keep("token")
        page.page.fill("#token", TOKEN)
        page.press("Enter")
        page.reads("No program has streamed")
        page.page.reload()
        page.reads("No program has streamed")  # the tab keeps it
        assert TOKEN not in page.page.url and page.context.cookies() == []
        assert page.page.evaluate("Object.keys(localStorage).length") == 0
        page.page.click("#forget")
        page.reads("asks for a token")
        # The browser's own lines about the two refusals, and nothing else.
        assert all("401 (Unauthorized)" in said for said in page.said)
        page.context.close()


@pytest.mark.timeout(60)
def test_https_with_the_servers_certificate(tmp_path, short_directory):
    making = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=msprobe "
        "-addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.pem"
    )
    run(making.split(), cwd=tmp_path)
    port = free_port()
    flags = (f"--web_listen=0.0.0.0:{port}", f"--tls_cert={tmp_path / 'server.pem'}")
    flags += (f"--tls_key={tmp_path / 'server.key'}",)
    with external_server(short_directory / "s", tmp_path / "data", tmp_path / "log", *flags):
        page = run(["curl", "--silent", "--cacert", tmp_path / "server.pem", f"https://127.0.0.1:{port}/"]).stdout
        assert page.startswith("<!doctype html>")
        plain = run(["curl", "--silent", f"http://127.0.0.1:{port}/"], check=False)
        assert plain.returncode != 0


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--web_listen=0.0.0.0:8080"], ["--web_listen=0.0.0.0:8080", "--insecure"]),
        (["--web_listen=8080"], ["--web_listen=8080", "host:port"]),
        (["--web_listen=unix:/tmp/x"], ["host:port"]),
        (["--web_listen=0.0.0.0:8080", "--insecure", "--tokens={}"], ["--web_listen=0.0.0.0:8080", "tokens"]),
    ],
)
def test_the_page_listens_only_where_it_may(server_binary, tmp_path, flags, words):
    (tmp_path / "tokens").write_text(f"read dashboard {TOKEN}\n")
    given = [flag.replace("{}", str(tmp_path / "tokens")) for flag in flags]
    done = run([server_binary, "--check_config", f"--data_dir={tmp_path / 'data'}", *given], check=False)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


def test_it_is_a_setting_as_the_others_are(server_binary, tmp_path):
    (tmp_path / "server.conf").write_text(f"web_listen = 127.0.0.1:8081\ndata_dir = {tmp_path / 'data'}\n")
    command = [server_binary, "--check_config", f"--config={tmp_path / 'server.conf'}"]
    assert f"web_listen = 127.0.0.1:8081   ({tmp_path / 'server.conf'})" in run(command).stdout
    told = run(command, MSPROBE_WEB_LISTEN="127.0.0.1:8082").stdout
    assert "web_listen = 127.0.0.1:8082   (MSPROBE_WEB_LISTEN)" in told
