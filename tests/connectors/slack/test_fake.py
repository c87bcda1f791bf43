"""Our Slack, judged by the official SDK: what it sends is understood, and what comes back is what it expects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError

from tests.connectors.sdk.provider import Provider, json_answer, running_provider
from tests.connectors.slack.fake import BOT, CHANNEL, USER, FakeSlack


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        running.then = FakeSlack()
        yield running


def client(provider: Provider, token: str = BOT) -> WebClient:
    return WebClient(token, base_url=f"{provider.url}/api/", retry_handlers=[])


def error_of(caught: pytest.ExceptionInfo[SlackApiError]) -> str:
    return str(caught.value.response["error"])


def test_posting_and_reading_back_with_metadata(provider: Provider) -> None:
    bot, user = client(provider), client(provider, USER)
    first = bot.chat_postMessage(channel=CHANNEL, text="hello")
    metadata = {"event_type": "celeriac_call", "event_payload": {"call_id": "call_1"}}
    bot.chat_postMessage(channel=CHANNEL, text="again", thread_ts=first["ts"], metadata=metadata)
    history = bot.conversations_history(channel=CHANNEL)["messages"]
    assert [one["text"] for one in history] == ["hello"]
    replies = user.conversations_replies(
        channel=CHANNEL, ts=first["ts"], include_all_metadata=True
    )["messages"]
    assert [one.get("metadata") for one in replies] == [None, metadata]
    without = user.conversations_replies(channel=CHANNEL, ts=first["ts"])["messages"]
    assert all("metadata" not in one for one in without)


def test_errors_are_what_the_sdk_raises(provider: Provider) -> None:
    for channel, error in (("C404", "channel_not_found"), ("C0ARCHIVE", "is_archived")):
        with pytest.raises(SlackApiError) as caught:
            client(provider).chat_postMessage(channel=channel, text="hello")
        assert error_of(caught) == error
    with pytest.raises(SlackApiError) as caught:
        client(provider, "xoxb-wrong").auth_test()
    assert error_of(caught) == "invalid_auth"
    provider.script = [json_answer('{"ok": false, "error": "ratelimited"}', 429, Retry_After="3")]
    with pytest.raises(SlackApiError) as caught:
        client(provider).auth_test()
    assert caught.value.response.headers["Retry-After"] == "3"


def test_the_other_methods(provider: Provider) -> None:
    bot = client(provider)
    posted = bot.chat_postMessage(channel=CHANNEL, text="hello")
    assert bot.reactions_add(channel=CHANNEL, timestamp=posted["ts"], name="eyes")["ok"]
    with pytest.raises(SlackApiError) as caught:
        bot.reactions_add(channel=CHANNEL, timestamp=posted["ts"], name="eyes")
    assert error_of(caught) == "already_reacted"
    assert bot.chat_update(channel=CHANNEL, ts=posted["ts"], text="bye")["ok"]
    assert bot.conversations_history(channel=CHANNEL)["messages"][0]["text"] == "bye"
    assert bot.users_lookupByEmail(email="ann@example.com")["user"]["id"] == "U1"
    pages = [page["channels"] for page in bot.conversations_list(limit=2)]
    assert [len(page) for page in pages] == [2, 1]
