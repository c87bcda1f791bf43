"""Which MCP servers a worker may use: the file that ``CELERIAC_MCP_CONFIG`` names.

It is trusted configuration: it says what programs are started. It holds no secrets: values of environment
variables and headers are *names* of variables of the worker, and are read when a connection is opened.
"""

from __future__ import annotations

import fnmatch
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit, urlunsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from celeriac.connectors.mcp_names import SERVER_NAME_PATTERN
from celeriac.sessions.errors import ConfigurationError

__all__ = [
    "HttpServer",
    "McpConfig",
    "McpServer",
    "OAuth",
    "StdioServer",
    "ToolRules",
    "load_mcp_config",
    "values_of",
]

_log = logging.getLogger(__name__)

SETTING = "CELERIAC_MCP_CONFIG"

_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
_SECRET_WORD = re.compile(r"token|secret|passw|api.?key|credential|auth", re.IGNORECASE)

Seconds = Annotated[float, Field(gt=0, le=86_400)]


def _is_variable(name: str) -> str:
    # Strict and without the text: it may be a secret that stands where its variable's name belongs.
    if _VARIABLE.fullmatch(name) is None:
        raise ValueError("write the NAME of a variable of the worker, in capitals, not the value")
    return name


VariableName = Annotated[str, AfterValidator(_is_variable)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ToolRules(_Strict):
    """Which of a server's tools agents get, and which ask first; patterns are shell patterns of original names."""

    allow: list[str] = Field(default_factory=lambda: ["*"])
    deny: list[str] = Field(default_factory=list)
    """Stronger than `allow`."""
    approval: dict[str, Literal["always", "never"]] = Field(default_factory=dict)
    """The first pattern that fits decides; a tool that none fits asks unless it is a trusted read or
    idempotent write."""

    def allows(self, tool: str) -> bool:
        """Whether agents get the tool of this original name."""
        return _fits(tool, self.allow) and not _fits(tool, self.deny)

    def approval_of(self, tool: str, *, otherwise: bool) -> bool:
        """Whether a call of the tool asks a person first."""
        for pattern, word in self.approval.items():
            if _fits(tool, [pattern]):
                return word == "always"
        return otherwise


def _fits(tool: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(tool, pattern) for pattern in patterns)


class _Server(_Strict):
    trust_annotations: bool = False
    """Whether ``readOnlyHint`` and ``idempotentHint`` count; else every tool is a write that asks."""
    tools: ToolRules = Field(default_factory=ToolRules)
    connect_seconds: Seconds = 30
    """Longest time from starting or reaching the server to the end of its handshake."""
    idle_seconds: Seconds = 120
    """Longest silence of a running call; each progress report begins it anew."""
    total_seconds: Seconds = 600
    """Longest time of one call, waits for the server included."""
    list_seconds: Seconds = 300
    """How long a list of tools is used unless the server says that it changed or names a time of its own."""
    max_concurrent_calls: Annotated[int, Field(ge=1, le=1000)] = 16
    """Calls that one worker process makes at a time; others wait."""
    protocol: Literal["auto", "legacy"] = "auto"
    """``legacy`` begins with ``initialize`` at once, for a server that cannot bear to be asked what it speaks."""

    def printable(self) -> str:
        """Say what it is, without what may be secret."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.printable()}>"

    __str__ = __repr__


class StdioServer(_Server):
    """A program that this worker starts and talks to over its standard input and output."""

    command: Annotated[str, Field(min_length=1)]
    args: list[str] = Field(default_factory=list)
    cwd: str | None = None
    """Folder to start it in; a relative one is below the configuration file's."""
    env: dict[str, VariableName] = Field(default_factory=dict)
    """The program's variable → the worker's variable that holds the value."""

    @property
    def variables(self) -> Mapping[str, str]:
        """What is taken from the worker's environment: for what → variable."""
        return {f"env.{name}": variable for name, variable in self.env.items()}

    def printable(self) -> str:
        """Say what it is, without what may be secret."""
        return f"stdio: {' '.join([self.command, *_masked(self.args)])}"


def _is_web_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must be an http:// or https:// address")
    if parts.username or parts.password:
        raise ValueError("it must hold no name or password; use `headers`")
    return url


WebAddress = Annotated[str, AfterValidator(_is_web_address)]


class OAuth(_Strict):
    """How a worker gets the access tokens that an HTTP server wants.

    Whatever is left out is found out from the server: its authorisation server, the scopes, and, for a login,
    how a client registers there.
    """

    grant: Literal["authorization_code", "client_credentials"]
    """``authorization_code``: a person logs in once, with ``celeriac mcp login``; ``client_credentials``: the
    worker asks in its own name."""
    issuer: WebAddress | None = None
    """The authorisation server that the client belongs to. A secret or key needs it: it is sent to no other."""
    client_id_env: VariableName | None = None
    client_secret_env: VariableName | None = None
    private_key_env: VariableName | None = None
    """Holds a private key as PEM, which signs what is sent instead of a secret (``private_key_jwt``)."""
    signing_algorithm: Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"] = (
        "RS256"
    )
    token_endpoint_auth_method: Literal["client_secret_basic", "client_secret_post"] = (
        "client_secret_basic"  # noqa: S105 - the name of a method
    )
    """How the secret of `client_secret_env` is sent."""
    client_metadata_url: Annotated[str, Field(pattern=r"^https://[^/]+/.+")] | None = None
    """Where a document about this client is published; the address is then its id, where servers support that."""
    scopes: list[Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")]] = Field(default_factory=list)
    """Asked for in any case; without them what the server says it wants."""
    redirect_uri: (
        Annotated[
            str, Field(pattern=r"^http://(127\.0\.0\.1|localhost):\d{1,5}/[A-Za-z0-9/._~-]*$")
        ]
        | None
    ) = None
    """Where the browser comes back to on the machine of the login, where that was registered; else any free port."""

    @property
    def is_login(self) -> bool:
        """Whether a person has to log in."""
        return self.grant == "authorization_code"

    @model_validator(mode="after")
    def _fits(self) -> OAuth:
        has_secret = self.client_secret_env or self.private_key_env
        if self.client_secret_env and self.private_key_env:
            raise ValueError("use `client_secret_env` or `private_key_env`, not both")
        if has_secret and not self.client_id_env:
            raise ValueError("a secret or key needs `client_id_env`")
        if has_secret and not self.issuer:
            raise ValueError(
                "a secret or key needs `issuer`: the server alone must not say who gets it"
            )
        if self.is_login and self.private_key_env:
            raise ValueError("`private_key_env` is for the grant client_credentials")
        if not self.is_login and not has_secret:
            raise ValueError(
                "client_credentials needs `client_id_env` with `client_secret_env` or `private_key_env`"
            )
        if not self.is_login and (self.client_metadata_url or self.redirect_uri):
            raise ValueError(
                "`client_metadata_url` and `redirect_uri` are for the grant authorization_code"
            )
        return self


class HttpServer(_Server):
    """A server that is reached over Streamable HTTP."""

    url: WebAddress
    headers: dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], VariableName] = Field(
        default_factory=dict
    )
    """Header → the worker's variable that holds its whole value."""
    oauth: OAuth | None = None

    @model_validator(mode="after")
    def _has_one_authorization(self) -> HttpServer:
        if self.oauth and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("use `oauth` or the header Authorization, not both")
        return self

    @property
    def variables(self) -> Mapping[str, str]:
        """What is taken from the worker's environment: for what → variable."""
        found = {f"headers.{name}": variable for name, variable in self.headers.items()}
        if self.oauth is not None:
            for key in ("client_id_env", "client_secret_env", "private_key_env"):
                variable = getattr(self.oauth, key)
                if variable is not None:
                    found[f"oauth.{key}"] = variable
        return found

    def printable(self) -> str:
        """Say what it is, without what may be secret."""
        parts = urlsplit(self.url)
        query = "…" if parts.query else ""
        address = urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
        return f"http: {address}{f' (OAuth: {self.oauth.grant})' if self.oauth else ''}"


