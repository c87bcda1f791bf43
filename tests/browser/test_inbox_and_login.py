from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.settings import Settings
from celeriac.web.auth import issue_login_code
from tests.browser.conftest import OpenPage
from tests.web.fake_client import FakeClient


def test_the_inbox_decides_in_place_and_moves_on(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    first, second = fake.ask(sid), fake.ask(sid, tool="refund")
    page = open_page("/approvals")
    assert page.title().startswith("(2)")
    page.locator(f"#call-{first.id}").get_by_role("button", name="Approve").click()
    expect(page.locator(f"#call-{first.id}")).to_have_count(0)
    expect(page.locator(f"#call-{second.id}")).to_be_focused()
    page.keyboard.press("r")
    expect(page.get_by_text("Nothing needs you", exact=True).first).to_be_visible()
    assert page.title().startswith("Approvals")
    assert fake.call(sid, first.id).status is CallStatus.RUNNING
    assert fake.call(sid, second.id).status is CallStatus.REJECTED


def test_an_unknown_outcome_is_marked_in_the_inbox(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    call = fake.ask(sid, status=CallStatus.OUTCOME_UNKNOWN)
    page = open_page("/approvals")
    page.get_by_role("button", name="It happened").click()
    expect(page.locator(".card")).to_have_count(0)
    assert fake.call(sid, call.id).status is CallStatus.SUCCEEDED


def test_a_login_link_logs_in_when_its_button_is_pressed(
    chromium: Browser, address: str, tmp_path: Path
) -> None:
    code = issue_login_code(Settings(data_dir=tmp_path))
    page = chromium.new_context(base_url=address).new_page()
    page.goto(f"/login?code={code}")
    page.get_by_role("button", name="Log in here").click()
    expect(page.get_by_role("link", name="Approvals")).to_be_visible()
    assert code not in page.url
    assert page.evaluate("document.cookie") == ""
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log in")).to_be_visible()
    page.context.close()
