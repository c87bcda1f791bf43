"""Images as each dialect wants them, and words in their place where they cannot be sent."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from importlib.util import find_spec
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.connectors.demo_model import DemoModel
from celeriac.connectors.summaries import summary_request
from celeriac.sessions.images import read_image
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelRequest
from tests.connectors.chat_server import Stream, chunk
from tests.connectors.requests import collect, reply_of, request
from tests.connectors.responses import REASONER, said, stream
from tests.connectors.talk import KEY, MODEL, Talk
from tests.connectors.test_reasoning_replay import CLAUDE, TEXT, events_of
from tests.pictures import png

pytestmark = [
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    # litellm itself warns with every chunk.
    pytest.mark.filterwarnings("ignore"),
]

IMAGE = read_image(png(), "a.png", max_bytes=10_000)
ENCODED = b64encode(png()).decode()
URL = f"data:image/png;base64,{ENCODED}"
HELLO = Stream([chunk({"content": "A picture."}), chunk(finish="stop")])


def shown(text: str = "What is this?") -> Message:
    return Message(seq=0, role=Role.USER, text=text, images=(IMAGE.reference,), created_at=0)


def asked(model: str, *messages: Message) -> ModelRequest:
    images = {IMAGE.reference.id: IMAGE.data}
    return replace(request(*(messages or (shown(),)), model=model), images=images)


def last_content(talk: Talk, ask: ModelRequest, answer: Stream, name: str) -> JsonValue:
    talk.server.script.append(answer)

    async def gather() -> None:
        async for _ in talk.client.stream(ask):
            pass

    talk.loop.run(gather())
    messages = cast("list[dict[str, JsonValue]]", talk.server.requests[-1][name])
    return messages[-1]["content"]


def test_chat_completions_get_data_urls(talk: Talk) -> None:
    content = last_content(talk, asked(MODEL), HELLO, "messages")
    assert content == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": URL}},
    ]


def test_responses_get_input_images(talk: Talk) -> None:
    content = last_content(talk, asked(REASONER, shown("")), stream(said("A picture.")), "input")
    assert content == [{"type": "input_image", "image_url": URL}]


def test_anthropic_gets_image_blocks(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("ANTHROPIC_API_BASE", talk.server.url.removesuffix("/v1"))
    content = last_content(talk, asked(CLAUDE), Stream(events_of([TEXT])), "messages")
    blocks = cast("list[dict[str, JsonValue]]", content)
    assert [block["type"] for block in blocks] == ["text", "image"]
    assert blocks[1]["source"] == {"type": "base64", "media_type": "image/png", "data": ENCODED}


@pytest.mark.parametrize(
    ("model", "sees"), [("openai/gpt-3.5-turbo", False), ("openai/mine", True)]
)
def test_a_model_that_takes_none_gets_a_word_and_an_unknown_one_is_trusted(
    talk: Talk, model: str, *, sees: bool
) -> None:
    content = json.dumps(last_content(talk, asked(model), HELLO, "messages"))
    assert (ENCODED in content) is sees
    assert ("[image 'a.png', image/png" in content) is not sees


def test_what_is_beyond_the_limit_of_a_request_is_a_word(talk: Talk) -> None:
    content = last_content(talk, request(shown(), model=MODEL), HELLO, "messages")
    assert content == (
        f"What is this?\n\n[image 'a.png', image/png, {len(png())} bytes, 3 x 2 pixels; not shown to you]"
    )


def test_a_summary_says_that_there_were_images_and_sends_none() -> None:
    whole = asked(MODEL, shown(), Message(seq=1, role=Role.ASSISTANT, text="Red.", created_at=0))
    summary = summary_request(whole, whole.messages, 5_000)
    assert summary.images == {}
    assert "[image 'a.png', image/png" in summary.messages[0].text


def test_the_demo_model_says_what_it_got() -> None:
    reply = reply_of(collect(DemoModel().stream(asked("demo"))))
    assert "'a.png', image/png" in reply.text
