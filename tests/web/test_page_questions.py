"""Cards of questions, waits and plans, as pages without scripts."""

from __future__ import annotations

import re

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.calls import DID_NOT_RUN, CallStatus, LateResult, ToolEffect
from celeriac.sessions.plans import PlanStatus, Todo, TodoStatus
from tests.web.conftest import MakeApp, operators
from tests.web.fake_client import NOON, FakeClient
from tests.web.test_pages import csrf, log_in


@pytest.fixture
def browser(make_app: MakeApp) -> FlaskClient:
    setting = operators("Ana:operator:t", "Vi:viewer:v")
    return log_in(make_app(operators=setting).test_client(), "t")


@pytest.fixture
def viewer(browser: FlaskClient) -> FlaskClient:
    return log_in(browser.application.test_client(), "v")


def page_text(browser: FlaskClient, sid: str) -> str:
    """The words of the page, as a person reads them."""
    html = browser.get(f"/sessions/{sid}").text.split("<main")[1]
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_a_question_is_answered_by_a_text_or_by_a_choice(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    token = csrf(browser)
    open_question = fake.question(sid, "Which <order>?")
    choice = fake.question(sid, "Sure?", "yes, all of it", "no")
    html = browser.get(f"/sessions/{sid}").text
    assert "Which &lt;order&gt;?" in html
    assert html.count('class="answer"') == 2
    assert "Waiting for your answers to 2 questions" in html
    form = {"csrf_token": token, "answer": "1001\r\nand 1002"}
    path = f"/sessions/{sid}/calls/{{}}/answer"
    assert browser.post(path.format(open_question.id), data=form).status_code == 303
    assert fake.call(sid, open_question.id).result == "1001\nand 1002"
    for number in ("2", "-1", "x", ""):
        refused = browser.post(path.format(choice.id), data={"csrf_token": token, "choice": number})
        assert (refused.status_code, fake.call(sid, choice.id).answered_by) == (400, None)
    chosen = browser.post(path.format(choice.id), data={"csrf_token": token, "choice": "0"})
    assert chosen.status_code == 303
    text = page_text(browser, sid)
    assert "Sure? yes, all of it Answered by Ana, " in text
    assert "awaiting_answer" not in text
    again = browser.post(path.format(choice.id), data={"csrf_token": token, "choice": "0"})
    assert again.status_code == 409
    assert "Already answered by Ana." in again.text


def test_a_refused_answer_keeps_its_text(browser: FlaskClient, fake: FakeClient, sid: str) -> None:
    first, second = fake.question(sid, "A?"), fake.question(sid, "B?")
    form = {"csrf_token": csrf(browser), "answer": "long " * 300}
    answer = browser.post(f"/sessions/{sid}/calls/{second.id}/answer", data=form)
    assert answer.status_code == 413
    fields = dict(re.findall(r'<textarea id="answer-([^"]+)"[^>]*>([^<]*)<', answer.text))
    assert fields == {first.id: "", second.id: form["answer"]}


@pytest.mark.parametrize(
    ("result", "shown"), [(False, "no"), (0, "0"), ("", "(empty)"), ({"a": 1}, '&#34;a&#34;: 1')]
)  # fmt: skip
def test_falsy_answers_are_shown(
    browser: FlaskClient, fake: FakeClient, sid: str, result: object, shown: str
) -> None:
    asked = fake.question(sid, "Well?")
    fake.change(
        sid, asked.id, status=CallStatus.SUCCEEDED, result=result, answered_by="Bo", settled_at=NOON
    )
    text = page_text(browser, sid)
    assert f"Well? {shown}" in text or shown in text
    assert "Answered by Bo, " in text


def test_who_may_only_read_sees_no_form(
    viewer: FlaskClient, browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    asked = fake.question(sid, "Sure?", "yes", "no")
    html = viewer.get(f"/sessions/{sid}").text
    assert "Somebody who may write to this session can answer." in html
    assert 'class="answer"' not in html
    form = {"csrf_token": csrf(viewer), "choice": "0"}
    assert viewer.post(f"/sessions/{sid}/calls/{asked.id}/answer", data=form).status_code == 403
    assert browser.post(f"/sessions/{sid}/calls/{asked.id}/answer", data={"choice": "0"}).status_code == 403  # fmt: skip
    fake.reply(sid, "done")
    fake.write_plan(sid, PlanStatus.DRAFT, Todo(title="sow"))
    assert "Execute this plan" not in viewer.get(f"/sessions/{sid}").text
    form = {"csrf_token": csrf(viewer), "revision": "1"}
    assert viewer.post(f"/sessions/{sid}/plan/execute", data=form).status_code == 403


def test_a_wait_says_until_when_why_and_what_ends_it(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    call = fake.wait(sid, NOON + 600_000, "the shop opens")
    text = page_text(browser, sid)
    assert "Waiting until 30 Nov 2026, 12:10:00 UTC" in text
    assert "the shop opens Until 30 Nov 2026, 12:10:00 UTC" in text
    assert "Steer now beside the message, or Stop , does." in text
    assert "Needs" not in text
    fake.change(sid, call.id, status=CallStatus.SUCCEEDED, waits_until=None, settled_at=NOON)
    text = page_text(browser, sid)
    assert "Time is over" in text
    assert "It was over at 30 Nov 2026, 12:00:00 UTC" in text


def test_an_approval_says_when_it_expires_and_an_expired_one_was_not_run(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    call = fake.ask(sid, waits_until=NOON + 60_000)
    for html in (browser.get(f"/sessions/{sid}").text, browser.get("/approvals").text):
        assert "Expires <time" in html
        assert "Without a decision it is not run." in html
    error = f"{DID_NOT_RUN}its approval expired after 60 s without a decision"
    fake.change(sid, call.id, status=CallStatus.FAILED, error=error, waits_until=None)
    text = page_text(browser, sid)
    assert "Not run: its approval expired after 60 s without a decision" in text
    assert "Rejected" not in text
    assert "Failed" not in text


CANCELLED = [
    (CallStatus.AWAITING_ANSWER, 0, "Cancelled before anybody answered."),
    (CallStatus.AWAITING_TIMER, 0, "Cancelled before its time was over."),
    (CallStatus.AWAITING_APPROVAL, 0, "Cancelled while it waited for approval; it did not run."),
    (CallStatus.AWAITING_APPROVAL, 1, "Cancelled before it gave a result."),
    (CallStatus.PENDING, 0, "Cancelled before it ran."),
    (CallStatus.RETRYING, 2, "Cancelled before it gave a result."),
    (None, 0, "Cancelled before it ran."),
]


@pytest.mark.parametrize("case", CANCELLED)
def test_dh_08_a_cancelled_call_says_where_it_was(
    browser: FlaskClient, fake: FakeClient, sid: str, case: tuple[CallStatus | None, int, str]
) -> None:
    was, attempts, words = case
    fake.ask(
        sid,
        effect=ToolEffect.READ,
        status=CallStatus.CANCELLED,
        cancelled_while=was,
        attempts=attempts,
        error="The user stopped the turn.",
    )
    text = page_text(browser, sid)
    assert f"{words} The user stopped the turn." in text
    assert "ejected" not in text


@pytest.mark.parametrize("succeeded", [True, False])
def test_a_late_result_is_shown_quietly(
    browser: FlaskClient, fake: FakeClient, sid: str, *, succeeded: bool
) -> None:
    late = LateResult(
        succeeded=succeeded,
        result={"status": "cancelled"} if succeeded else None,
        error=None if succeeded else "HTTP 500",
        at=NOON,
        token=7,
    )
    fake.ask(sid, status=CallStatus.CANCELLED, late_result=late)
    text = page_text(browser, sid)
    said = "it had succeeded" if succeeded else "it had failed: HTTP 500"
    assert f"A late result arrived: {said}" in text
    assert ("Late result" in text) is succeeded


def test_a_draft_is_executed_at_the_revision_that_was_shown(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.write_plan(sid, PlanStatus.DRAFT, Todo(title="buy <seeds>"), Todo(title="sow"))
    html = browser.get(f"/sessions/{sid}").text
    assert "buy &lt;seeds&gt;" in html
    assert 'name="revision" value="1"' in html
    fake.write_plan(sid, PlanStatus.DRAFT, Todo(title="sow"))
    form = {"csrf_token": csrf(browser), "revision": "1"}
    stale = browser.post(f"/sessions/{sid}/plan/execute", data=form)
    assert stale.status_code == 409
    assert "The plan has another revision now." in stale.text
    assert 'name="revision" value="2"' in stale.text
    for wrong in ("", "x", "1" * 20):
        answer = browser.post(f"/sessions/{sid}/plan/execute", data={**form, "revision": wrong})
        assert answer.status_code == 400
    done = browser.post(f"/sessions/{sid}/plan/execute", data={**form, "revision": "2"})
    assert done.status_code == 303
    text = page_text(browser, sid)
    assert "Execute the plan, revision 2:" in text
    assert "Active" in text
    assert "Go on with the plan" not in text


def test_a_plan_that_stopped_can_go_on_and_a_completed_one_cannot(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    done, doing = TodoStatus.COMPLETED, TodoStatus.IN_PROGRESS
    fake.write_plan(
        sid,
        PlanStatus.ACTIVE,
        Todo(title="buy", status=done),
        Todo(title="sow", status=doing),
        Todo(title="weed", status=TodoStatus.CANCELLED),
    )
    text = page_text(browser, sid)
    assert "Plan revision 1, 1 of 3 tasks open Stopped with open tasks" in text
    assert "buy done sow being done weed dropped" in text
    assert "Go on with the plan" in text
    fake.write_plan(sid, PlanStatus.COMPLETED, Todo(title="buy", status=done))
    text = page_text(browser, sid)
    assert "Plan revision 2, 1 task Completed" in text
    assert "Go on" not in text


def test_plan_first_is_offered_where_the_agent_has_plan_mode(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    for path in (f"/sessions/{sid}", "/sessions"):
        assert 'name="plan_mode"' not in browser.get(path).text
    fake.tool_names.append("write_todos")
    for path in (f"/sessions/{sid}", "/sessions"):
        assert 'name="plan_mode"' in browser.get(path).text
    form = {"csrf_token": csrf(browser), "text": "make a plan", "plan_mode": "yes"}
    assert browser.post(f"/sessions/{sid}/messages", data=form).status_code == 303
    assert "Planning" in page_text(browser, sid)
    browser.post(f"/sessions/{sid}/messages", data=form)
    assert "make a plan Plan first Steer now" in page_text(browser, sid)
    form = {"csrf_token": csrf(browser), "message": "plan this", "plan_mode": "yes"}
    started = browser.post("/sessions", data=form).headers["Location"]
    assert fake.sessions[started.rsplit("/", 1)[1]].planning
    refused = {"csrf_token": csrf(browser), "text": "x" * 2000, "plan_mode": "yes"}
    html = browser.post(f"/sessions/{sid}/messages", data=refused).text
    assert re.search(r'name="plan_mode" value="yes" checked', html)


def test_an_empty_demo_session_suggests_what_its_agent_can_do(
    browser: FlaskClient, fake: FakeClient
) -> None:
    sid = fake.create_session(model="demo").session_id
    text = page_text(browser, sid)
    assert "/tool cancel_order" in text
    assert "/ask" not in text
    fake.tool_names += ["ask_user", "write_todos"]
    text = page_text(browser, sid)
    assert "/ask" in text
    assert "/plan" in text
    other = fake.create_session(model="demo/echo").session_id
    assert "/tool" not in page_text(browser, other)
