"""Which client talks to which model; one of each per process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from importlib.util import find_spec

from celeriac.connectors.demo_model import DemoModel
from celeriac.connectors.litellm_client import LiteLlmClient
from celeriac.connectors.litellm_module import preload
from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.model import ModelClient

__all__ = ["DEMO_MODEL", "ModelClients"]

DEMO_MODEL = "demo"


class ModelClients:
    """Resolves a model's name to its client. Keep one per process, made after any fork."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._demo: DemoModel | None = None
        self._litellm: LiteLlmClient | None = None

    def client(self, model: str) -> ModelClient:
        """Return the client of a model; the same one each time.

        Raises:
            ConfigurationError: The model needs a package that is not installed.
        """
        with self._lock:
            if model == DEMO_MODEL:
                self._demo = self._demo or DemoModel()
                return self._demo
            self._litellm = self._litellm or _make_litellm(model)
            return self._litellm

    @staticmethod
    def preload(models: Iterable[str]) -> None:
        """Import what these models need now, before a worker forks, so that children share it.

        Raises:
            ConfigurationError: A model needs a package that is not installed.
        """
        for model in models:
            if model != DEMO_MODEL:
                _require_litellm(model)
                preload()
                return


def _make_litellm(model: str) -> LiteLlmClient:
    _require_litellm(model)
    return LiteLlmClient()


def _require_litellm(model: str) -> None:
    if find_spec("litellm") is None:
        raise ConfigurationError(
            f"the model {model!r} needs litellm, which is not installed: "
            "run `pip install 'celeriac[litellm]'`, or use the model 'demo', which needs nothing"
        )
