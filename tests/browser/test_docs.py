"""The `/docs` page in a real browser, against a real gateway, with nothing but the gateway in reach."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.gateway import ECHO, TOKEN, Gateway

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian: apt install chromium)"),
    # Playwright's own loop outlives its context manager by a moment.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser.new_page()
        finally:
            browser.close()


def test_a_person_shows_the_token_and_calls_a_tool(page: Page, gateway: Callable[..., Gateway]) -> None:
    one = gateway()
    one.write("demo", "tools.py", ECHO)
    one.start()
    one.settled()
    requested: list[str] = []
    problems: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)

    page.goto(f"{one.url}/docs")
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Show the tools").click()
    page.get_by_text("Give back what was given.").first.click()
    page.locator("textarea.body-param__text").fill('{"text": "from a browser"}')
    page.get_by_role("button", name="Execute").click()
    expect(page.locator(".live-responses-table").get_by_text('"from a browser"').first).to_be_visible()

    assert {record["tool"] for record in one.audit()} == {"echo"}
    assert [url for url in requested if not url.startswith((one.url, "data:"))] == []
    assert problems == []


def test_a_wrong_token_is_said_so(page: Page, gateway: Callable[..., Gateway]) -> None:
    one = gateway().start()
    page.goto(f"{one.url}/docs")
    page.get_by_label("Token").fill("not the token")
    page.get_by_role("button", name="Show the tools").click()
    expect(page.get_by_role("alert")).to_contain_text("token")
    assert "not the token" not in page.content()
