"""The Slack connector: each answer is one request, and says what is known."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.connectors.schemas import validator_of
from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown
from celeriac.sessions.tools import Reconciliation
from tests.connectors.sdk.calls import CALL_ID, call, definition_of, reconcile
from tests.connectors.sdk.provider import (
    Answer,
    Behaviour,
    Provider,
    Request,
    cut_after_headers,
    json_answer,
    lost,
    reset,
    running_provider,
)
from tests.connectors.slack.fake import BOT, CHANNEL, USER, FakeSlack


@pytest.fixture
def slack() -> FakeSlack:
    return FakeSlack()


@pytest.fixture
def provider(slack: FakeSlack) -> Iterator[Provider]:
    with running_provider() as running:
        running.then = slack
        yield running


def _environment(provider: Provider, **values: str) -> dict[str, str]:
    given = {"CONNECTOR": "slack", "BOT_TOKEN": BOT, "USER_TOKEN": USER}
    given |= {"BASE_URL": f"{provider.url}/api/"} | values
    return {f"CELERIAC_CONNECTION_MAIN_{name}": value for name, value in given.items() if value}


def _run(provider: Provider, operation: str, **arguments: JsonValue) -> dict[str, JsonValue]:
    result = call(_environment(provider), f"slack.{operation}", arguments)
    return cast("dict[str, JsonValue]", result)


def _post(provider: Provider, text: str = "hello") -> dict[str, JsonValue]:
    return _run(provider, "postChannelMessage", channel=CHANNEL, text=text)


def _reply(provider: Provider, thread: JsonValue) -> dict[str, JsonValue]:
    return _run(
        provider, "postThreadReply", channel=CHANNEL, threadTimestamp=thread, text="a reply"
    )


def _found(provider: Provider, thread: JsonValue = None, **values: str) -> Reconciliation:
    arguments: dict[str, JsonValue] = {"channel": CHANNEL, "text": "hello"}
    operation = "slack.postChannelMessage"
    if thread is not None:
        operation, arguments["threadTimestamp"] = "slack.postThreadReply", thread
    return reconcile(_environment(provider, **values), operation, arguments)


def saved_and(breaks: str, slack: FakeSlack, status: int = 200) -> Behaviour:
    """Save the post, and then let its answer go wrong."""

    def behave(request: Request) -> Answer:
        answer = slack(request)
        return Answer(status, answer.body if status == 200 else b"", answer.headers, breaks)

    return behave


# --- posting


def test_effects_and_names() -> None:
    with running_provider() as provider:
        environment = _environment(provider)
    reply = definition_of(environment, "slack.postThreadReply")
    assert (reply.name, reply.effect) == (
        "slack_post_thread_reply",
        ToolEffect.NON_IDEMPOTENT_WRITE,
    )
    assert (reply.approval, reply.ordered) == (True, True)
    reaction = definition_of(environment, "slack.addReaction")
    assert reaction.effect is ToolEffect.IDEMPOTENT_WRITE
    assert definition_of(environment, "slack.readThread").effect is ToolEffect.READ


def test_a_post_and_a_reply(slack: FakeSlack, provider: Provider) -> None:
    posted = _post(provider)
    assert posted["branch"] == "sent"
    reply = _reply(provider, posted["timestamp"])
    assert reply["branch"] == "sent"
    assert slack.texts() == ["hello", "a reply"]
    message = slack.messages[CHANNEL][1]
    assert message["thread_ts"] == posted["timestamp"]
    payload: JsonValue = {"event_type": "celeriac_call", "event_payload": {"call_id": CALL_ID}}
    assert message["metadata"] == payload


@pytest.mark.parametrize("breaks", ["closed", "reset", "cut"])
def test_cn_01_a_post_whose_answer_is_lost_is_sent_once(
    slack: FakeSlack, provider: Provider, breaks: str
) -> None:
    provider.script = [saved_and(breaks, slack)]
    with pytest.raises(ToolOutcomeUnknown):
        _post(provider)
    assert len(provider.requests) == 1
    assert slack.texts() == ["hello"]


def test_cn_01_a_post_whose_answer_comes_too_late_is_sent_once(
    slack: FakeSlack, provider: Provider
) -> None:
    late = threading.Event()

    def behave(request: Request) -> Answer:
        answer = slack(request)
        late.wait(20)
        return answer

    provider.script = [behave]
    arguments: dict[str, JsonValue] = {"channel": CHANNEL, "text": "hello"}
    environment = _environment(provider)
    with pytest.raises((ToolOutcomeUnknown, TimeoutError)):
        call(environment, "slack.postChannelMessage", arguments, seconds=0.7)
    late.set()
    assert (len(provider.requests), slack.texts()) == (1, ["hello"])


def test_cn_01_a_post_that_is_answered_with_500_is_sent_once(
    slack: FakeSlack, provider: Provider
) -> None:
    provider.script = [saved_and("", slack, 500)]
    with pytest.raises(ToolOutcomeUnknown):
        _post(provider)
    assert (len(provider.requests), slack.texts()) == (1, ["hello"])


def _error(code: str, status: int = 200, **headers: str) -> Behaviour:
    return json_answer(f'{{"ok": false, "error": "{code}"}}', status, **headers)


@pytest.mark.parametrize(
    ("behaviour", "raised", "told"),
    [
        (_error("channel_not_found"), ToolFailed, "rejected: channel_not_found"),
        (_error("not_in_channel"), ToolFailed, "not_in_channel"),
        (_error("is_archived"), ToolFailed, "is_archived"),
        (_error("something_new"), ToolFailed, "something_new"),
        (
            json_answer('{"ok": false, "error": "missing_scope", "needed": "chat:write"}'),
            ToolFailed,
            "missing_scope (the token needs chat:write)",
        ),
        (_error("ratelimited", 429, Retry_After="7"), ToolNotRun, "429"),
        (_error("ratelimited"), ToolNotRun, "wait"),
        (_error("invalid_auth"), ToolNotRun, "does not accept the token"),
        (_error("token_revoked"), ToolNotRun, "token_revoked"),
        (_error("internal_error"), ToolOutcomeUnknown, "internal_error"),
        (_error("fatal_error"), ToolOutcomeUnknown, "fatal_error"),
        (_error("x", 502), ToolOutcomeUnknown, "502"),
        (_error("x", 503), ToolOutcomeUnknown, "503"),
        (json_answer("<html>"), ToolOutcomeUnknown, "cannot be read"),
        (json_answer("[]"), ToolOutcomeUnknown, "answer cannot be read"),
        (json_answer("{}"), ToolOutcomeUnknown, "Slack's answer cannot be read"),
        (json_answer("{}", 302, Location="/login"), ToolOutcomeUnknown, "302"),
        (lost, ToolOutcomeUnknown, "no answer"),
        (reset, ToolOutcomeUnknown, "no answer"),
        (cut_after_headers, ToolOutcomeUnknown, "broke off"),
    ],
)
def test_each_answer_to_a_post_is_one_request(
    provider: Provider, behaviour: Behaviour, raised: type[Exception], told: str
) -> None:
    provider.script = [behaviour]
    with pytest.raises(raised) as caught:
        _post(provider)
    assert told in str(caught.value)
    assert BOT not in str(caught.value)
    assert len(provider.requests) == 1


def test_the_wait_that_slack_asks_for(provider: Provider) -> None:
    provider.script = [_error("ratelimited", 429, Retry_After="7")]
    with pytest.raises(ToolNotRun) as caught:
        _post(provider)
    assert caught.value.retry_after_seconds == 7


# --- looking up


def test_a_post_is_found_by_its_call_id(slack: FakeSlack, provider: Provider) -> None:
    slack.now = 2_000_000_000
    _post(provider, "hello")
    found = _found(provider)
    assert found.happened is True
    result = cast("dict[str, JsonValue]", found.result)
    assert result["timestamp"] == slack.messages[CHANNEL][0]["ts"]


def test_a_post_that_is_not_there_stays_unknown(provider: Provider) -> None:
    found = _found(provider)
    assert found.happened is None
    assert "no message of this call" in found.note


def test_a_reply_is_looked_for_in_its_thread_with_the_users_token(
    slack: FakeSlack, provider: Provider
) -> None:
    slack.now = 2_000_000_000
    thread = slack(
        Request(
            "POST",
            "/api/chat.postMessage?channel=C024BE91L&text=top",
            {"authorization": f"Bearer {BOT}"},
            b"",
        )
    )
    assert thread.status == 200
    top = slack.messages[CHANNEL][0]["ts"]
    _reply(provider, top)
    assert _found(provider, top).happened is True
    with pytest.raises(ToolNotRun, match="missing_scope"):
        _found(provider, top, USER_TOKEN="")


def test_a_message_that_another_app_marked_is_not_taken_for_ours(
    slack: FakeSlack, provider: Provider
) -> None:
    slack.now = 2_000_000_000
    _post(provider)
    slack.messages[CHANNEL][0]["bot_id"] = "B0OTHER"
    assert _found(provider).happened is True, "without a bot id the mark is all there is"
    assert _found(provider, BOT_ID="B0LD8MX41").happened is None


# --- thread timestamps


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(1710000000.000100, id="number"),
        "1710000000000100",
        "p1710000000000100",
        "1710000000.0001",
        "",
        None,
        " 1710000000.000100 ",
        "1710000000.000100\n",
        "\u0661\u0667\u0661" + "\u0660" * 7 + ".000100",
    ],
)
def test_cn_03_a_thread_timestamp_that_is_none_is_refused_before_anything_is_sent(
    provider: Provider, wrong: JsonValue
) -> None:
    definition = definition_of(_environment(provider), "slack.postThreadReply")
    arguments = {"channel": CHANNEL, "threadTimestamp": wrong, "text": "hello"}
    errors = list(validator_of(definition.input_schema).iter_errors(arguments))
    assert errors
    assert all(error.json_path == "$.threadTimestamp" for error in errors)
    assert provider.requests == []


def test_cn_03_a_good_one_arrives_as_the_same_text(slack: FakeSlack, provider: Provider) -> None:
    slack.messages[CHANNEL].append({"ts": "1710000000.000100", "text": "top", "type": "message"})
    _reply(provider, "1710000000.000100")
    assert slack.messages[CHANNEL][1]["thread_ts"] == "1710000000.000100"
    assert b'"thread_ts": "1710000000.000100"' in provider.requests[0].body


# --- the others


def test_a_reaction_that_is_there_already_is_added(slack: FakeSlack, provider: Provider) -> None:
    timestamp = _post(provider)["timestamp"]
    for _ in range(2):
        arguments = {"channel": CHANNEL, "timestamp": timestamp, "name": "eyes"}
        assert _run(provider, "addReaction", **arguments) == {"branch": "added"}
    assert len(slack.reactions) == 1


def test_updating(slack: FakeSlack, provider: Provider) -> None:
    timestamp = _post(provider)["timestamp"]
    for _ in range(2):
        updated = _run(provider, "updateMessage", channel=CHANNEL, timestamp=timestamp, text="bye")
        assert updated["branch"] == "updated"
    assert slack.texts() == ["bye"]
    with pytest.raises(ToolFailed, match="notFound"):
        _run(provider, "updateMessage", channel=CHANNEL, timestamp="1710000000.000100", text="x")


def test_reading(slack: FakeSlack, provider: Provider) -> None:
    top = _post(provider, "top")["timestamp"]
    _reply(provider, top)
    read = _run(provider, "readChannel", channel=CHANNEL)
    assert [one["text"] for one in cast("list[dict[str, str]]", read["messages"])] == ["top"]
    thread = _run(provider, "readThread", channel=CHANNEL, threadTimestamp=top)
    texts = [one["text"] for one in cast("list[dict[str, str]]", thread["messages"])]
    assert texts == ["top", "a reply"]
    with pytest.raises(ToolFailed, match="notFound: thread_not_found"):
        _run(provider, "readThread", channel=CHANNEL, threadTimestamp="1710000000.000100")
    first = _run(provider, "listChannels", limit=2)
    assert first["nextCursor"] == "2"
    rest = _run(provider, "listChannels", limit=2, cursor=first["nextCursor"])
    assert "nextCursor" not in rest
    user = _run(provider, "findUser", email="ann@example.com")["user"]
    assert user == {"id": "U1", "name": "ann", "realName": "Ann Example"}
    with pytest.raises(ToolFailed, match="notFound: nobody"):
        _run(provider, "findUser", email="eve@example.com")


def test_reads_that_break_may_be_made_again(provider: Provider) -> None:
    for behaviour in (_error("internal_error"), _error("x", 503), json_answer("<html>")):
        provider.script = [behaviour]
        with pytest.raises(ToolNotRun):
            _run(provider, "readChannel", channel=CHANNEL)
    assert len(provider.requests) == 3
