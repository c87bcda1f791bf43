"""Models on the page and in the API: which answers, what it took, and another one from the next message on."""

from __future__ import annotations

import re

import pytest
from flask.testing import FlaskClient

from celeriac.sessions.failures import FailureKind
from celeriac.sessions.messages import Message, Role, Usage
from tests.web.conftest import MakeApp, operators
from tests.web.fake_client import FakeClient
from tests.web.test_pages import csrf, log_in

USED = Usage(input_tokens=1200, output_tokens=300, cost_usd=0.0009)


@pytest.fixture
def browser(make_app: MakeApp) -> FlaskClient:
    return log_in(make_app(operators=operators("Ana:operator:t")).test_client(), "t")


def add(fake: FakeClient, sid: str, role: Role, **fields: object) -> None:
    messages = fake.sessions[sid].messages
    values = {"seq": len(messages), "role": role, "created_at": 1, **fields}
    messages.append(Message.model_validate(values))


def test_under_an_answer_is_what_it_took_and_of_several_calls_their_sum(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    both = USED.of_one_call().plus(Usage().of_one_call())
    facts = {"model": "openai/m", "usage": USED, "latency_ms": 2140, "finish_reason": "stop"}
    add(fake, sid, Role.ASSISTANT, text="Done.", turn_usage=both, **facts)
    page = browser.get(f"/sessions/{sid}").text
    assert "openai/m · 1,500 tokens · $0.0009 · 2.1 s" in page
    assert "at least $0.0009 (1 call without a price)" in page


def test_a_response_that_only_calls_tools_says_what_it_took_too(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    add(fake, sid, Role.ASSISTANT, model="openai/m", reported_model="<b>m</b>", usage=USED)
    html = browser.get(f"/sessions/{sid}").text
    assert "&lt;b&gt;m&lt;/b&gt; · 1,500 tokens" in html


def test_a_failed_turn_says_what_can_be_done_and_what_it_cost(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    text = "This turn failed: OpenAI: You exceeded your current quota"
    used = USED.of_one_call()
    add(fake, sid, Role.NOTICE, text=text, failure=FailureKind.QUOTA, turn_usage=used)
    page = browser.get(f"/sessions/{sid}").text
    assert "no money or quota left" in page
    assert text in page
    assert "This turn: 1 model call · 1,500 tokens · $0.0009" in page


def options(html: str) -> list[tuple[str, str]]:
    select = re.search(r'<select id="model".*?</select>', html, re.DOTALL)
    assert select is not None
    return re.findall(r'<option value="([^"]*)"[^>]*>([^<]*)<', select[0])


def test_the_page_offers_the_agents_other_models(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    address = f"/sessions/{sid}"
    assert options(browser.get(address).text) == [("", "demo/echo"), ("demo/slow", "demo/slow")]
    form = {"csrf_token": csrf(browser), "text": "hello", "model": "demo/slow"}
    assert browser.post(f"{address}/messages", data=form).status_code == 303
    assert fake.sessions[sid].model == "demo/slow"
    assert options(browser.get(f"{address}/fragment").text)[0] == ("", "demo/slow")
    waiting = {**form, "text": "and now?", "model": "demo/echo"}
    browser.post(f"{address}/messages", data=waiting)
    assert '<span class="chip">demo/echo</span>' in browser.get(address).text


def test_a_model_that_is_gone_is_said_to_be_gone(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    fake.sessions[sid].model = "demo/retired"
    html = browser.get(f"/sessions/{sid}").text
    assert "demo/retired (not available any more; demo/echo answers)" in html
    assert options(html) == [("", "demo/echo"), ("demo/slow", "demo/slow")]


def test_a_refused_choice_is_kept_with_the_message(
    browser: FlaskClient, fake: FakeClient, sid: str
) -> None:
    form = {"csrf_token": csrf(browser), "text": " ", "model": "demo/slow"}
    answer = browser.post(f"/sessions/{sid}/messages", data=form)
    assert answer.status_code == 400
    assert '<option value="demo/slow" selected>' in answer.text
