"""The page of operations in a real browser: it follows what goes on, in every dress."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from celeriac.sessions.operations import QueueInfo, Reason, ReasonKind, SlowSession
from celeriac.sessions.state import StepName
from tests.browser.conftest import OpenPage
from tests.web.fake_client import FakeClient
from tests.web.fake_operations import NOON


def shot(page: Page, name: str) -> None:
    folder = os.environ.get("CELERIAC_TEST_SCREENSHOTS")
    if folder:
        page.screenshot(path=Path(folder, f"operations-{name}.png"), full_page=True)


@pytest.mark.parametrize("dress", ["light", "dark", "phone"])
def test_it_follows_what_goes_on(open_page: OpenPage, fake: FakeClient, dress: str) -> None:
    size = {"width": 375, "height": 800} if dress == "phone" else {"width": 1000, "height": 900}
    scheme = "dark" if dress == "dark" else "light"
    page = open_page("/operations", viewport=size, color_scheme=scheme)
    expect(page.get_by_text("Everything works: 1 worker")).to_be_visible()
    shot(page, f"{dress}-well")
    reason = Reason(
        kind=ReasonKind.NO_WORKER,
        since=NOON - 60_000,
        step=StepName.CALL_TOOL,
        tool="cancel_order",
        queue="celeriac.slow",
    )
    fake.operations.queues += (QueueInfo(name="celeriac.slow", depth=1, workers=0),)
    fake.operations.slow = (
        SlowSession(
            session_id="ses_000000000000000000000000",
            agent="support",
            title="Where is my order? " * 5,
            updated_at=NOON - 60_000,
            turn_id="t1",
            reasons=(reason,),
        ),
    )
    expect(page.locator(".operations .banner--bad")).to_contain_text(
        "No worker takes the queue celeriac.slow"
    )
    expect(page.get_by_text("not moving")).to_be_visible()
    expect(page.get_by_role("button", name="Stop Where is my order?")).to_be_visible()
    expect(page.get_by_role("img", name="Model calls:")).to_be_visible()
    expect(page.locator("#announce")).to_have_text("1 problem")
    wide = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    assert not wide, "nothing sticks out"
    shot(page, f"{dress}-wrong")
