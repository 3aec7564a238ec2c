"""msprobe-client report: one file that a browser shows from the disk, without a server and without a network."""

import json
import re
import shutil

import pytest
from conftest import tool
from harness.processes import run
from msprobe_client import Client
from web_pages import BAD_RANK, NAN_AT, PICTURES, STEPS

MOST_BYTES = 2_000_000
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def client():
    return tool("msprobe-client", "run `make build`")


@pytest.fixture(scope="module")
def dumps(four, tmp_path_factory):
    """The runs as dump directories."""
    folder = tmp_path_factory.mktemp("dumps")
    with Client(four[1]) as client:
        for name in ("healthy", "planted", "ranks"):
            client.export(name, folder / name)
    return folder


@pytest.fixture
def shown(chromium):
    """Opens a report with the network off; afterwards nothing was asked for, and the console is empty."""
    from playwright.sync_api import expect

    contexts, said, asked = [], [], []

    def show(file, width=1400):
        context = chromium.new_context(viewport={"width": width, "height": 950}, offline=True, accept_downloads=True)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.goto(f"file://{file}")
        expect(page.locator("html[data-ready]")).to_be_attached(timeout=20_000)
        assert page.inner_text("#status") == ""
        return page

    yield show
    for context in contexts:
        context.close()
    assert said == []
    assert all(url.startswith("file://") for url in asked), asked


def test_two_runs_of_a_server(client, four, shown, tmp_path):
    file = tmp_path / "report.html"
    done = run([client, "--server", four[1], "report", "planted", "healthy", "-o", file])
    assert str(file) in done.stdout and file.stat().st_size < MOST_BYTES
    page = shown(file)
    assert re.match(
        rf"NaN began at step {NAN_AT}, process \d+, torch\.log, overflowing\.py:\d+\.$", page.inner_text("#verdict")
    )
    assert page.inner_text("#divergence").startswith(f"Differs from healthy first at step {NAN_AT}, ")
    assert page.title() == "planted and healthy · msprobe"
    assert "overflowing.py" in page.inner_text("#stack") and page.locator("#stack .own").count() >= 1
    page.locator("#origins button").first.click()
    assert page.inner_text("#record-name").startswith("Torch.log.0.forward · ")
    assert page.locator("#trend .mark-nan").count() == STEPS - NAN_AT
    assert "differ" in page.inner_text("#differences-text") and page.locator("#differences tr").count() > 10
    assert page.locator("#modules li.wrong > details[open] code", has_text="layers").count() >= 1, (
        "open where it is wrong"
    )
    page.focus("#map")
    page.keyboard.press("End")
    assert re.search(rf"step {STEPS - 1}: ", page.inner_text("#cell"))
    page.select_option("#which-map", "1")
    assert "that of healthy" in page.inner_text("#legend")
    with page.expect_download() as saved:
        page.click("#keep-differences button:has-text('CSV')")
    assert saved.value.suggested_filename.endswith(".csv")
    PICTURES.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=PICTURES / "report.png", full_page=True)


def test_directories_need_no_server_of_ones_own(client, dumps, shown, tmp_path):
    file = tmp_path / "report.html"
    run([client, "report", "ranks", "-o", file], cwd=dumps, MSPROBE_SERVER="")
    page = shown(file, width=390)
    assert page.inner_text("#verdict").startswith(f"NaN began at step {NAN_AT}, rank {BAD_RANK}, torch.log, ")
    assert page.title() == "ranks · msprobe"
    assert page.locator("#differences-section").is_hidden()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert page.locator("#which-map option").all_inner_texts() == [f"rank {BAD_RANK}", "all ranks"]
    assert ".uploaded" not in file.read_text(), "it has the directory's name"


def test_names_that_are_html_stay_text(client, dumps, shown, tmp_path):
    rank = tmp_path / "evil" / "step0" / "rank0"
    shutil.copytree(next((dumps / "healthy" / "step0").iterdir()), rank)
    text = (rank / "dump.json").read_text()
    (rank / "dump.json").write_text(text.replace("Torch.relu", f"Torch.{json.dumps(HOSTILE)[1:-1]}"))
    file = tmp_path / "report.html"
    run([client, "report", "evil", dumps / "healthy", "-o", file], cwd=tmp_path, MSPROBE_SERVER="")
    page = shown(file)
    assert page.locator("img").count() == 0
    assert HOSTILE in page.inner_text("#differences")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "gone"], "gone"),
        (["report", "planted", "gone"], "gone"),
        (["report", "./nothing-here"], "nothing-here does not exist"),
        (["report", "planted", "-o", "/proc/report.html"], "/proc"),
        (["report", "planted", "-o", "/tmp"], "/tmp is a directory"),
    ],
)
def test_what_cannot_be_made_is_said_in_a_line_and_leaves_no_file(client, four, tmp_path, words, said):
    done = run([client, "--server", four[1], *words], cwd=tmp_path, check=False)
    assert done.returncode in (2, 3) and said in done.stderr and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
