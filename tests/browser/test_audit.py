from __future__ import annotations

from playwright.sync_api import expect

from celeriac.sessions.audit import AuditAct, AuditEntry, Way
from tests.browser.conftest import OpenPage
from tests.web.fake_client import NOON, FakeClient

PHONE = {"viewport": {"width": 360, "height": 740}, "has_touch": True}


def fill(fake: FakeClient, sid: str) -> None:
    """One entry of each kind, one with hostile and long words."""
    ways: tuple[Way, ...] = ("page", "api", "cli")
    fake.recorded = [
        AuditEntry(
            id=f"{number}-0-1",
            at=NOON + number * 60_000,
            act=act,
            by=None if act.refused else "Ana",
            role=None if act.refused else "operator",
            way=ways[number % 3],
            address="203.0.113.9",
            session_id=sid,
            call_id="call_" + "0" * 24,
            tool="a_rather_long_tool_name_that_goes_on_and_on_for_a_while",
            detail="no operator's token" if act.refused else "succeeded",
        )
        for number, act in enumerate(AuditAct)
    ]
    hostile = "x" * 300 + "\u202e<img src=x onerror=alert(1)>"
    fake.recorded.append(fake.recorded[0].model_copy(update={"by": "Bo", "detail": hostile}))


def test_the_audit_log_is_readable_and_leads_to_the_session(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = open_page("/approvals")
    fill(fake, sid)
    page.get_by_role("link", name="Audit log").click()
    expect(page.get_by_role("heading", name="Audit log")).to_be_visible()
    assert page.locator(".row").count() == len(fake.recorded)
    assert page.locator("main img").count() == 0
    expect(page.locator(".chip--bad")).to_have_count(2)
    page.get_by_label("Session").fill("ses_nothing")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing is in the log about this session")).to_be_visible()
    page.get_by_role("link", name="Show all").first.click()
    page.get_by_role("link", name=sid).first.click()
    expect(page).to_have_url(f"{page.url.split('/sessions')[0]}/sessions/{sid}")


def test_the_audit_log_on_a_phone(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    fill(fake, sid)
    page = open_page("/audit", **PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
