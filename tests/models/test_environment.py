"""The variables that the README names are all that a user sets, for each kind of server."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec

import pytest

from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.model import ModelError, ModelReply
from tests.connectors.requests import Piece, request, user
from tests.models.aimock import Aimock
from tests.node_tools import needs_node_tools

pytestmark = [
    needs_node_tools,
    pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm"),
    pytest.mark.filterwarnings("ignore"),
]

WAYS = {
    "a local server": ("openai/qwen3", {"OPENAI_API_BASE": "{url}/v1"}, "/v1/chat/completions"),
    "its other variable": ("openai/qwen3", {"OPENAI_BASE_URL": "{url}/v1"}, "/v1/chat/completions"),
    "a server with keys": (
        "openai/qwen3",
        {"OPENAI_API_BASE": "{url}/v1", "OPENAI_API_KEY": "k-123456"},
        "/v1/chat/completions",
    ),
    "a local server for OpenAI's own model": (
        "openai/gpt-5-mini",
        {"OPENAI_API_BASE": "{url}/v1"},
        "/v1/responses",
    ),
    "Anthropic": (
        "anthropic/claude-sonnet-4-5",
        {"ANTHROPIC_API_BASE": "{url}", "ANTHROPIC_API_KEY": "k-123456"},
        "/v1/messages",
    ),
    "Ollama": ("ollama_chat/qwen3", {"OLLAMA_API_BASE": "{url}"}, "/api/chat"),
    "vLLM": ("hosted_vllm/Qwen/Qwen3-8B", {"HOSTED_VLLM_API_BASE": "{url}/v1"}, "/v1/chat/completions"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_set(aimock: Aimock, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.endswith(("_API_KEY", "_API_BASE", "_BASE_URL")):
            monkeypatch.delenv(name)


def ask(loop: asyncio.Runner, model: str) -> ModelReply:
    async def gather() -> list[Piece]:
        return [one async for one in LiteLlmClient().stream(request(user("hi"), model=model))]

    last = loop.run(gather())[-1]
    assert isinstance(last, ModelReply)
    return last


@pytest.mark.parametrize("way", WAYS)
def test_these_variables_are_enough(
    aimock: Aimock, loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    model, variables, path = WAYS[way]
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=aimock.url))
    aimock.in_turn({"content": "Hello."})
    assert ask(loop, model).text == "Hello."
    assert [entry["path"] for entry in aimock.journal()] == [path]


@pytest.mark.parametrize("model", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"])
def test_a_missing_key_is_said_at_once(
    aimock: Aimock, loop: asyncio.Runner, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    with pytest.raises(ModelError) as failure:
        ask(loop, model)
    error = failure.value
    assert (error.retryable, error.kind) == (False, FailureKind.AUTHENTICATION)
    assert "_API_KEY" in str(error)
    assert aimock.journal() == []
