"""The pages of both plugins for graph databases, used as a person does: each has its own way to the same things."""

import re

import pytest
from harness.browser import keep_picture

WAIT_MS = 20_000


class PluginPage:
    """A page that shows two graphs. Nodes are named as in the database; "NPU" and "Bench" are the sides."""

    def __init__(self, browser, board):
        self.context = browser.new_context(viewport={"width": 1600, "height": 1100})
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.expect = pytest.importorskip("playwright.sync_api").expect
        self.expect.set_options(timeout=WAIT_MS)
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(board.page)
        self.frame = self.page.frame_locator("iframe")
        for side in ("NPU", "Bench"):
            self.shows(side, "DefaultModel")

    def node(self, side, name):
        return self.frame.locator(f'rect.inner-rect[name="{side[0]}___{name}"]')

    def shows(self, side, *names):
        for name in names:
            self.expect(self.node(side, name)).to_be_attached()

    def has_colour(self, name, colour):
        self.expect(self.node("NPU", name)).to_have_attribute("fill", re.compile(colour, re.I))

    def keep(self, name, document=None):
        keep_picture(self.page, f"graph_plugins/{name}", document)

    def expand(self, side, name):
        self.node(side, name).dblclick(force=True)

    def select(self, side, name):
        self.node(side, name).click(force=True)

    def reads(self, *texts):
        """Somewhere in sight."""
        for text in texts:
            self.expect(self.frame.get_by_text(text).locator("visible=true").first).to_be_visible()


class OlderPage(PluginPage):
    """tb-graph-ascend's."""

    def __init__(self, browser, board):
        super().__init__(browser, board)
        self.frame.locator(".language-button").click()
        self.reads("Accuracy Error")

    def opens_stack(self, text):
        self.frame.get_by_role("tab", name="Node Information").click()
        self.expect(self.frame.locator("textarea").first).to_have_value(re.compile(text))

    def search(self, name):
        self._tab("function")
        self._choose("Node List", name)

    def filter_critical(self, number):
        """The page has no words beside the levels."""
        self._tab("Settings")
        self.frame.locator("tf-color-select vaadin-icon[icon='vaadin:exchange']").locator("visible=true").click()
        for _ in range(2):  # it reads the box before the click has changed it
            self.frame.locator("#overflowCheckbox-2").click(position={"x": 5, "y": 5})
        self.reads(f"Overflow Filter Node({number})")

    def part(self, name):
        self._tab("function")
        self._choose("Debug(", name, nth=1)
        self._choose("Bench(", name, nth=1)
        self.frame.get_by_role("button", name="Cancel Matching").click()

    def match(self, name):
        self._choose("Debug(", name, nth=0)
        self._choose("Bench(", name, nth=0)
        self.frame.get_by_role("button", name="Click to match").click()

    def counts_unmatched(self, number):
        self.reads(f"Debug({number})", f"Bench({number})")

    def _tab(self, name):
        self.frame.get_by_role("button", name=name).click()

    def _choose(self, label, name, nth=0):
        box = self.frame.get_by_label(label).nth(nth)
        box.fill(name)
        box.press("ArrowDown")
        box.press("Enter")


class NewerPage(PluginPage):
    """That of mindstudio-probe 26."""

    def opens_stack(self, text):
        self.frame.get_by_role("tab", name="Node Information").click()
        self.reads(text)

    def search(self, name):
        self._panel("search")
        self.frame.get_by_placeholder("Search by Name").fill(name)
        self.frame.get_by_text(name, exact=True).locator("visible=true").first.click()

    def filter_critical(self, number):
        self._panel("appstore")
        self.frame.locator("label", has_text="Overflow").click()
        self.frame.locator("label", has_text="Critical").click()
        self.reads(f"Node List({number})")

    def part(self, name):
        self._panel("node-index")
        self._choose("Matched", name)
        self.frame.get_by_role("button", name="Unmatch Nodes").click()

    def match(self, name):
        self._choose("Unmatched", name)
        self.frame.get_by_role("button", name="Match Nodes", exact=True).click()

    def counts_unmatched(self, number):
        self.reads(f"Debug-Unmatched({number})", f"Bench-Unmatched({number})")

    def _panel(self, icon):
        self.frame.locator(f"aside .anticon-{icon}").first.click()

    def _choose(self, state, name):
        for side in ("debug", "bench"):
            box = self.frame.get_by_test_id(f"{side}{state}Select").get_by_role("combobox")
            box.fill(name)
            box.press("Enter")
