from __future__ import annotations

import re
import time

from playwright.sync_api import expect

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.plans import PlanStatus, Todo, TodoStatus
from tests.browser.conftest import OpenPage
from tests.browser.test_session_page import PHONE, live
from tests.web.fake_client import FakeClient


def test_two_questions_are_answered_in_place_each_by_its_own_form(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    chosen = fake.question(sid, "Gift wrap?", "yes", "no")
    written = fake.question(sid, "How many?")
    first, second = page.locator(f"#call-{chosen.id}"), page.locator(f"#call-{written.id}")
    expect(page.locator(".state__sentence")).to_have_text("Waiting for your answers to 2 questions")
    page.evaluate("window.samePage = true")
    second.get_by_label("Your answer").fill("0")
    first.get_by_role("button", name="no").click()
    expect(first.locator(".decision")).to_contain_text("Answered by Ana, ")
    # What was begun in the other card is still there.
    expect(second.get_by_label("Your answer")).to_have_value("0")
    second.get_by_label("Your answer").press("Enter")
    expect(second.locator(".own__answer")).to_have_text("0")
    expect(page.get_by_role("button", name="Send answer")).to_have_count(0)
    assert page.evaluate("window.samePage") is True
    answers = [fake.call(sid, call.id).result for call in (chosen, written)]
    assert answers == ["no", "0"]
    page.reload()
    expect(first.locator(".own__answer")).to_have_text("no")


def test_a_question_answered_elsewhere_says_by_whom(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    asked = fake.question(sid, "Which order?")
    page = live(open_page(f"/sessions/{sid}"))
    card = page.locator(f"#call-{asked.id}")
    # Answered without an event, as when one is lost.
    fake.sessions[sid].calls[asked.id] = asked.model_copy(
        update={
            "status": CallStatus.SUCCEEDED,
            "result": "1001",
            "answered_by": "Bo",
            "settled_at": 1,
        }
    )
    card.get_by_label("Your answer").fill("1002")
    card.get_by_label("Your answer").press("Control+Enter")
    expect(page.locator("#send-problem")).to_have_text("Already answered by Bo.")
    expect(card.locator(".own__answer")).to_have_text("1001")


def test_an_empty_field_is_not_sent_as_an_answer(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    asked = fake.question(sid, "Which order?")
    page = live(open_page(f"/sessions/{sid}"))
    field = page.get_by_label("Your answer")
    field.press("Enter")
    field.press_sequentially("one")
    field.press("Shift+Enter")
    field.press_sequentially("two")
    assert fake.call(sid, asked.id).answered_by is None
    page.get_by_role("button", name="Send answer").click()
    expect(page.locator(".own__answer")).to_have_text("one\ntwo")


def test_a_wait_is_counted_down_and_a_steer_ends_it(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = live(open_page(f"/sessions/{sid}", timezone_id="UTC", locale="en-GB"))
    call = fake.wait(sid, int((time.time() + 3600) * 1000), "the shop opens")
    card = page.locator(f"#call-{call.id}")
    until = card.locator("time")
    expect(until).to_have_text(re.compile(r"^\d\d:\d\d:\d\d, in (1 h 0|59) min( \d+ s)?$"))
    expect(until).to_have_attribute("title", re.compile(r"^\w+day,? .*\d\d:\d\d:\d\d$"))
    before = until.text_content() or ""
    expect(until).not_to_have_text(before)
    expect(page.locator(".state__sentence")).to_have_text(
        re.compile(r"^Waiting until \d\d:\d\d:\d\d$")
    )
    page.get_by_label("Message", exact=True).fill("go on")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Steer now")).to_be_visible()
    expect(card).to_contain_text("Waiting for a time")
    page.get_by_role("button", name="Stop").click()
    expect(card).to_contain_text("Cancelled before its time was over.")


def test_a_draft_is_reviewed_and_executed(open_page: OpenPage, fake: FakeClient) -> None:
    fake.tool_names.append("write_todos")
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    toggle = page.get_by_label("Plan first")
    page.get_by_label("Message", exact=True).fill("plan the garden")
    toggle.check()
    page.reload()
    # A message that was only to be planned must not become one that is done.
    expect(page.get_by_label("Message", exact=True)).to_have_value("plan the garden")
    expect(toggle).to_be_checked()
    live(page)
    page.get_by_label("Message", exact=True).press("Enter")
    expect(toggle).not_to_be_checked()
    expect(page.locator(".state__sentence")).to_have_text("Planning")
    assert fake.sessions[sid].planning
    fake.write_plan(sid, PlanStatus.DRAFT, Todo(title="buy seeds"), Todo(title="sow them"))
    plan = page.locator(".plan")
    expect(plan).to_contain_text("A draft can be executed when this turn has ended.")
    fake.reply(sid, "I propose this.")
    execute = plan.get_by_role("button", name="Execute this plan")
    expect(execute).to_be_visible()
    # It changes without an event; the revision that was seen is not what would run.
    shown = fake.sessions[sid].plan
    assert shown is not None
    fake.sessions[sid].plan = shown.model_copy(update={"revision": 2})
    execute.click()
    expect(page.locator("#send-problem")).to_have_text("The plan has another revision now.")
    expect(plan).to_contain_text("revision 2")
    execute.click()
    expect(page.locator(".message--user").last).to_contain_text("Execute the plan, revision 2:")
    expect(execute).to_have_count(0)
    done = TodoStatus.COMPLETED
    fake.write_plan(sid, PlanStatus.COMPLETED, Todo(title="buy seeds", status=done))
    expect(plan).to_contain_text("Completed")


def test_a_demo_suggestion_is_sent_by_its_button(open_page: OpenPage, fake: FakeClient) -> None:
    sid = fake.create_session(model="demo").session_id
    page = live(open_page(f"/sessions/{sid}"))
    page.get_by_role("button", name="a write that you approve").click()
    expect(page.locator(".message--user")).to_contain_text("/tool cancel_order")


def test_it_all_works_without_scripts(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    chosen, written = fake.question(sid, "Sure?", "yes", "no"), fake.question(sid, "Why?")
    page = open_page(f"/sessions/{sid}", java_script_enabled=False)
    page.locator(f"#call-{chosen.id}").get_by_role("button", name="yes").click()
    expect(page.locator(f"#call-{chosen.id}")).to_contain_text("Answered by Ana")
    page.get_by_label("Your answer").fill("because")
    page.get_by_role("button", name="Send answer").click()
    expect(page.locator(f"#call-{written.id}")).to_contain_text("because")
    fake.reply(sid, "done")
    fake.write_plan(sid, PlanStatus.ACTIVE, Todo(title="sow"))
    page.reload()
    page.get_by_role("button", name="Go on with the plan").click()
    expect(page.locator(".message--user").last).to_contain_text("Execute the plan, revision 1:")


def test_on_a_phone_answers_and_plans_fit_and_are_in_reach(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    fake.tool_names.append("write_todos")
    asked = fake.question(sid, "Which? " + "w" * 300, "x" * 200, "a choice of many words " * 8)
    fake.wait(sid, int((time.time() + 9 * 86_400) * 1000), "r" * 300)
    fake.write_plan(sid, PlanStatus.DRAFT, Todo(title="t" * 200), Todo(title="sow " * 40))
    fake.send_message(sid, "and then this", plan_mode=True)
    page = open_page(f"/sessions/{sid}", **PHONE)
    assert page.locator(".queue__text").evaluate("e => e.getBoundingClientRect().width") > 250
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    buttons = page.locator("main button:visible, main summary:visible")
    heights = buttons.evaluate_all("all => all.map(e => e.getBoundingClientRect().height)")
    assert min(heights) >= 44
    page.locator(f"#call-{asked.id}").get_by_role("button", name="x" * 200).tap()
    expect(page.locator(f"#call-{asked.id}")).to_contain_text("Answered by Ana")
