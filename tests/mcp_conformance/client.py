"""What the suite runs: ``client.py URL`` configures the server as a worker's operator would, and uses its tools.

All that speaks with the server is Celeriac's own: the configuration file, `McpToolSource` with its pool, and
``celeriac mcp login``. This program is the operator, the model and the person with the browser.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import httpx
import yaml
from pydantic import JsonValue

from celeriac.connectors.mcp_config import load_mcp_config
from celeriac.connectors.mcp_source import McpToolSource
from celeriac.sessions.errors import ToolNotRun
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.tools import ToolContext, ToolDefinition, ToolListing
from celeriac.tasks.mcp_login import log_in

_NAME = "suite"
_PUBLISHED = "https://conformance-test.local/client-metadata.json"
"""What the suite takes for the address of a client's document; nobody fetches it."""
_ARGUMENTS: dict[str, JsonValue] = {"number": 2, "integer": 2, "string": "two", "boolean": True}
_LOGIN = "celeriac mcp login"

Answer = TypeVar("Answer")


def main(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    context: dict[str, str] = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    path = settings.data_dir / "mcp.yaml"
    server = {"url": url, **({"oauth": _oauth(scenario, url, context)} if "/" in scenario else {})}
    path.write_text(yaml.safe_dump({"servers": {_NAME: server}}))
    settings = settings.model_copy(update={"mcp_config": path})
    listing = _as_a_person_would(settings, path, _list, lambda found: " ".join(found.unlisted))
    for tool in listing.tools:
        _as_a_person_would(settings, path, _caller(tool), str)
    return 1 if listing.unlisted else 0


def _oauth(scenario: str, url: str, context: dict[str, str]) -> dict[str, str]:
    """Configure what whoever registered the client would know."""
    login = not scenario.startswith("auth/client-credentials")
    oauth = {"grant": "authorization_code" if login else "client_credentials"}
    if scenario == "auth/basic-cimd":
        oauth["client_metadata_url"] = _PUBLISHED
    if scenario == "auth/2025-03-26-oauth-metadata-backcompat":
        oauth["issuer"] = _origin(url) + "/oauth"
    if not context:
        return oauth
    oauth["issuer"] = _issuer(url)
    oauth["client_id_env"] = _variable("SUITE_CLIENT_ID", context["client_id"])
    if "client_secret" in context:
        oauth["client_secret_env"] = _variable("SUITE_CLIENT_SECRET", context["client_secret"])
    else:
        oauth["private_key_env"] = _variable("SUITE_KEY", context["private_key_pem"])
        oauth["signing_algorithm"] = context["signing_algorithm"]
    return oauth


def _variable(name: str, value: str) -> str:
    os.environ[name] = value
    return name


def _issuer(url: str) -> str:
    """The suite does not say where its clients are registered."""
    metadata = f"{_origin(url)}/.well-known/oauth-protected-resource{urlsplit(url).path}"
    return str(httpx.get(metadata).raise_for_status().json()["authorization_servers"][0])


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _as_a_person_would(
    settings: Settings,
    path: Path,
    use: Callable[[McpToolSource], Awaitable[Answer]],
    told: Callable[[Answer], str],
) -> Answer:
    """Use the server; log in where its answer says so, and try once more."""
    answer = asyncio.run(_used(path, use))
    if _LOGIN in told(answer):
        with contextlib.redirect_stdout(_Terminal()):
            log_in(settings, _NAME)
        answer = asyncio.run(_used(path, use))
    sys.stderr.write(f"{told(answer)}\n")
    return answer


async def _used(path: Path, use: Callable[[McpToolSource], Awaitable[Answer]]) -> Answer:
    source = McpToolSource(config=load_mcp_config(path), patience_seconds=60)
    try:
        return await use(source)
    finally:
        await source.aclose()


async def _list(source: McpToolSource) -> ToolListing:
    return await source.list_tools()


def _caller(tool: ToolDefinition) -> Callable[[McpToolSource], Awaitable[str]]:
    async def call(source: McpToolSource) -> str:
        await source.list_tools()
        try:
            return str(await source.call(tool, _arguments(tool), ToolContext("s", "c", "key-1", 1)))
        except ToolNotRun as error:
            return str(error)

    return call


def _arguments(tool: ToolDefinition) -> dict[str, JsonValue]:
    properties = tool.input_schema.get("properties", {})
    assert isinstance(properties, dict)
    return {
        name: _ARGUMENTS[str(schema["type"])]
        for name, schema in properties.items()
        if isinstance(schema, dict)
    }


class _Terminal(io.StringIO):
    """Where the command talks to a person: they open each address that it shows, in a browser."""

    def write(self, text: str) -> int:
        for address in re.findall(r"^\s+(https?://\S+)$", text, re.MULTILINE):
            threading.Thread(
                target=httpx.get, args=[address], kwargs={"follow_redirects": True}
            ).start()
        return super().write(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
