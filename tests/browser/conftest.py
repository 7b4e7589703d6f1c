"""One headless Chromium for all tests here: the machine's own, driven by Playwright."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sparsetorch.runtime.chromium import find_chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=str(find_chromium()))
        yield launched
        launched.close()


@dataclass
class Visit:
    """A page, and everything that went wrong or out while it was looked at."""

    page: Page
    errors: list[str] = field(default_factory=list)
    """Uncaught exceptions, and what the page itself wrote as an error."""
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def visit(browser: Browser) -> Iterator[Any]:
    """`visit(address, width=1280, scheme="light")`."""
    opened: list[Page] = []

    def open_page(address: str, width: int = 1280, scheme: str = "light") -> Visit:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        opened.append(page)
        made = Visit(page)
        page.on("pageerror", lambda error: made.errors.append(str(error)))
        page.on("console", lambda message: made.console.append(f"{message.type}: {message.text}"))
        page.on("request", lambda request: made.requests.append(request.url))
        page.on("dialog", lambda dialog: (made.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.goto(address)
        return made

    yield open_page
    for page in opened:
        page.close()
