"""A real browser (the system's Chromium, driven by Playwright) for tests, screenshots and benchmarks of the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isthmus.errors import Misconfigured

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# As root Chromium has no sandbox of its own; small machines have a small /dev/shm.
_FLAGS = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser, until the block is left."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        raise Misconfigured("there is no chromium on this machine; install it with: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def signed_in(browser: Browser, url: str, token: str, **options: Any) -> Page:
    """A fresh window in which somebody has signed in, as a person does it."""
    page = browser.new_context(base_url=url, **options).new_page()
    page.goto("/console/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/console/")
    return page
