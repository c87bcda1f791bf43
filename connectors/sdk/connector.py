"""`Connector`: the code of a manifest's operations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import JsonValue

from celeriac.connectors.sdk.http import ProviderHttp
from celeriac.connectors.sdk.manifest import Manifest, Operation, snake_case
from celeriac.connectors.sdk.outcomes import Outcome
from celeriac.connectors.sdk.secrets import Secret
from celeriac.sessions.errors import DefinitionError

__all__ = ["Call", "Connector", "Described"]


@dataclass(frozen=True, slots=True)
class Described:
    """What an operation is on one connection, where its configuration says more than the manifest."""

    description: str
    input_schema: Mapping[str, JsonValue]
    """Without the fixed arguments."""
    relied_on: Mapping[str, str] = field(default_factory=dict)
    """What else a person who approves relies on, by what it is; when it changes they are asked again."""


@dataclass(frozen=True, slots=True)
class Call:
    """One attempt of an operation."""

    id: str
    """The Call ID; the same at every attempt."""
    arguments: Mapping[str, JsonValue]
    """As the operation's input schema describes them. They never change between attempts."""
    idempotency_key: str
    """Connector, operation and Call ID in one text of at most 120 characters."""
    credentials: Mapping[str, Secret]
    """The connection's credentials, read just now."""
    http: ProviderHttp
    """Makes the one request that the attempt may make."""
    attempt: int = 1
    """1 for the first attempt."""
    created_at: float | None = None
    """When the call was made, in Unix seconds; given to a query that reconciles."""
    report_progress: Callable[[str], None] = field(default=lambda _text: None)
    """Show a short text on the page while the operation runs; best effort."""


class Connector:
    """The operations of one provider; one object for each connection of a process.

    A subclass names its `manifest` and has one coroutine method for each operation, named like it in snake case:
    ``createRefund`` is ``async def create_refund(self, call: Call) -> Outcome``. Such a method makes one request
    and sorts its end: a branch of the manifest (`Outcome`), `ToolNotRun` when certainly nothing was done, or any
    other exception when nobody knows.

    Args:
        configuration: The connection's configuration, checked by the manifest's schema, defaults filled in.

    Raises:
        ConfigurationError: What a schema cannot check is wrong; the message names the field. Nothing is opened
            here: a connection is made when the first call needs it.
    """

    manifest: ClassVar[Manifest]
    sends_only_by_http: ClassVar[bool] = False
    """Whether `Call.http` is the only way in which it reaches its provider. Then an error before that was used is
    known to have done nothing; else every error may have come after the effect."""

    def __init__(self, configuration: Mapping[str, JsonValue]) -> None:
        self.configuration = configuration

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for operation in cls.manifest.operations:
            name = snake_case(operation.id)
            if not inspect.iscoroutinefunction(getattr(cls, name, None)):
                raise DefinitionError(
                    f"{cls.__name__} needs `async def {name}(self, call)` for the operation {operation.id}"
                )

    def text(self, field_name: str) -> str:
        """Return a field of the configuration that its schema says is a text."""
        return str(self.configuration[field_name])

    def describe(self, operation: Operation, fixed: Mapping[str, JsonValue]) -> Described | None:
        """Say what an operation is on this connection; None when the manifest says it all.

        Args:
            operation: The operation.
            fixed: Arguments that the agent's definition sets.

        Raises:
            ConfigurationError: The configuration has nothing of the kind.
        """
        del operation, fixed
        return None

    async def check(self, call: Call) -> str:
        """Ask the provider who we are, without changing anything, and return a short text that says it.

        ``celeriac connectors check`` shows it; a connector without such a request leaves this as it is.

        Raises:
            ToolFailed: The provider does not let us in.
        """
        del call
        return "the configuration is complete (this connector asks its provider nothing)"

    async def aclose(self) -> None:
        """Close what the calls opened."""

    async def run(self, operation: str, call: Call) -> Outcome:
        """Run one attempt of an operation by its id."""
        method = getattr(self, snake_case(operation))
        outcome: Outcome = await method(call)
        return outcome
