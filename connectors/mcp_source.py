"""`McpToolSource`: the tools of MCP servers, as an agent's definition names them.

Importing this loads neither the SDK nor YAML; making a source that has servers does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pydantic import JsonValue

from celeriac.connectors.mcp_config import McpConfig, McpServer, load_mcp_config
from celeriac.sessions.errors import ConfigurationError, DefinitionError
from celeriac.sessions.settings import load_settings
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolListing, ToolResult

if TYPE_CHECKING:
    from celeriac.connectors.mcp_pool import McpPool, PooledServer

__all__ = ["McpToolSource"]

# A pool belongs to a loop, and a process has one for all its agents.
_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, McpPool] = WeakKeyDictionary()


class McpToolSource:
    """The tools of some MCP servers of the worker's configuration (``CELERIAC_MCP_CONFIG``).

    Args:
        servers: Names of servers; None means all there are, which may be none.
        resource_and_prompt_tools_enabled: Whether the agent also gets the tools that list and read resources and
            get prompts, as far as the servers have any.
        patience_seconds: How long a list of tools waits for a server that is slow to start; then the model is
            asked without its tools, and the server is waited for meanwhile.
        config: Other servers than those of the worker's configuration.

    Raises:
        ConfigurationError: The configuration cannot be used, or has no server of such a name.
        DefinitionError: `servers` is a single text.
    """

    def __init__(
        self,
        servers: Sequence[str] | None = None,
        *,
        resource_and_prompt_tools_enabled: bool = True,
        patience_seconds: float = 5,
        config: McpConfig | None = None,
    ) -> None:
        if isinstance(servers, str):
            raise DefinitionError(f"McpToolSource({servers!r}): write a list: [{servers!r}]")
        if config is None:
            config = load_mcp_config(load_settings().mcp_config)
        self._servers = config.chosen(None if servers is None else tuple(servers))
        self._resources = resource_and_prompt_tools_enabled
        self._patience = patience_seconds
        if self._servers:
            _load_sdk()

    @property
    def servers(self) -> Mapping[str, McpServer]:
        """The servers by name."""
        return self._servers

    async def list_tools(self) -> ToolListing:
        """Return the tools of all servers that can list theirs now, and what is missing."""
        if not self._servers:
            return ToolListing(())
        from celeriac.connectors.mcp_listing import list_servers  # noqa: PLC0415 - loads the SDK

        return await list_servers(self._pooled(), self._patience, resources=self._resources)

    async def call(
        self, tool: ToolDefinition, arguments: Mapping[str, JsonValue], context: ToolContext
    ) -> ToolResult:
        """Run one attempt of a call.

        Raises:
            ToolFailed: It failed for certain.
            ToolNotRun: It certainly did not run.
            Exception: Whether it ran is not known.
        """
        from celeriac.connectors.mcp_listing import call_listed  # noqa: PLC0415 - loads the SDK

        return await call_listed(self._pooled(), tool, arguments, context)

    def forget_tools(self, source: str) -> None:
        """List a server's tools anew when they are next wanted."""
        pool = _pools.get(asyncio.get_running_loop())
        if pool is not None and source in self._servers:
            pool.server(source, self._servers[source]).forget_catalogue()

    async def aclose(self) -> None:
        """End all sessions of this loop's pool, whichever source opened them."""
        pool = _pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def _pooled(self) -> list[PooledServer]:
        from celeriac.connectors.mcp_pool import McpPool  # noqa: PLC0415 - loads the SDK

        pool = _pools.setdefault(asyncio.get_running_loop(), McpPool())
        return [pool.server(name, server) for name, server in self._servers.items()]

    def __repr__(self) -> str:
        return f"McpToolSource({list(self._servers)})"


def _load_sdk() -> None:
    try:
        import_module("celeriac.connectors.mcp_listing")
    except ImportError as error:
        raise ConfigurationError(
            f"MCP servers need the extra `mcp`: pip install 'celeriac[mcp]' ({error})"
        ) from error
