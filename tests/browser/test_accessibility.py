"""Every page before axe: in light, in dark, and on a phone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage
from tests.browser.every_page import fill_pages
from tests.browser.test_session_page import PHONE, live
from tests.node_tools import needs_node_tools
from tests.web.fake_client import FakeClient

pytestmark = pytest.mark.timeout(180)

AXE = Path(__file__).parents[1] / "node" / "node_modules" / "axe-core" / "axe.min.js"
DRESSES: dict[str, dict[str, object]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"color_scheme": "light", **PHONE},
}
RUN_AXE = """() => axe.run(document, {resultTypes: ["violations"]}).then(found => found.violations.flatMap(
  rule => rule.nodes.map(node => `${rule.impact} ${rule.id}: ${node.html}: ${node.failureSummary}`)))"""


def findings(page: Page) -> list[str]:
    """What axe finds wrong. It comes in by the debugger, so the page's own policy stays in force."""
    page.evaluate(AXE.read_text())
    found: list[str] = page.evaluate(RUN_AXE)
    return found


def look_at(page: Page, name: str, dress: str) -> list[str]:
    for folded in page.locator("main details").all():
        folded.evaluate("details => { details.open = true }")
    folder = os.environ.get("CELERIAC_TEST_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"{name}-{dress}.png"), full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
    return [f"{name}: {one}" for one in findings(page)] + [f"{name}: sticks out"] * wide


@needs_node_tools
@pytest.mark.parametrize("dress", DRESSES)
def test_axe_finds_nothing_wrong_with_any_page(
    chromium: Browser, address: str, open_page: OpenPage, fake: FakeClient, dress: str
) -> None:
    found: list[str] = []
    page = open_page("/approvals", **DRESSES[dress])
    found += look_at(page, "approvals-none", dress)
    page.goto("/sessions")
    found += look_at(page, "sessions-none", dress)
    for name, path in fill_pages(fake).items():
        page.goto(path)
        if name in {"calls", "asking", "new-session"}:
            live(page)
        found += look_at(page, name, dress)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    found += look_at(page, "keys", dress)
    fake.down = True
    page.goto("/sessions")
    found += look_at(page, "store-down", dress)
    fake.down = False
    stranger = chromium.new_context(base_url=address, **DRESSES[dress]).new_page()  # type: ignore[arg-type]
    stranger.goto(f"/sessions/{next(iter(fake.sessions))}")
    found += look_at(stranger, "no-access", dress)
    stranger.context.close()
    assert found == []
