"""The file that CELERIAC_MCP_CONFIG names: strict, without secrets, with the place of each fault."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from celeriac.connectors.mcp_config import (
    HttpServer,
    McpConfig,
    StdioServer,
    ToolRules,
    load_mcp_config,
    values_of,
)
from celeriac.connectors.mcp_source import McpToolSource
from celeriac.sessions.errors import ConfigurationError, DefinitionError
from celeriac.sessions.settings import load_settings

GOOD = """
servers:
  git:
    command: mcp-server-git
    args: [--repository, .]
    cwd: repo
    trust_annotations: true
    tools:
      deny: [git_reset]
      approval: {git_add: never, "*": always}
  search-api:
    url: https://search.example/mcp?key=hidden
    headers: {Authorization: SEARCH_AUTHORIZATION}
    idle_seconds: 5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mcp.yaml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def fault(folder: Path, text: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_mcp_config(written(folder, text))
    return str(caught.value)


def test_a_good_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEARCH_AUTHORIZATION", "Bearer tok-1")
    config = load_mcp_config(written(tmp_path, GOOD))
    git, search = config.servers["git"], config.servers["search-api"]
    assert isinstance(git, StdioServer)
    assert git.cwd == str(tmp_path / "repo")
    assert not git.tools.allows("git_reset")
    assert isinstance(search, HttpServer)
    assert search.idle_seconds == 5
    assert values_of("search-api", search) == {"SEARCH_AUTHORIZATION": "Bearer tok-1"}
    # Read anew: a rotated value needs no restart.
    monkeypatch.setenv("SEARCH_AUTHORIZATION", "Bearer tok-2")
    assert values_of("search-api", search) == {"SEARCH_AUTHORIZATION": "Bearer tok-2"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("servers:\n  git: {command: x, retries: 3}", "servers.git.retries: there is no such key"),
        ("servers:\n  git: {args: []}", "servers.git.command: it is missing"),
        (
            "servers:\n  git: {command: x, tools: {allowed: []}}",
            "servers.git.tools.allowed: there is no",
        ),
        (
            "servers:\n  git: {command: x, url: 'http://h/'}",
            "servers.git.command: there is no such",
        ),
        ("servers:\n  git: {command: x, idle_seconds: soon}", "servers.git.idle_seconds: "),
        ("servers:\n  git: {command: x, idle_seconds: 0}", "servers.git.idle_seconds: "),
        ("servers:\n  git: {command: x, trust_annotations: 1}", "servers.git.trust_annotations: "),
        (
            "servers:\n  git: {command: x, tools: {approval: {a: ask}}}",
            "servers.git.tools.approval",
        ),
        ("servers:\n  a__b: {command: x}", "servers.a__b: a name is a letter"),
        ("servers:\n  git: {url: 'ftp://h/'}", "it must be an http:// or https:// address"),
        ("servers:\n  git: {url: 'http://a:b@h/'}", "it must hold no name or password"),
        ("servers:\n  git: {command: x}\n  git: {command: y}", "the key 'git' stands twice"),
        ("servers: [", "is no YAML"),
        ("server: {}", "must have one key, `servers`"),
        ("servers:\n  git: just-a-word", "servers.git: "),
        (
            "servers:\n  git: {command: x, env: {TOKEN: NOT_SET_ANYWHERE}}",
            "servers.git.env.TOKEN: the worker's variable NOT_SET_ANYWHERE is not set",
        ),
        (
            "servers:\n  web: {url: 'http://h/', headers: {X-Key: NOT_SET_ANYWHERE}}",
            "servers.web.headers.X-Key: the worker's variable NOT_SET_ANYWHERE is not set",
        ),
        (
            "servers:\n  git: {command: x, env: {TOKEN: 'sk live-value'}}",
            "servers.git.env.TOKEN: Value error, write the NAME of a variable",
        ),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    assert told in fault(tmp_path, text)


def test_a_value_that_stands_where_a_variable_belongs_is_not_shown(tmp_path: Path) -> None:
    text = "servers:\n  git: {command: x, env: {TOKEN: 'sk live-value'}}"
    assert "live-value" not in fault(tmp_path, text)


def test_every_fault_is_told_at_once(tmp_path: Path) -> None:
    told = fault(tmp_path, "servers:\n  a: {command: x, b: 1}\n  c: {command: x, d: 1}")
    assert "servers.a.b" in told
    assert "servers.c.d" in told


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"CELERIAC_MCP_CONFIG: .*none.yaml cannot be read"
    ):
        load_mcp_config(tmp_path / "none.yaml")


def test_a_file_that_others_may_write_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path, "servers: {}")
    path.chmod(0o666)
    with caplog.at_level(logging.WARNING):
        load_mcp_config(path)
    assert "chmod go-w" in caplog.text


