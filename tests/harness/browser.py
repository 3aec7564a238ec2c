"""Chromium, driven by playwright."""

import contextlib
import shutil

import pytest


@contextlib.contextmanager
def chromium():
    """A browser; a skip where there is none."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("chromium is not here: Debian package chromium")
    api = pytest.importorskip("playwright.sync_api", reason="make test-operate installs it")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
