"""The commands of operators, on a real store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.messages import Role
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.snapshot import ModelInfo
from celeriac.sessions.store.lists import SessionLists
from celeriac.sessions.store.reader import SessionReader
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks.cli import main
from tests.connectors.mcp_talk import odd_server
from tests.store.announced import AGENTS, worker
from tests.store.driving import answer, message, unknown
from tests.tasks.mcp_cluster import write_config


@pytest.fixture
def run(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[CliRunner]:
    assert settings.redis_url is not None
    monkeypatch.setenv("CELERIAC_REDIS_URL", settings.redis_url)
    # A process reads its settings once; each command has a process of its own, but not here.
    load_settings.cache_clear()
    yield CliRunner()
    load_settings.cache_clear()


def told(run: CliRunner, *arguments: str) -> Result:
    return run.invoke(main, arguments)


def test_unknown_outcomes_are_listed_and_settled(
    run: CliRunner, session_store: SessionStore, session_client: SessionClient
) -> None:
    session_id, call_id = unknown(session_store)
    answer(session_store, session_id)
    listed = told(run, "unknown")
    assert listed.exit_code == 0
    for words in (
        session_id,
        call_id,
        "cancel_order",
        '"order_id": "A-1"',
        "no answer",
        "since 20",
    ):
        assert words in listed.output.replace('":"', '": "')
    ways = ("--failed", "--by", "ana", "--note", "the provider has no trace of it")
    settled = told(run, "reconcile", session_id, call_id, *ways)
    assert (settled.exit_code, settled.stderr) == (0, "")
    assert "it did not take effect, as ana says" in settled.output
    call = session_client.call(session_id, call_id)
    assert (call.status, call.reconciled_by) == (CallStatus.FAILED, "ana")
    assert told(run, "unknown").output == "No outcome is unknown.\n"
    session_store.apply(session_id, message("And?"))
    notices = [
        m.text for m in session_client.snapshot(session_id).messages if m.role is Role.NOTICE
    ]
    assert "the provider has no trace of it" in notices[-1]


def test_mcp_servers_are_listed_with_what_their_tools_count_as(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = odd_server(tmp_path / "odd")
    strange = odd_server(
        tmp_path / "strange", trust_annotations=False, tools={"approval": {"look": "never"}}
    )
    broken = odd_server(tmp_path / "broken", env={"ODD_START": "fail"})
    servers = {"odd": odd.server, "strange": strange.server, "broken": broken.server}
    monkeypatch.setenv("CELERIAC_MCP_CONFIG", str(write_config(tmp_path / "mcp.yaml", servers)))
    told_text = told(run, "mcp", "list")
    assert told_text.exit_code == 1, "one server is missing"
    for words in (
        "odd__look  read, runs at once",
        "its server says readOnlyHint, and is trusted",
        "odd__act  non_idempotent_write, asks first",
        "strange__act  non_idempotent_write, asks first",
        "its server's annotations are not trusted, so it counts as a write that runs once",
        "strange__look  non_idempotent_write, runs at once",
        "; the approval is this configuration's",
        "MCP server broken: Connection closed; the end of its stderr",
    ):
        assert words in told_text.output
    load_settings.cache_clear()
    listed = json.loads(told(run, "mcp", "list", "--json").output)
    assert listed["odd"]["tools"][0]["effect"] == "non_idempotent_write"
    assert listed["odd"]["tools"][1]["requires_approval"] is False
    assert "Connection closed" in listed["broken"]["problem"]


def test_mcp_list_without_servers_and_with_a_wrong_file(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "There are no MCP servers" in told(run, "mcp", "list").output
    path = tmp_path / "mcp.yaml"
    path.write_text("servers:\n  git: {commands: x}")
    monkeypatch.setenv("CELERIAC_MCP_CONFIG", str(path))
    load_settings.cache_clear()
    wrong = told(run, "mcp", "list")
    assert wrong.exit_code == 1
    assert "servers.git.commands: there is no such key" in wrong.stderr
    load_settings.cache_clear()
    assert "servers.git.commands: there is no such key" in told(run, "doctor").output


def test_a_connection_that_cannot_be_used_is_told(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERIAC_CONNECTION_SHOP_CONNECTOR", "stripe")
    assert "credentials.secretKey is missing" in told(run, "doctor").output
    monkeypatch.setenv("CELERIAC_CONNECTION_SHOP_SECRET_KEY", "sk_test_x")
    assert "connections: shop; `celeriac connectors check`" in told(run, "doctor").output


def test_without_a_name_the_login_name_settles(
    run: CliRunner,
    session_store: SessionStore,
    session_client: SessionClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("getpass.getuser", lambda: "night shift")
    session_id, call_id = unknown(session_store)
    assert told(run, "reconcile", session_id, call_id, "--succeeded").exit_code == 0
    call = session_client.call(session_id, call_id)
    assert (call.status, call.reconciled_by) == (CallStatus.SUCCEEDED, "night shift")
    again = told(run, "reconcile", session_id, call_id, "--failed")
    assert again.exit_code == 1
    assert again.stderr.startswith("celeriac: ")
    assert session_client.call(session_id, call_id).status is CallStatus.SUCCEEDED


def test_how_it_ended_must_be_said(run: CliRunner) -> None:
    asked = told(run, "reconcile", "ses_x", "call_x")
    assert asked.exit_code == 2
    assert "--succeeded or --failed" in asked.stderr


@pytest.mark.usefixtures("session_store")
def test_what_does_not_exist_is_said_in_one_line(run: CliRunner) -> None:
    missing = told(run, "reconcile", "ses_" + "0" * 24, "call_x", "--failed")
    assert missing.exit_code == 4
    assert missing.stderr.count("\n") == 1
    assert "ses_000" in missing.stderr


def announce_models(store: SessionStore, settings: Settings, **key_set: bool) -> None:
    seconds, _ = store.client.time()
    for name, is_set in key_set.items():
        models = (
            ModelInfo(
                name="demo",
                provider="openai",
                key_variables=("OPENAI_API_KEY",),
                key_set=is_set,
                price_known=True,
                context_window_tokens=128_000,
            ),
            ModelInfo(name="other"),
        )
        seen = worker(name, seconds * 1000).model_copy(update={"models": models})
        SessionLists(store, SessionReader(store, settings), settings).announce(seen, AGENTS)


def test_the_models_of_each_agent_are_listed_with_what_workers_say_of_them(
    run: CliRunner, session_store: SessionStore, settings: Settings
) -> None:
    announce_models(session_store, settings, one=True, two=False)
    listed = told(run, "models")
    assert listed.exit_code == 0
    facts = "openai, OPENAI_API_KEY is NOT set in two; price known; reads 128,000 tokens"
    lines = listed.output.splitlines()
    assert lines[0] == "desk"
    assert lines[1].split(None, 2) == ["demo", "default", facts]
    assert lines[2].split(None, 1) == ["other", "needs no key of a provider"]
    announce_models(session_store, settings, one=True, two=True)
    assert "openai, OPENAI_API_KEY is set;" in told(run, "models").output
    announce_models(session_store, settings, one=False, two=False)
    assert "OPENAI_API_KEY is NOT set;" in told(run, "models").output
    assert "demo: OPENAI_API_KEY is not set in one" in told(run, "doctor").output


@pytest.mark.usefixtures("session_store")
def test_without_agents_there_are_no_models(run: CliRunner) -> None:
    listed = told(run, "models")
    assert listed.exit_code == 1
    assert "celeriac worker" in listed.stderr