McpServer = StdioServer | HttpServer


def _masked(arguments: list[str]) -> Iterator[str]:
    mask_next = False
    for argument in arguments:
        name, equals, _value = argument.partition("=")
        if mask_next or ("://" in argument and "@" in argument):
            yield "…"
        elif equals and _SECRET_WORD.search(name):
            yield f"{name}=…"
        else:
            yield argument
        mask_next = argument.startswith("-") and not equals and bool(_SECRET_WORD.search(argument))


class McpConfig(BaseModel):
    """The servers by name, in the order of the file."""

    model_config = ConfigDict(frozen=True)

    path: Path | None
    servers: Mapping[str, McpServer]

    def chosen(self, names: tuple[str, ...] | None) -> Mapping[str, McpServer]:
        """Return the servers of these names; None means all.

        Raises:
            ConfigurationError: There is none of such a name.
        """
        if names is None:
            return self.servers
        for name in names:
            if name not in self.servers:
                has = ", ".join(self.servers) or "none"
                where = f"{self.path} has {has}" if self.path else f"{SETTING} is not set"
                raise ConfigurationError(f"There is no MCP server {name!r}: {where}.")
        return {name: self.servers[name] for name in names}


def load_mcp_config(path: Path | None) -> McpConfig:
    """Read and check the servers; a file is read once in a process.

    Args:
        path: The file; None means that there are no servers.

    Returns:
        The servers.

    Raises:
        ConfigurationError: The file cannot be read, something in it is unknown or wrong, or a variable that it
            names is not set; the message names the place.
    """
    return _load(path.resolve()) if path is not None else McpConfig(path=None, servers={})


