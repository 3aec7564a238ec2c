"""Chromium, driven by playwright."""

import base64
import contextlib
import os
import shutil

import pytest

from harness.processes import REPOSITORY

RESULTS = REPOSITORY / "build" / "test-results"
DOCUMENTS = REPOSITORY / "docs" / "pictures"
MOST_BYTES = 150_000


@contextlib.contextmanager
def chromium(*options):
    """A browser, with more options of its command line; a skip where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not here: Debian package chromium")
    api = pytest.importorskip("playwright.sync_api", reason="make test-operate installs it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *options])
        yield browser
        browser.close()


def keep_picture(page, name, document=None, *, full_page=False, of="body", high=None):
    """Writes build/test-results/NAME.png, and with MSPROBE_UPDATE_DOCS docs/pictures/DOCUMENT.webp.

    The latter shows the element `of`, at most `high` CSS pixels of it; by default as much as is seen.
    """
    path = RESULTS / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=path, full_page=full_page)
    if document is None or "MSPROBE_UPDATE_DOCS" not in os.environ:
        return
    box = page.locator(of).bounding_box()
    left, top = page.evaluate("[scrollX, scrollY]")
    high = min(box["height"], high or page.viewport_size["height"])
    clip = {"x": box["x"] + left, "y": box["y"] + top, "width": box["width"], "height": high, "scale": 1}
    session = page.context.new_cdp_session(page)
    for quality in (85, 70, 50, 30):
        how = {"format": "webp", "quality": quality, "clip": clip, "captureBeyondViewport": True}
        picture = base64.b64decode(session.send("Page.captureScreenshot", how)["data"])
        if len(picture) <= MOST_BYTES:
            DOCUMENTS.mkdir(exist_ok=True)
            (DOCUMENTS / f"{document}.webp").write_bytes(picture)
            return
    raise AssertionError(f"{document}: the picture has {len(picture)} bytes, at most {MOST_BYTES}")
