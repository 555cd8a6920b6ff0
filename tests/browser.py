"""A real browser for tests of pages."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def executable() -> str:
    """The browser's program: GEOMATT_BROWSER, or the first that is installed."""
    found = os.environ.get("GEOMATT_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if found:
        return found
    message = "no browser: install Debian's package chromium, or name one in GEOMATT_BROWSER"
    if os.environ.get("GEOMATT_NEEDS_BROWSER") or os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


class Visit:
    """A page as a person sees it, with everything it complains about or asks for."""

    def __init__(self, page, path: Path) -> None:
        self.page, self.problems, self.requests = page, [], []
        page.set_default_timeout(120_000)  # ms; a busy machine can starve a browser for half a minute
        page.on("console", lambda message: self.problems.append(message.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: (self.problems.append(dialog.message), dialog.dismiss()))
        page.goto(path.as_uri())

    def pixels(self, selector: str) -> str:
        """What a canvas shows, after it has been drawn."""
        return self.page.evaluate(
            """(selector) => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
                () => done(document.querySelector(selector).toDataURL()))))""",
            selector,
        )

    def changed(self, selector: str, before: str) -> str:
        """What a canvas shows once it differs from `before`; the same as before if it never does."""
        self._wait(lambda: self.pixels(selector) != before)
        return self.pixels(selector)

    def shows(self, selector: str, picture: str) -> bool:
        """True once a canvas shows a picture; False if it never does."""
        return self._wait(lambda: self.pixels(selector) == picture)

    def _wait(self, condition: Callable[[], bool], seconds: float = 5.0) -> bool:
        end = time.monotonic() + seconds
        while not (met := condition()) and time.monotonic() < end:
            self.page.wait_for_timeout(50)
        return met

    def check(self) -> None:
        """Nothing was reported, and nothing but the file was asked for."""
        assert self.problems == []
        assert [url for url in self.requests if not url.startswith("blob:")] == self.requests[:1]


@contextmanager
def browser() -> Iterator[object]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox"])
        yield started
        started.close()
