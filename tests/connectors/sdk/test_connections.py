"""Connections: where they are written down, what is refused, and that rotated credentials need no restart."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from celeriac.connectors.sdk.connections import Connection, Connections, checked_connections
from celeriac.connectors.sdk.http import require_allowed_url
from celeriac.sessions.errors import ConfigurationError
from tests.connectors.sdk.things import KEY, SECRET


def written(folder: Path, entry: JsonValue, *, mode: int = 0o600, name: str = "main") -> Path:
    path = folder / "connections.json"
    path.write_text(json.dumps({"connections": {name: entry}}))
    path.chmod(mode)
    return path


def thing(**values: JsonValue) -> dict[str, JsonValue]:
    entry: dict[str, JsonValue] = {"connector": "things", "credentials": {"apiKey": SECRET}}
    return {**entry, **values}


def of_file(path: Path, name: str = "main") -> Connection | None:
    return Connections(path, {}).get(name)


def refused(path: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        of_file(path)
    assert SECRET not in str(caught.value)
    return str(caught.value)


# --- a file


def test_a_file(tmp_path: Path) -> None:
    connection = of_file(written(tmp_path, thing(configuration={"size": 3})))
    assert connection is not None
    assert connection.configuration == {"size": 3, "baseUrl": "https://things.example"}
    assert connection.hosts == {"things.example"}
    assert connection.credentials()["apiKey"].reveal() == SECRET
    assert SECRET not in repr(connection)


def test_yaml_is_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "connections.yaml"
    path.write_text(
        f"connections:\n  main:\n    connector: things\n    credentials: {{apiKey: {SECRET}}}\n"
    )
    path.chmod(0o600)
    assert of_file(path) is not None
    path.write_text(path.read_text() + "  main:\n    connector: things\n")
    assert "line" in refused(path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620, 0o660, 0o610])
def test_a_file_that_others_can_read_or_change_is_refused(tmp_path: Path, mode: int) -> None:
    assert f"mode {mode:04o}); chmod 600 it" in refused(written(tmp_path, thing(), mode=mode))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(written(tmp_path, thing()))
    assert "it is a link" in refused(link)


@pytest.mark.parametrize("what", ["missing", "folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "it"
    if what == "folder":
        path.mkdir(mode=0o700)
    if what == "pipe":
        os.mkfifo(path, 0o600)
    told = refused(path)
    assert "no such file" in told if what == "missing" else "no plain file" in told


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (thing(credentials={}), "credentials.apiKey is missing: The key."),
        (thing(credentials={"apiKey": ""}), "credentials.apiKey is missing"),
        (thing(credentials={"apiKey": "short"}), "credentials.apiKey is malformed"),
        (thing(credentials={"apiKey": SECRET + "\n"}), "blanks or line ends"),
        (thing(credentials={"apiKey": SECRET, "other": "x"}), "credentials.other is unknown"),
        (thing(configuration={"size": 0}), "configuration.size: 0 is less than"),
        (thing(configuration={"colour": "red"}), "configuration: Additional properties"),
        (thing(connector="nothing"), "there is no connector 'nothing'"),
        (thing(secret="x"), "connections.main.secret: Extra inputs"),
        (thing(credentials={"apiKey": 12345678}), "connections.main.credentials.apiKey: Input"),
        ("things", "connections.main"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, entry: JsonValue, told: str) -> None:
    assert told in refused(written(tmp_path, entry))


def test_a_value_that_is_wrong_is_not_shown(tmp_path: Path) -> None:
    wrong = "hunter2 hunter2\n"
    path = written(tmp_path, thing(credentials={"apiKey": wrong, "hunter2": "x"}))
    with pytest.raises(ConfigurationError) as caught:
        of_file(path)
    assert wrong not in str(caught.value)
    path.write_text("connections: {main: [hunter2-value")
    with pytest.raises(ConfigurationError) as caught:
        of_file(path)
    assert "hunter2-value" not in str(caught.value)


def test_a_rotated_credential_is_used_without_a_restart(tmp_path: Path) -> None:
    path = written(tmp_path, thing())
    connection = cast("Connection", of_file(path))
    written(tmp_path, thing(credentials={"apiKey": "the-next-key"}))
    assert connection.credentials()["apiKey"].reveal() == "the-next-key"
    replacement = tmp_path / "new.json"
    replacement.write_text(path.read_text().replace("the-next-key", "the-last-key"))
    replacement.chmod(0o600)
    replacement.replace(path)
    assert connection.credentials()["apiKey"].reveal() == "the-last-key"


def test_a_file_that_became_readable_to_others_gives_no_more_credentials(tmp_path: Path) -> None:
    path = written(tmp_path, thing())
    connection = cast("Connection", of_file(path))
    path.chmod(0o644)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        connection.credentials()


def test_a_file_without_a_connection_that_an_agent_uses(tmp_path: Path) -> None:
    connections = Connections(written(tmp_path, thing()), {})
    with pytest.raises(ConfigurationError, match="no connection 'other', which an agent uses"):
        checked_connections(connections, [("other", "things")])


# --- variables


def of_variables(**values: str) -> Connection:
    environment = {f"{KEY}{name}": value for name, value in values.items()}
    connection = Connections(None, environment).get("main")
    assert connection is not None
    return connection


def test_variables() -> None:
    connection = of_variables(CONNECTOR="things", API_KEY=SECRET, SIZE="3")
    assert connection.configuration["size"] == 3
    assert connection.credentials()["apiKey"].reveal() == SECRET


def test_a_credential_in_a_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    connection = of_variables(CONNECTOR="things", API_KEY_FILE=str(path))
    path.write_text("the-next-key\n")
    assert connection.credentials()["apiKey"].reveal() == "the-next-key"


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"CONNECTOR": "things"}, "credentials.apiKey is missing"),
        ({"CONNECTOR": "things", "API_KEY": SECRET, "SIZE": "many"}, f"{KEY}SIZE must hold JSON"),
        ({"CONNECTOR": "things", "API_KEY": SECRET, "COLOUR": "x"}, f"{KEY}COLOUR is unknown"),
        ({"CONNECTOR": "things", "API_KEY_FILE": "/nowhere"}, "cannot be read"),
        ({"API_KEY": SECRET}, f"{KEY}API_KEY belongs to no connection"),
        ({"CONNECTOR": "nothing"}, f"{KEY}CONNECTOR: there is no connector"),
    ],
)
def test_wrong_variables_are_named(values: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        of_variables(**values)
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)


def test_names_may_begin_alike() -> None:
    environment = {
        "CELERIAC_CONNECTION_SHOP_CONNECTOR": "things",
        "CELERIAC_CONNECTION_SHOP_API_KEY": SECRET,
        "CELERIAC_CONNECTION_SHOP_EU_CONNECTOR": "things",
        "CELERIAC_CONNECTION_SHOP_EU_API_KEY": "the-other-key",
    }
    connections = Connections(None, environment)
    assert connections.names == ("shop", "shop_eu")
    keys = [cast("Connection", connections.get(name)).credentials() for name in connections.names]
    assert [one["apiKey"].reveal() for one in keys] == [SECRET, "the-other-key"]


def test_a_connection_in_two_places_is_refused(tmp_path: Path) -> None:
    environment = {f"{KEY}CONNECTOR": "things", f"{KEY}API_KEY": SECRET}
    connections = Connections(written(tmp_path, thing()), environment)
    with pytest.raises(ConfigurationError, match="stands in"):
        connections.get("main")


# --- where a connector may connect to


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "https://API.example.com/v1",
        "https://api.example.com:443/v1",
        "http://127.0.0.1:8123/x",
    ],
)
def test_allowed_urls(url: str) -> None:
    require_allowed_url(url, frozenset({"api.example.com", "127.0.0.1:8123"}))


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("https://evil.example/v1", "evil.example is not allowed"),
        ("https://api.example.com.evil.example/", "is not allowed"),
        ("https://evil.example/api.example.com", "is not allowed"),
        ("https://api.example.com@evil.example/", "holds a name or password"),
        ("https://ann:pw@api.example.com/", "holds a name or password"),
        ("https://api.example.com:8443/", "api.example.com:8443 is not allowed"),
        ("http://api.example.com/", "not encrypted"),
        ("http://127.0.0.1/", "127.0.0.1 is not allowed"),
        ("ftp://api.example.com/", "no http or https URL"),
        ("file:///etc/passwd", "no http or https URL"),
        ("//api.example.com/", "no http or https URL"),
        ("", "no http or https URL"),
    ],
)
def test_other_urls_are_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        require_allowed_url(url, frozenset({"api.example.com", "127.0.0.1:8123"}))
