"""``celeriac mcp login | logout | list`` with a real authorisation server; the person is an HTTP client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from celeriac.connectors.mcp_config import HttpServer
from tests.connectors.mcp_talk import http_server
from tests.mcp_servers.oauth_world import World, world
from tests.tasks.cluster import clean_environment, free_port
from tests.tasks.mcp_cluster import write_config
from tests.tasks.mcp_terminal import Terminal

LOGIN = {"grant": "authorization_code"}


@pytest.fixture
def here() -> Iterator[World]:
    with world() as made:
        yield made


def token_files(folder: Path) -> list[Path]:
    return list((folder / ".celeriac" / "mcp-tokens").glob("*.json"))


def terminal_in(folder: Path, server: HttpServer) -> Terminal:
    config = write_config(folder / "mcp.yaml", {"guarded": server})
    return Terminal(folder, clean_environment(CELERIAC_MCP_CONFIG=str(config)))


@pytest.fixture
def terminal(tmp_path: Path, here: World) -> Terminal:
    return terminal_in(tmp_path, http_server(here.url, oauth=LOGIN))


def test_a_login_by_browser_and_what_the_list_says_of_it(
    terminal: Terminal, here: World, tmp_path: Path
) -> None:
    before = terminal.listed()
    assert before["login"] == "not logged in"
    assert "run `celeriac mcp login guarded`" in str(before["problem"])
    assert "nobody has logged in to guarded on this machine" in terminal.run("doctor").stdout
    with terminal.logging_in() as login:
        assert login.address.startswith(f"{here.issuer}/authorize?")
        assert httpx.get(login.way_back()).text == "Go back to the terminal: it goes on there."
        code, out, err = login.end()
    assert code == 0, err
    assert "Logged in to guarded." in out
    (file,) = token_files(tmp_path)
    assert str(file) in out
    after = terminal.run("mcp", "list")
    assert after.returncode == 0, after.stdout + after.stderr
    assert "(OAuth: authorization_code)" in after.stdout
    assert "\n    logged in\n" in after.stdout
    assert "guarded__echo  read, runs at once" in after.stdout
    assert "nobody has logged in" not in terminal.run("doctor").stdout
    for secret in here.issued:
        assert secret not in out + err + after.stdout + after.stderr
    assert terminal.run("mcp", "logout", "guarded").stdout.startswith("Deleted the tokens")
    assert not token_files(tmp_path)
    assert terminal.listed()["login"] == "not logged in"
    assert "There were no tokens" in terminal.run("mcp", "logout", "guarded").stdout


def test_a_login_by_a_pasted_address(terminal: Terminal, tmp_path: Path) -> None:
    with terminal.logging_in() as login:
        back = login.way_back()
        login.paste("what do I paste here?")
        login.paste(back.replace("state=", "state=x"))
        login.paste(f"  {back}")
        code, out, err = login.end()
    assert code == 0, err
    assert out.count("That is not where this login came back to") == 2
    assert token_files(tmp_path)


def test_what_does_not_belong_to_the_login_is_turned_away(
    terminal: Terminal, tmp_path: Path
) -> None:
    with terminal.logging_in() as login:
        back = httpx.URL(login.way_back())
        assert httpx.get(back.copy_merge_params({"state": "stolen"})).status_code == 400
        assert httpx.get(back.copy_remove_param("state")).status_code == 400
        assert httpx.get(back.copy_with(path="/other")).status_code == 404
        assert httpx.post(back).status_code == 404
        assert httpx.get(back).status_code == 200
        assert login.end()[0] == 0


def test_a_login_that_the_person_refuses(terminal: Terminal, tmp_path: Path) -> None:
    with terminal.logging_in() as login:
        state = httpx.URL(login.address).params["state"]
        back = httpx.URL(login.way_back()).copy_with(query=None)
        said = {"error": "access_denied", "error_description": "No, thanks", "state": state}
        httpx.get(back, params=said)
        code, _, err = login.end()
    assert code == 1
    assert "The login was refused (access_denied: No, thanks)." in err
    assert "Traceback" not in err
    assert not token_files(tmp_path)


def test_a_registered_way_back_is_used(tmp_path: Path, here: World) -> None:
    uri = f"http://localhost:{free_port()}/back/here"
    terminal = terminal_in(tmp_path, http_server(here.url, oauth={**LOGIN, "redirect_uri": uri}))
    with terminal.logging_in() as login:
        assert httpx.URL(login.address).params["redirect_uri"] == uri
        back = login.way_back()
        assert back.startswith(f"{uri}?")
        busy = terminal.run("mcp", "login", "guarded")
        assert "Nothing can listen on localhost:" in busy.stderr
        httpx.get(back)
        assert login.end()[0] == 0


def test_servers_without_a_login(tmp_path: Path, here: World) -> None:
    terminal = terminal_in(tmp_path, http_server(here.url))
    plain = terminal.run("mcp", "login", "guarded")
    assert plain.returncode == 1
    assert "MCP server guarded needs no login" in plain.stderr
    unknown = terminal.run("mcp", "login", "other")
    assert "There is no MCP server 'other'" in unknown.stderr
    assert terminal.listed()["login"] is None


def test_a_server_that_cannot_be_reached(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/mcp"
    terminal = terminal_in(tmp_path, http_server(url, oauth=LOGIN))
    tried = terminal.run("mcp", "login", "guarded")
    assert tried.returncode == 1
    assert "celeriac: MCP server guarded: it cannot be reached" in tried.stderr
