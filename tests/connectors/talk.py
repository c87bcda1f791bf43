"""Asks a chat server of the test through the litellm client, once each time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.sessions.messages import Message
from celeriac.sessions.model import ModelError, ModelReply
from celeriac.sessions.model_settings import ModelSettings
from tests.connectors.chat_server import ChatServer, Failure, Json, Stream
from tests.connectors.requests import Piece, named_tools, request, user

KEY = "sk-test-0123456789abcdef"
MODEL = "openai/gpt-4o-mini"


class Talk:
    """Asks once and checks that the server was asked once."""

    def __init__(self, server: ChatServer, loop: asyncio.Runner) -> None:
        self.server = server
        self.loop = loop
        self.client = LiteLlmClient()

    def pieces(
        self,
        *answer: Stream | Failure,
        messages: Sequence[Message] = (),
        model: str = MODEL,
        timeout_seconds: float = 20,
        tools: Sequence[str] = (),
        settings: ModelSettings | None = None,
    ) -> list[Piece]:
        before = len(self.server.requests)
        self.server.script.extend(answer)
        asked = request(
            *(messages or [user("hi")]),
            model=model,
            timeout_seconds=timeout_seconds,
            tools=named_tools(*tools),
        )
        if settings is not None:
            asked = replace(asked, settings=settings)

        async def gather() -> list[Piece]:
            return [piece async for piece in self.client.stream(asked)]

        try:
            return self.loop.run(gather())
        finally:
            assert len(self.server.requests) == before + 1

    def reply(self, *chunks: dict[str, object] | str, model: str = MODEL) -> ModelReply:
        last = self.pieces(Stream(chunks), model=model)[-1]
        assert isinstance(last, ModelReply)
        return last

    def error(
        self,
        answer: Stream | Failure,
        timeout_seconds: float = 20,
        *,
        model: str = MODEL,
        settings: ModelSettings | None = None,
    ) -> ModelError:
        with pytest.raises(ModelError) as failure:
            self.pieces(answer, timeout_seconds=timeout_seconds, model=model, settings=settings)
        assert KEY not in str(failure.value)
        return failure.value


def anthropic_event(kind: str, **fields: object) -> str:
    return json.dumps({"type": kind, **fields})


def anthropic_block(index: int, start: Json, *deltas: Json) -> list[str]:
    return [
        anthropic_event("content_block_start", index=index, content_block=start),
        *(anthropic_event("content_block_delta", index=index, delta=delta) for delta in deltas),
        anthropic_event("content_block_stop", index=index),
    ]
