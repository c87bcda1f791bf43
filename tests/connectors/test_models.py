"""Which client answers for which model."""

from __future__ import annotations

import pytest

from celeriac.connectors import models
from celeriac.connectors.demo_model import DemoModel
from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.connectors.models import ModelClients
from celeriac.sessions.errors import ConfigurationError


def test_each_client_is_made_once() -> None:
    clients = ModelClients()
    assert isinstance(clients.client("demo"), DemoModel)
    assert clients.client("demo") is clients.client("demo")
    assert isinstance(clients.client("openai/gpt-5-mini"), LiteLlmClient)
    assert clients.client("openai/gpt-5-mini") is clients.client("anthropic/claude-sonnet-4-5")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "find_spec", lambda _name: None)
    clients = ModelClients()
    with pytest.raises(ConfigurationError, match=r"'openai/x' needs litellm.*celeriac\[litellm\]"):
        clients.client("openai/x")
    with pytest.raises(ConfigurationError, match="needs litellm"):
        clients.preload(["demo", "openai/x"])
    assert isinstance(clients.client("demo"), DemoModel)
    clients.preload(["demo"])
