"""Chromium, and what its pages said and asked for."""

import json
import re
import shutil
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from harness import browser
from harness.dumps import write_config
from harness.processes import external_server, free_port, run
from msprobe_client import Client

RANKS, BAD_RANK = 4, 2
STEPS, NAN_AT = 8, 5
PROGRAM = Path(__file__).parent / "programs" / "overflowing.py"
# Variables of the programs that a run tells of, and some that it does not.
SAID = {"NCCL_DEBUG": "WARN"}
UNSAID = {"NCCL_AUTH": "hidden-1", "MY_OWN": "hidden-2"}
SUMMARY = re.compile(r"\d+ (layer|rank)s?, \d+ tensors? in ")


@pytest.fixture(scope="session")
def chromium():
    with browser.chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def place():
    """A short directory for sockets."""
    folder = Path(f"/tmp/mspw{time.monotonic_ns() % 10**9}")
    folder.mkdir()
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def four(tmp_path_factory):
    """Addresses of a page and of its server: runs healthy, planted, and ranks (four, one with a planted NaN)."""
    folder, port = tmp_path_factory.mktemp("four"), free_port()
    socket = Path(f"/tmp/mspf{time.monotonic_ns() % 10**9}")
    server = f"unix:{socket}"
    with external_server(socket, folder / "data", folder / "log", f"--web_listen=127.0.0.1:{port}"):
        for name, nan_at in (("healthy", -1), ("planted", NAN_AT)):
            config = write_config(folder / f"{name}.json", folder / "dump", level="mix", server=server, run=name)
            run([sys.executable, PROGRAM, "--config", config, "--steps", STEPS, "--nan-at", nan_at], **SAID, **UNSAID)
        with Client(server) as client:
            for name in ("healthy", "planted"):
                client.export(name, folder / name)
            for step in range(STEPS):
                sides = [next((folder / name / f"step{step}").iterdir()) for name in ("healthy", "planted")]
                for rank in range(RANKS):
                    shutil.copytree(sides[rank == BAD_RANK], folder / "ranks" / f"step{step}" / f"rank{rank}")
            client.import_dump(folder / "ranks", "ranks")
        yield f"http://127.0.0.1:{port}", server
    socket.unlink(missing_ok=True)


# Counts the questions of a page that are under way at the same time.
COUNTS_QUESTIONS = """
  window.mostAtOnce = 0;
  const fetched = window.fetch;
  let underWay = 0;
  window.fetch = async (...given) => {
    window.mostAtOnce = Math.max(window.mostAtOnce, ++underWay);
    try {
      return await fetched(...given);
    } finally {
      --underWay;
    }
  };
"""


class Page:
    """A page, all that its console said, and all that it asked for."""

    def __init__(self, browser, address, width=1400, height=950, scheme="light"):
        from playwright.sync_api import expect

        self._expect = expect
        self.address = address
        self.context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.page.add_init_script(f"{{ {COUNTS_QUESTIONS} }}")
        self.said, self.asked = [], []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, query=""):
        self.page.goto(f"{self.address}/{query}")
        self.reads(SUMMARY)
        self.rests()
        return self

    def rests(self, timeout=20_000):
        """All that the page began is shown."""
        self._expect(self.page.locator("#main")).to_have_attribute("aria-busy", "false", timeout=timeout)

    def reads(self, pattern, selector="#status", timeout=20_000):
        self._expect(self.page.locator(selector)).to_have_text(re.compile(pattern), timeout=timeout)

    def counts(self, selector, number, timeout=20_000):
        self._expect(self.page.locator(selector)).to_have_count(number, timeout=timeout)

    def text(self, selector):
        return self.page.inner_text(selector)

    def press(self, *keys):
        for key in keys:
            self.page.keyboard.press(key)

    def keep(self, name, document=None, **part):
        browser.keep_picture(self.page, f"web_page/{name}", document, full_page=True, **part)

    def scrolls_sideways(self):
        return self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")


@pytest.fixture
def opened(chromium):
    pages = []

    def make(address, **options):
        pages.append(Page(chromium, address, **options))
        return pages[-1]

    yield make
    for page in pages:
        most_at_once = page.page.evaluate("window.mostAtOnce")
        page.context.close()
        assert page.said == [], f"the browser's console says {page.said}"
        assert all(url.startswith(page.address) for url in page.asked), "the page loads from elsewhere"
        assert most_at_once <= 3, "the page asks so much at once that the server refuses a second tab"


def ask(address, what, token=None, **parameters):
    """The last line of an answer."""
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    request = urllib.request.Request(f"{address}/api/{what}?{query}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read().splitlines()[-1])


def rank_of(address, run_name):
    return next(one["ranks"][0] for one in ask(address, "runs")["answer"] if one["run"] == run_name)
