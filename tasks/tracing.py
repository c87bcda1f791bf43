"""What can be traced of a step: itself, its model call, its tool call. Without CELERIAC_OTEL nothing is.

OpenTelemetry is only imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Protocol

from celeriac.sessions.errors import ConfigurationError
from celeriac.sessions.inputs import Input, ModelInterrupted
from celeriac.sessions.model import ModelReply, ModelRequest
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import SessionState
from celeriac.sessions.store.sessions import Claim
from celeriac.sessions.tools import ToolDefinition

__all__ = ["NoTracing", "Tracing", "check_tracing", "open_tracing"]

TellInput = Callable[[Input], None]
TellReply = Callable[[ModelReply | ModelInterrupted], None]


class Tracing(Protocol):
    """Traces steps. Each block yields a function that is told what came of it."""

    def step(self, claim: Claim, worker: str) -> AbstractContextManager[TellInput]:
        """Trace one attempt of a step."""

    def model_call(self, claim: Claim, request: ModelRequest) -> AbstractContextManager[TellReply]:
        """Trace one request to a model."""

    def tool_call(self, claim: Claim, tool: ToolDefinition) -> AbstractContextManager[TellInput]:
        """Trace one attempt that enters a tool."""

    def moved_on(self, before: SessionState, after: SessionState) -> None:
        """Be told of each outcome that was committed, to trace a turn that it ended."""

    def close(self) -> None:
        """Send what was not yet sent."""


def _ignore(_outcome: object) -> None:
    return


_IGNORED: AbstractContextManager[Callable[[object], None]] = nullcontext(_ignore)


class NoTracing:
    """Traces nothing, at no cost."""

    def step(self, claim: Claim, worker: str) -> AbstractContextManager[TellInput]:  # noqa: ARG002
        """Do nothing."""
        return _IGNORED

    def model_call(
        self,
        claim: Claim,  # noqa: ARG002
        request: ModelRequest,  # noqa: ARG002
    ) -> AbstractContextManager[TellReply]:
        """Do nothing."""
        return _IGNORED

    def tool_call(
        self,
        claim: Claim,  # noqa: ARG002
        tool: ToolDefinition,  # noqa: ARG002
    ) -> AbstractContextManager[TellInput]:
        """Do nothing."""
        return _IGNORED

    def moved_on(self, before: SessionState, after: SessionState) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def check_tracing(settings: Settings) -> None:
    """Find out whether what the settings ask for is installed.

    Raises:
        ConfigurationError: It is not.
    """
    needed = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    if settings.otel and not all(map(_is_there, needed)):
        raise ConfigurationError(
            "CELERIAC_OTEL is set, but OpenTelemetry is not installed: pip install 'celeriac[otel]'."
        )


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def open_tracing(settings: Settings) -> Tracing:
    """Return what traces the steps of this process; call it after any fork."""
    if not settings.otel:
        return NoTracing()
    from celeriac.tasks.otel import OtelTracing, provider_of_this_process  # noqa: PLC0415

    return OtelTracing(provider_of_this_process())
