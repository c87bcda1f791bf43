"""``celeriac mcp login | logout | list`` with a real authorisation server; the person is an HTTP client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from celeriac.connectors.mcp_config import HttpServer
from tests.connectors.mcp_talk import http_server
from tests.mcp_servers.oauth_world import World, world
from tests.tasks.cluster import free_port
from tests.tasks.mcp_cluster import write_config

CELERIAC = [sys.executable, "-c", "from celeriac.tasks.cli import main; main()"]
LOGIN = {"grant": "authorization_code"}


class Terminal:
    """Where the commands are typed: a folder, and a configuration."""

    def __init__(self, folder: Path, server: HttpServer) -> None:
        self._folder = folder
        config = write_config(folder / "mcp.yaml", {"guarded": server})
        self._environment = {**os.environ, "CELERIAC_MCP_CONFIG": str(config)}
        self._environment.pop("CELERIAC_MCP_TOKEN_DIR", None)
        self.tokens = folder / ".celeriac" / "mcp-tokens"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*CELERIAC, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )

    def listed(self) -> Mapping[str, JsonValue]:
        found: dict[str, dict[str, JsonValue]] = json.loads(
            self.run("mcp", "list", "--json").stdout
        )
        return found["guarded"]

    @contextmanager
    def logging_in(self) -> Iterator[Login]:
        with subprocess.Popen(
            [*CELERIAC, "mcp", "login", "guarded"],
            cwd=self._folder,
            env={**self._environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield Login(process)
            finally:
                process.kill()


class Login:
    """A login that goes on."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self._process = process
        for line in process.stdout:
            if line.startswith("  http"):
                self.address = line.strip()
                return
        pytest.fail(process.communicate()[1])

    def way_back(self) -> str:
        """Open the address in a browser, which is then sent on to this one."""
        answer = httpx.get(self.address)
        assert answer.status_code == 302, answer.text
        return answer.headers["location"]

    def paste(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=60)
        return self._process.returncode, out, err


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.fixture
def terminal(tmp_path: Path, here: World) -> Terminal:
    return Terminal(tmp_path, http_server(here.url, oauth=LOGIN))


def test_a_login_by_browser_and_what_the_list_says_of_it(terminal: Terminal, here: World) -> None:
    before = terminal.listed()
    assert before["login"] == "not logged in"
    assert "run `celeriac mcp login guarded`" in str(before["problem"])
    with terminal.logging_in() as login:
        assert login.address.startswith(f"{here.issuer}/authorize?")
        assert httpx.get(login.way_back()).text == "Go back to the terminal: it goes on there."
        code, out, err = login.end()
    assert code == 0, err
    assert "Logged in to guarded." in out
    (file,) = terminal.tokens.glob("*.json")
    assert str(file) in out
    after = terminal.run("mcp", "list")
    assert after.returncode == 0, after.stdout + after.stderr
    assert "(OAuth: authorization_code)" in after.stdout
    assert "\n    logged in\n" in after.stdout
    assert "guarded__echo  read, runs at once" in after.stdout
    for secret in here.issued:
        assert secret not in out + err + after.stdout + after.stderr
    assert terminal.run("mcp", "logout", "guarded").stdout.startswith("Deleted the tokens")
    assert not list(terminal.tokens.glob("*.json"))
    assert terminal.listed()["login"] == "not logged in"
    assert "There were no tokens" in terminal.run("mcp", "logout", "guarded").stdout


def test_a_login_by_a_pasted_address(terminal: Terminal) -> None:
    with terminal.logging_in() as login:
        back = login.way_back()
        login.paste("what do I paste here?")
        login.paste(back.replace("state=", "state=x"))
        login.paste(f"  {back}")
        code, out, err = login.end()
    assert code == 0, err
    assert out.count("That is not where this login came back to") == 2
    assert list(terminal.tokens.glob("*.json"))


def test_what_does_not_belong_to_the_login_is_turned_away(terminal: Terminal) -> None:
    with terminal.logging_in() as login:
        back = httpx.URL(login.way_back())
        assert httpx.get(back.copy_merge_params({"state": "stolen"})).status_code == 400
        assert httpx.get(back.copy_remove_param("state")).status_code == 400
        assert httpx.get(back.copy_with(path="/other")).status_code == 404
        assert httpx.post(back).status_code == 404
        assert httpx.get(back).status_code == 200
        assert login.end()[0] == 0


def test_a_login_that_the_person_refuses(terminal: Terminal) -> None:
    with terminal.logging_in() as login:
        state = httpx.URL(login.address).params["state"]
        back = httpx.URL(login.way_back()).copy_with(query=None)
        said = {"error": "access_denied", "error_description": "No, thanks", "state": state}
        httpx.get(back, params=said)
        code, _, err = login.end()
    assert code == 1
    assert "The login was refused (access_denied: No, thanks)." in err
    assert "Traceback" not in err
    assert not list(terminal.tokens.glob("*.json"))


def test_a_registered_way_back_is_used(tmp_path: Path, here: World) -> None:
    uri = f"http://localhost:{free_port()}/back/here"
    terminal = Terminal(tmp_path, http_server(here.url, oauth={**LOGIN, "redirect_uri": uri}))
    with terminal.logging_in() as login:
        assert httpx.URL(login.address).params["redirect_uri"] == uri
        back = login.way_back()
        assert back.startswith(f"{uri}?")
        busy = terminal.run("mcp", "login", "guarded")
        assert "Nothing can listen on localhost:" in busy.stderr
        httpx.get(back)
        assert login.end()[0] == 0


def test_servers_without_a_login(tmp_path: Path, here: World) -> None:
    terminal = Terminal(tmp_path, http_server(here.url))
    plain = terminal.run("mcp", "login", "guarded")
    assert plain.returncode == 1
    assert "MCP server guarded needs no login" in plain.stderr
    unknown = terminal.run("mcp", "login", "other")
    assert "There is no MCP server 'other'" in unknown.stderr
    assert terminal.listed()["login"] is None


def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    terminal = Terminal(tmp_path, http_server(url, oauth=LOGIN))
    tried = terminal.run("mcp", "login", "guarded")
    assert tried.returncode == 1
    assert "celeriac: MCP server guarded: it cannot be reached" in tried.stderr
