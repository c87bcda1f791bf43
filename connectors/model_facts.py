"""What a worker says of its models without asking anybody: is there a key, is there a price."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from importlib.util import find_spec

from celeriac.connectors.litellm_keys import needs_no_key
from celeriac.connectors.litellm_module import info_of, load_litellm, provider_of
from celeriac.connectors.models import DEMO_MODEL
from celeriac.sessions.snapshot import ModelInfo

__all__ = ["facts_of"]

_KEYS: Mapping[str, tuple[str, ...]] = {
    # Any of them will do.
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure": ("AZURE_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "vertex_ai": ("GOOGLE_APPLICATION_CREDENTIALS", "VERTEXAI_CREDENTIALS"),
}
"""Variables of keys that do not go by the provider's own name, as OPENAI_API_KEY does."""
_OF_THE_MACHINE = frozenset({"bedrock", "sagemaker", "vertex_ai", "azure"})
"""Providers that a machine may be let in to by what it is, without a variable."""
_KEYLESS = frozenset({"ollama", "ollama_chat", "lm_studio", "llamafile", "hosted_vllm", "vllm"})


def facts_of(
    models: Iterable[str],
    own_clients: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
) -> tuple[ModelInfo, ...]:
    """Say what is known of models.

    Args:
        models: Names of models.
        own_clients: Those that a client of an agent's own serves, so that nothing is known of them.
        environment: Where keys are; None is this process's environment. Only names leave it.

    Returns:
        One entry per model, in their order.
    """
    own = {DEMO_MODEL, *own_clients}
    found = os.environ if environment is None else environment
    installed = find_spec("litellm") is not None
    return tuple(
        ModelInfo(name=name) if name in own or not installed else _of_litellm(name, found)
        for name in dict.fromkeys(models)
    )


def _of_litellm(name: str, environment: Mapping[str, str]) -> ModelInfo:
    provider = provider_of(load_litellm(), name)
    if not provider:
        return ModelInfo(name=name, provider="unknown")
    keys = _KEYS.get(provider, (f"{provider.upper()}_API_KEY",))
    keys = () if provider in _KEYLESS else keys
    is_set = any(environment.get(key) for key in keys)
    unchecked = not is_set and (provider in _OF_THE_MACHINE or needs_no_key(name, environment))
    priced, window = _price_and_window(name)
    return ModelInfo(
        name=name,
        provider=provider,
        key_variables=keys,
        key_set=None if not keys or unchecked else is_set,
        price_known=priced,
        context_window_tokens=window,
    )


def _price_and_window(name: str) -> tuple[bool, int | None]:
    info = info_of(load_litellm(), name)
    if info is None:
        return False, None
    window = info.get("max_input_tokens")
    return bool(info.get("input_cost_per_token")), window if isinstance(window, int) else None