def test_what_is_printed_holds_no_secret() -> None:
    server = StdioServer(
        command="db",
        args=["--url", "postgres://u:pw-1@h/db", "--api-key", "k-2", "--token=k-3", "--depth", "2"],
    )
    assert server.printable() == "stdio: db --url … --api-key … --token=… --depth 2"
    assert HttpServer(url="https://h/mcp?key=k-4").printable() == "http: https://h/mcp?…"
    printed = f"{server} {server!r} {McpConfig(path=None, servers={'db': server})!r}"
    assert not re.search(r"pw-1|k-\d", printed)


def test_rules_of_tools() -> None:
    rules = ToolRules(
        allow=["git_*"], deny=["git_reset"], approval={"git_add": "never", "git_*": "always"}
    )
    assert [rules.allows(name) for name in ("git_log", "git_reset", "rm")] == [True, False, False]
    assert rules.approval_of("git_add", otherwise=True) is False
    assert rules.approval_of("git_log", otherwise=False) is True
    assert rules.approval_of("other", otherwise=True) is True


def test_a_source_names_servers_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "servers:\n  git: {command: x}\n  files: {command: y}")
    monkeypatch.setenv("CELERIAC_MCP_CONFIG", str(path))
    load_settings.cache_clear()
    try:
        assert list(McpToolSource().servers) == ["git", "files"]
        assert list(McpToolSource(["files"]).servers) == ["files"]
        with pytest.raises(ConfigurationError, match=r"no MCP server 'gti': .* has git, files"):
            McpToolSource(["gti"])
        with pytest.raises(DefinitionError, match="write a list"):
            McpToolSource("git")
        monkeypatch.delenv("CELERIAC_MCP_CONFIG")
        load_settings.cache_clear()
        assert list(McpToolSource().servers) == []
        with pytest.raises(ConfigurationError, match="CELERIAC_MCP_CONFIG is not set"):
            McpToolSource(["git"])
    finally:
        load_settings.cache_clear()


OAUTH = "servers:\n  web: {url: 'https://h/mcp', oauth: {%s}}"
OWN_NAME = "grant: client_credentials, client_id_env: WEB_ID, client_secret_env: WEB_SECRET"


def test_oauth_in_the_workers_name_and_with_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_ID", "worker-7")
    monkeypatch.setenv("WEB_SECRET", "hidden-secret")
    text = OAUTH % f"{OWN_NAME}, issuer: 'https://auth.example', scopes: ['mcp:use', a/b.c]"
    server = load_mcp_config(written(tmp_path, text)).servers["web"]
    assert isinstance(server, HttpServer)
    assert server.oauth is not None
    assert not server.oauth.is_login
    values = {"WEB_ID": "worker-7", "WEB_SECRET": "hidden-secret"}
    assert values_of("web", server) == values
    assert str(server) == "<http: https://h/mcp (OAuth: client_credentials)>"
    login = HttpServer.model_validate(
        {"url": "https://h", "oauth": {"grant": "authorization_code"}}
    )
    assert login.oauth is not None
    assert login.oauth.is_login
    assert login.variables == {}


@pytest.mark.parametrize(
    ("oauth", "told"),
    [
        ("grant: password", "servers.web.oauth.grant: "),
        ("scopes: [a]", "servers.web.oauth.grant: it is missing"),
        ("grant: authorization_code, client_id: abc", "oauth.client_id: there is no such key"),
        (
            "grant: authorization_code, client_id_env: NOT_SET_ANYWHERE",
            "servers.web.oauth.client_id_env: the worker's variable NOT_SET_ANYWHERE is not set",
        ),
        (
            "grant: authorization_code, client_secret_env: 'sk live-value'",
            "write the NAME of a variable",
        ),
        (OWN_NAME, "a secret or key needs `issuer`"),
        ("grant: client_credentials", "client_credentials needs `client_id_env` with"),
        (
            "grant: authorization_code, issuer: 'https://a', client_secret_env: PATH",
            "a secret or key needs `client_id_env`",
        ),
        (
            f"{OWN_NAME}, issuer: 'https://a', private_key_env: PATH",
            "`client_secret_env` or `private_key_env`, not both",
        ),
        (
            f"{OWN_NAME}, issuer: 'https://a', redirect_uri: 'http://localhost:1/'",
            "`redirect_uri` are for the grant authorization_code",
        ),
        (
            "grant: authorization_code, redirect_uri: 'http://evil.example:1/'",
            "servers.web.oauth.redirect_uri: ",
        ),
        (
            "grant: authorization_code, client_metadata_url: 'http://h/me.json'",
            "servers.web.oauth.client_metadata_url: ",
        ),
        ("grant: authorization_code, scopes: ['a b']", "servers.web.oauth.scopes.0: "),
    ],
)
def test_a_fault_in_oauth_is_named_with_its_place(tmp_path: Path, oauth: str, told: str) -> None:
    said = fault(tmp_path, OAUTH % oauth)
    assert told in said
    assert "live-value" not in said


def test_oauth_and_a_header_of_ones_own_exclude_each_other(tmp_path: Path) -> None:
    text = OAUTH.replace("oauth:", "headers: {authorization: PATH}, oauth:")
    assert "not both" in fault(tmp_path, text % "grant: authorization_code")
