"""A real browser (the system's Chromium, driven by Playwright) for tests, screenshots and benchmarks of the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from isthmus.errors import Misconfigured

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 100_000
"""Milliseconds that anything in a page may take."""
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


def new_page(browser: Browser, **options: Any) -> Page:
    """A fresh window that is patient: a busy machine takes long for what is a moment otherwise."""
    context = browser.new_context(**options)
    context.set_default_timeout(PATIENCE)
    return context.new_page()


def signed_in(browser: Browser, url: str, token: str, **options: Any) -> Page:
    """A fresh window in which somebody has signed in, as a person does it."""
    page = new_page(browser, base_url=url, **options)
    page.goto("/console/")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in", exact=True).click()
    page.wait_for_url("**/console/")
    return page
