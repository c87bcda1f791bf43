"""What workers say of their models: names of variables, never what is in them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from celeriac.connectors.model_facts import facts_of
from celeriac.sessions.snapshot import ModelInfo

pytestmark = pytest.mark.skipif(find_spec("litellm") is None, reason="needs the extra litellm")

KEY = "9f8E7d6C5b4A3210zyXwVuTs"


def test_a_model_without_a_service_needs_nothing() -> None:
    assert facts_of(["demo", "in-house"], ["in-house"], {}) == (
        ModelInfo(name="demo"),
        ModelInfo(name="in-house"),
    )


def test_a_known_model_has_a_price_and_a_window() -> None:
    [model] = facts_of(["openai/gpt-4o-mini"], (), {"OPENAI_API_KEY": KEY})
    assert (model.provider, model.key_variables) == ("openai", ("OPENAI_API_KEY",))
    assert (model.key_set, model.price_known) == (True, True)
    assert model.context_window_tokens == 128_000
    assert KEY not in model.model_dump_json()


@pytest.mark.parametrize(
    ("name", "environment", "provider", "key_set"),
    [
        ("gpt-4o-mini", {}, "openai", False),
        ("openai/gpt-4o-mini", {"OPENAI_API_KEY": ""}, "openai", False),
        ("openai/qwen3", {"OPENAI_API_BASE": "http://127.0.0.1:8000/v1"}, "openai", None),
        ("openai/qwen3", {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1"}, "openai", None),
        ("anthropic/claude-sonnet-4-5", {"ANTHROPIC_API_KEY": KEY}, "anthropic", True),
        ("gemini/gemini-2.5-pro", {"GOOGLE_API_KEY": KEY}, "gemini", True),
        ("mistral/mistral-large-latest", {}, "mistral", False),
        ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", {}, "bedrock", None),
        ("ollama/llama3", {}, "ollama", None),
        ("nobody-knows-me", {}, "unknown", None),
    ],
)
def test_whether_a_key_is_there(
    name: str, environment: dict[str, str], provider: str, key_set: bool | None
) -> None:
    [model] = facts_of([name], (), environment)
    assert (model.name, model.provider, model.key_set) == (name, provider, key_set)


def test_a_model_that_nobody_priced_has_no_price() -> None:
    [model] = facts_of(["openai/nobody-knows"], (), {})
    assert (model.price_known, model.context_window_tokens) == (False, None)
