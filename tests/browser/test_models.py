from __future__ import annotations

from playwright.sync_api import expect

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Role, Usage
from tests.browser.conftest import OpenPage
from tests.browser.test_session_page import PHONE, live
from tests.web.fake_client import FakeClient
from tests.web.test_model_pages import USED, add


def test_another_model_is_chosen_for_the_next_message_and_stays(
    open_page: OpenPage, fake: FakeClient
) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    page.get_by_label("Model").select_option("demo/slow")
    page.get_by_label("Message", exact=True).fill("tell me")
    page.keyboard.press("Enter")
    expect(page.locator(".state__facts").first).to_contain_text("demo/slow")
    expect(page.get_by_label("Model")).to_have_value("")
    expect(page.locator("#model option").first).to_have_text("demo/slow")
    assert fake.sessions[sid].model == "demo/slow"


def test_a_choice_outlives_the_reading_of_the_page(open_page: OpenPage, fake: FakeClient) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    page.get_by_label("Model").select_option("demo/slow")
    fake.reply(sid, "Something happened meanwhile.")
    expect(page.locator(".transcript")).to_contain_text("happened meanwhile")
    expect(page.get_by_label("Model")).to_have_value("demo/slow")


def test_what_an_answer_took_is_folded_under_it(open_page: OpenPage, fake: FakeClient) -> None:
    sid = fake.create_session().session_id
    fake.send_message(sid, "Sum it up, please.")
    both = USED.of_one_call().plus(Usage().of_one_call())
    facts = {"model": "openai/gpt-5-mini", "usage": USED, "first_token_ms": 420}
    facts |= {"latency_ms": 2140, "finish_reason": "stop", "turn_usage": both}
    add(fake, sid, Role.ASSISTANT, text="It is all there.", **facts)
    failed = {"failure": FailureKind.QUOTA, "turn_usage": USED.of_one_call()}
    add(fake, sid, Role.NOTICE, text="This turn failed: OpenAI: no quota.", **failed)
    page = open_page(f"/sessions/{sid}")
    expect(page.get_by_text("Whole turn")).to_be_hidden()
    page.get_by_text("openai/gpt-5-mini · 1,500 tokens").click()
    expect(page.get_by_text("Whole turn")).to_be_visible()
    expect(page.get_by_text("no money or quota left")).to_be_visible()


def test_the_composer_fits_a_phone(open_page: OpenPage, fake: FakeClient) -> None:
    sid = fake.create_session().session_id
    page = open_page(f"/sessions/{sid}", **PHONE)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 375
    expect(page.get_by_label("Model")).to_be_visible()
