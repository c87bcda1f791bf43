"""litellm as it is used here: imported late, without asking the network, and silent about itself."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Protocol, cast

__all__ = ["LiteLlm", "info_of", "load_litellm", "preload", "provider_of"]

_loading = threading.Lock()
_AT_THE_FIRST_CALL = (
    "anyio._backends._asyncio",
    "h2.connection",
    "httpcore",
    "litellm._service_logger",
    "litellm.integrations.generic_api.generic_api_callback",
    "litellm.llms.fal_ai.cost_calculator",
    "litellm.llms.fal_ai.image_generation",
    "litellm.llms.github_copilot.authenticator",
    "litellm.llms.litellm_proxy.chat.transformation",
    "litellm.proxy._types",
    "litellm.proxy.openai_files_endpoints.common_utils",
    "litellm.proxy.spend_tracking.savings",
)


class LiteLlm(Protocol):
    """What we use of litellm; its own types would make every type check read all of it."""

    telemetry: bool
    suppress_debug_info: bool
    disable_aiohttp_transport: bool
    disable_token_counter: bool
    drop_params: bool
    provider_list: Sequence[str]

    def acompletion(self, **arguments: object) -> Awaitable[AsyncIterator[object]]: ...

    def aresponses(self, **arguments: object) -> Awaitable[AsyncIterator[object]]: ...

    def get_llm_provider(self, model: str) -> tuple[str, str, object, object]: ...

    def get_model_info(self, model: str) -> Mapping[str, object]: ...


def preload() -> None:
    """Import litellm now: it takes seconds and 200 MB, which forked children then share.

    What it imports at its first call comes along, else that call waits half a second for it. None of it starts
    a thread, so that a worker may fork afterwards.
    """
    load_litellm()
    for name in _AT_THE_FIRST_CALL:
        # Another version has it elsewhere, and loads it itself.
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def load_litellm() -> LiteLlm:
    """Return litellm."""
    with _loading:
        # Read while litellm is imported: without them it fetches price lists and tokenizers.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
        module = cast("LiteLlm", importlib.import_module("litellm"))
        module.telemetry = False
        module.suppress_debug_info = True
        # One HTTP client for all providers; the other one warns about sessions that it leaves open.
        module.disable_aiohttp_transport = True
        # Its own estimates are used nowhere, and loading two tokenizers holds up the first call for a second.
        module.disable_token_counter = True
        # A setting that a model does not take is an error that names it, never left out in silence.
        module.drop_params = False
        return module


def info_of(litellm: LiteLlm, model: str) -> Mapping[str, object] | None:
    """Return what litellm's own list says of a model; None when it is not there."""
    try:
        return litellm.get_model_info(model)
    except Exception:  # noqa: BLE001 - whatever it raises, it does not know the name
        return None


def provider_of(litellm: LiteLlm, model: str) -> str:
    """Return the name of the provider that serves a model; empty when litellm knows none."""
    prefix = model.partition("/")[0]
    if prefix != model and prefix in litellm.provider_list:
        return prefix
    try:
        return litellm.get_llm_provider(model)[1]
    except Exception:  # noqa: BLE001 - it has an error of its own for this, and the request will tell it
        return ""
