"""`ConnectorToolSource`: operations of connectors as tools, and the one way in which they are run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from weakref import WeakKeyDictionary

from pydantic import JsonValue

from celeriac.connectors.redactor import Redactor
from celeriac.connectors.sdk.connections import Connection, Connections, checked_connections
from celeriac.connectors.sdk.connector import Call, Connector
from celeriac.connectors.sdk.http import Dispatch, HttpPool, ProviderHttp
from celeriac.connectors.sdk.manifest import Kind, Operation, RecordedAs
from celeriac.connectors.sdk.outcomes import Outcome
from celeriac.connectors.sdk.raw_connection import ConnectionReader
from celeriac.connectors.sdk.secrets import Secret
from celeriac.connectors.sdk.tools import ConnectorTool
from celeriac.sessions.errors import (
    ConfigurationError,
    DefinitionError,
    ToolFailed,
    ToolNotRun,
    ToolOutcomeUnknown,
)
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import (
    ReconcileContext,
    Reconciliation,
    ToolContext,
    ToolDefinition,
    ToolResult,
)

__all__ = ["ConnectorToolSource", "OpenConnection"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenConnection:
    """A connection with its connector, on one event loop."""

    connection: Connection
    connector: Connector
    pool: HttpPool

    @classmethod
    def of(cls, connection: Connection) -> OpenConnection:
        """Make the connector of a connection; nothing is connected yet."""
        return cls(
            connection, connection.connector(connection.configuration), HttpPool(connection.hosts)
        )

    async def aclose(self) -> None:
        """Close what its calls opened."""
        await self.connector.aclose()
        await self.pool.aclose()


_Place = tuple[ConnectionReader, str]

# A process has one loop for all its agents, and one connector for each connection.
_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_Place, OpenConnection]] = (
    WeakKeyDictionary()
)


class ConnectorToolSource:
    """The connector operations that an agent has.

    Args:
        tools: Operations, made by `connector_tool`.
        connections: Other connections than those of the worker's configuration.

    Raises:
        DefinitionError: An entry is none, two have the same name, or the same connection is used for two connectors.
    """

    def __init__(
        self, tools: Sequence[ConnectorTool], *, connections: Connections | None = None
    ) -> None:
        _require_tools(tools)
        self._tools = {tool.definition.name: tool for tool in tools}
        self._given = connections
        self._connections: Mapping[str, Connection] | None = None
        self._definitions: Sequence[ToolDefinition] = ()

    @property
    def definitions(self) -> Sequence[ToolDefinition]:
        """What is declared about its tools, whether there are connections for them or not."""
        return tuple(tool.definition for tool in self._tools.values())

    def start(self) -> None:
        """Check the configuration of the connections; a worker does it when it starts.

        Raises:
            ConfigurationError: It is incomplete or wrong; the message names the field.
        """
        connections = self._given or _worker_connections(load_settings().connector_config_file)
        wanted = {tool.connection: tool.connector.manifest.name for tool in self._tools.values()}
        found = checked_connections(connections, wanted.items())
        for name in sorted(wanted.keys() - found.keys()):
            tools = [tool for tool in self._tools.values() if tool.connection == name]
            _log.warning(
                "There is no connection %r, so agents go without %s",
                name,
                ", ".join(tool.definition.name for tool in tools),
            )
        self._definitions = [
            _defined(tool, found[tool.connection])
            for tool in self._tools.values()
            if tool.connection in found
        ]
        self._connections = found

    async def list_tools(self) -> Sequence[ToolDefinition]:
        """Return the tools whose connection is configured."""
        self._started()
        return self._definitions

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        """Run one attempt of a call.

        Raises:
            ToolFailed: It failed for certain.
            ToolNotRun: It certainly did nothing.
            ToolOutcomeUnknown: Whether it happened is not known.
            Exception: The attempt broke; for a write that means the same.
        """
        found = self._tools[tool.name]
        attempt = _Attempt(found, self._opened(found.connection), found.operation)
        call = attempt.call(
            context.call_id,
            {**arguments, **found.fixed},
            deadline=context.deadline,
            attempt_number=context.attempt,
            report_progress=context.report_progress,
        )
        outcome = await attempt.run(call)
        return _result(found.operation, outcome)

    async def reconcile(
        self,
        tool: ToolDefinition,
        arguments: Mapping[str, JsonValue],
        context: ReconcileContext,
    ) -> Reconciliation:
        """Look up at the provider what became of a write.

        Raises:
            Exception: The look-up broke.
        """
        found = self._tools[tool.name]
        rule = found.operation.idempotency.reconcile
        if rule is None:
            return Reconciliation(happened=None, note="The connector has no way to look it up.")
        query = found.connector.manifest.operations_by_id[rule.operation]
        attempt = _Attempt(found, self._opened(found.connection), query)
        call = attempt.call(
            context.call_id,
            {**arguments, **found.fixed},
            deadline=None,
            attempt_number=1,
            created_at=context.created_at,
        )
        outcome = await asyncio.wait_for(attempt.run(call), query.execution.timeout)
        if query.record_of(outcome.branch) is RecordedAs.SUCCEEDED:
            return Reconciliation(happened=True, result=_value(outcome), note=outcome.message)
        if outcome.branch == "defect":
            raise RuntimeError(outcome.message or "the connector has a defect")
        return Reconciliation(happened=False if rule.conclusive else None, note=outcome.message)

    def forget_tools(self, source: str) -> None:
        """Do nothing: its tools are those of its definition."""

    async def aclose(self) -> None:
        """Close all connections of this loop, whichever source opened them."""
        for connection in _open.pop(asyncio.get_running_loop(), {}).values():
            await connection.aclose()

    def _started(self) -> Mapping[str, Connection]:
        if self._connections is None:
            self.start()
        return self._connections or {}

    def _opened(self, name: str) -> OpenConnection:
        connection = self._started().get(name)
        if connection is None:
            raise ToolNotRun(f"this worker has no connection {name!r}")
        opened = _open.setdefault(asyncio.get_running_loop(), {})
        place = (connection.reader, name)
        if place not in opened:
            opened[place] = OpenConnection.of(connection)
        return opened[place]

    def __repr__(self) -> str:
        return f"ConnectorToolSource({list(self._tools)})"


def _defined(tool: ConnectorTool, connection: Connection) -> ToolDefinition:
    try:
        return tool.on(connection.connector(connection.configuration))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{connection.place}: connection {connection.name!r}: {error}"
        ) from error


@lru_cache(maxsize=1)
def _worker_connections(file: Path | None) -> Connections:
    return Connections(file)


class _Attempt:
    """One attempt of an operation, and what is said of its end.

    Args:
        tool: The tool.
        opened: Its connection.
        operation: The operation; for reconciling another one than the tool's.
    """

    def __init__(self, tool: ConnectorTool, opened: OpenConnection, operation: Operation) -> None:
        self._opened = opened
        self._operation = operation
        self._connector = tool.connector.manifest.name
        self._key_of = tool.operation.id
        self._dispatch = Dispatch()
        self._credentials: Mapping[str, Secret] = {}

    def call(
        self,
        call_id: str,
        arguments: Mapping[str, JsonValue],
        *,
        deadline: float | None,
        attempt_number: int,
        created_at: float | None = None,
        report_progress: Callable[[str], None] = lambda _text: None,
    ) -> Call:
        """Read the credentials and make what the connector is given.

        Raises:
            ToolNotRun: They cannot be read now.
        """
        try:
            self._credentials = self._opened.connection.credentials()
        except ConfigurationError as error:
            raise ToolNotRun(str(error)) from error
        return Call(
            id=call_id,
            arguments=arguments,
            idempotency_key=f"{self._connector}.{self._key_of}/{call_id}",
            credentials=self._credentials,
            http=ProviderHttp(self._opened.pool, deadline, self._dispatch),
            attempt=attempt_number,
            created_at=created_at,
            report_progress=report_progress,
        )

    async def run(self, call: Call) -> Outcome:
        """Run it, and take the credentials out of whatever it says."""
        clean = Redactor(secret.reveal() for secret in self._credentials.values())
        try:
            outcome = await self._opened.connector.run(self._operation.id, call)
        except ToolNotRun as error:
            raise ToolNotRun(
                clean(str(error)), retry_after_seconds=error.retry_after_seconds
            ) from None
        except ToolFailed as error:
            raise ToolFailed(clean(str(error))) from None
        except ToolOutcomeUnknown as error:
            raise ToolOutcomeUnknown(
                clean(str(error)),
                retry_after_seconds=error.retry_after_seconds,
                repeatable=error.repeatable,
            ) from None
        except Exception as error:  # noqa: BLE001 - whatever breaks is this attempt's outcome
            raise self._broken(error, clean) from None
        return Outcome(outcome.branch, _cleaned(outcome.value, clean), clean(outcome.message))

    def _broken(self, error: Exception, clean: Redactor) -> Exception:
        """Say what a broken attempt means: before its request left, nothing was done."""
        text = clean(f"{type(error).__name__}: {error}")[:500]
        if self._dispatch.begun or not self._opened.connector.sends_only_by_http:
            return ToolOutcomeUnknown(text)
        _log.error("A defect of the connector %s: %s", self._connector, text)
        return ToolNotRun(f"a defect of the connector: {text}")


def _require_tools(tools: Sequence[ConnectorTool]) -> None:
    names: set[str] = set()
    connectors: dict[str, type[Connector]] = {}
    for tool in tools:
        if not isinstance(tool, ConnectorTool):
            raise DefinitionError(f"ConnectorToolSource: {tool!r} is none; use connector_tool(…)")
        if tool.definition.name in names:
            raise DefinitionError(
                f"ConnectorToolSource: two tools are named {tool.definition.name!r}; give one a `name`"
            )
        names.add(tool.definition.name)
        if connectors.setdefault(tool.connection, tool.connector) is not tool.connector:
            raise DefinitionError(
                f"ConnectorToolSource: the connection {tool.connection!r} is used for two connectors"
            )


def _result(operation: Operation, outcome: Outcome) -> ToolResult:
    record = operation.record_of(outcome.branch)
    if record is RecordedAs.SUCCEEDED:
        return ToolResult(_value(outcome))
    said = f"{outcome.branch}: {outcome.message}" if outcome.message else outcome.branch
    if record is RecordedAs.OUTCOME_UNKNOWN:
        raise ToolOutcomeUnknown(said, repeatable=False)
    if operation.kind is Kind.QUERY and not any(
        branch.id == outcome.branch for branch in operation.branches
    ):
        said += " (the manifest does not declare this branch)"
    raise ToolFailed(said)


def _value(outcome: Outcome) -> JsonValue:
    """Return what the model reads: the branch first, since it may say more than "it worked"."""
    if isinstance(outcome.value, dict):
        return {"branch": outcome.branch, **outcome.value}
    return {"branch": outcome.branch, "value": outcome.value}


def _cleaned(value: JsonValue, clean: Redactor) -> JsonValue:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item, clean) for item in value]
    if isinstance(value, dict):
        return {clean(key): _cleaned(item, clean) for key, item in value.items()}
    return value