@lru_cache(maxsize=8)
def _load(path: Path) -> McpConfig:
    raw = _read(path)
    if not isinstance(raw, dict) or set(raw) != {"servers"} or not isinstance(raw["servers"], dict):
        raise ConfigurationError(
            f"{SETTING}: {path} must have one key, `servers`, with each server by name."
        )
    servers: dict[str, McpServer] = {}
    faults: list[str] = []
    for name, entry in raw["servers"].items():
        if not isinstance(name, str) or SERVER_NAME_PATTERN.fullmatch(name) is None:
            faults.append(
                f"servers.{name}: a name is a letter, then letters, digits, - and single _; at most 32"
            )
            continue
        try:
            servers[name] = _server(entry, path.parent)
        except ValidationError as error:
            faults += [_told(name, item) for item in error.errors(include_url=False)]
    for name, server in servers.items():
        faults += _unset(name, server)
    if faults:
        raise ConfigurationError(f"{SETTING}: {path} cannot be used:\n  " + "\n  ".join(faults))
    return McpConfig(path=path, servers=servers)


def _unset(name: str, server: McpServer) -> list[str]:
    return [
        f"servers.{name}.{what}: the worker's variable {variable} is not set"
        for what, variable in server.variables.items()
        if variable not in os.environ
    ]


def values_of(name: str, server: McpServer) -> dict[str, str]:
    """Read the values that a server is given; for each session anew, so that they may change.

    Args:
        name: The server's name, for the message.
        server: The server.

    Returns:
        The values by variable of this worker.

    Raises:
        ConfigurationError: One is not set any more.
    """
    faults = _unset(name, server)
    if faults:
        raise ConfigurationError(f"{SETTING}: {'; '.join(faults)}")
    return {variable: os.environ[variable] for variable in server.variables.values()}


def _server(entry: object, folder: Path) -> McpServer:
    if isinstance(entry, dict) and "url" in entry:
        return HttpServer.model_validate(entry)
    server = StdioServer.model_validate(entry)
    if server.cwd is None:
        return server
    return server.model_copy(update={"cwd": str(folder / Path(server.cwd).expanduser())})


def _told(name: str, item: Mapping[str, object]) -> str:
    loc = cast("tuple[object, ...]", item["loc"])
    place = ".".join(["servers", name, *(str(part) for part in loc)])
    if item["type"] == "extra_forbidden":
        return f"{place}: there is no such key"
    if item["type"] == "missing":
        return f"{place}: it is missing (a server has `command` or `url`)"
    return f"{place}: {item['msg']}"


def _read(path: Path) -> object:
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{SETTING}: {path} cannot be read: {error}") from error
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        _log.warning(
            "%s says which programs a worker starts, and others than its owner may write it: chmod go-w %s",
            path,
            path,
        )
    try:
        from celeriac.connectors.strict_yaml import load_yaml  # noqa: PLC0415 - of the extra `mcp`
    except ImportError as error:
        raise ConfigurationError(
            f"{SETTING} needs the extra `mcp`: pip install 'celeriac[mcp]' ({error})"
        ) from error
    try:
        return load_yaml(text)
    except ValueError as error:
        raise ConfigurationError(f"{SETTING}: {path} is no YAML: {error}") from error
