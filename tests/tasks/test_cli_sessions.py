"""The commands about sessions and decisions: what they do, print and exit with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from celeriac.sessions.audit import AuditAct
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.client import SessionClient
from celeriac.sessions.inputs import StepFailed
from celeriac.sessions.settings import Settings, load_settings
from celeriac.sessions.store.sessions import SessionStore
from celeriac.tasks import follow_cli
from celeriac.tasks.cli import main
from celeriac.tasks.cli_common import Exit, plain
from tests.store.driving import (
    answer,
    asking,
    built_in,
    claim,
    new_session,
    planned,
    respond,
    unknown,
)

Told = Callable[..., Result]


@pytest.fixture
def told(
    settings: Settings, session_client: SessionClient, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Told]:
    """Runs a command; two agents are announced."""
    assert settings.redis_url is not None
    monkeypatch.setenv("CELERIAC_REDIS_URL", settings.redis_url)
    monkeypatch.setattr("getpass.getuser", lambda: "night shift")
    load_settings.cache_clear()
    runner = CliRunner()
    yield lambda *arguments, **more: runner.invoke(main, arguments, **more)
    load_settings.cache_clear()


def test_a_session_is_started_sent_to_and_shown(told: Told, session_store: SessionStore) -> None:
    started = told("new", "desk", "Where is my order?")
    sid = started.output.strip()
    assert (started.exit_code, started.stderr) == (Exit.OK, "")
    assert "waits in the queue" in told("send", sid, "And the other one?").output
    respond(session_store, sid, planned("look"))

    shown = told("show", sid).output
    for words in (
        "Where is my order?",
        "agent    desk, model demo",
        "queue    1 message",
        "look (",
    ):
        assert words in shown
    assert json.loads(told("show", sid, "--json").output)["session_id"] == sid
    assert json.loads(told("new", "helper", "--json").output)["agent"] == "helper"

    listed = told("sessions", "--state", "running")
    assert sid in listed.output
    assert "Where is my order?" in listed.output
    assert [
        one["session_id"]
        for one in json.loads(told("sessions", "--agent", "desk", "--json").output)
    ] == [sid]
    assert told("sessions", "--state", "waiting").output == "No session matches.\n"
    assert "RunModel" in told("steps", sid).output
    assert json.loads(told("steps", sid, "--json").output)[0]["name"] == "StartAgentSession"
    assert "safe step boundary" in told("cancel", sid).output
    assert told("cancel", sid, "--turn", "t9").exit_code == Exit.FAILED


def test_a_decision_is_asked_for_after_the_call_was_shown(
    told: Told, session_store: SessionStore, session_client: SessionClient
) -> None:
    sid, call_id = asking(session_store)
    assert call_id in told("approvals").output
    (item,) = json.loads(told("approvals", "--json").output)
    assert item["call"]["digest"] == f"digest of {call_id}"

    no = told("approve", sid, call_id, input="n\n")
    assert no.exit_code == Exit.FAILED
    assert '{"order_id":"A-1"}' in no.stderr.replace(": ", ":")
    assert "non idempotent write" in no.stderr
    assert session_client.call(sid, call_id).status is CallStatus.AWAITING_APPROVAL

    yes = told("approve", sid, call_id, input="y\n")
    assert yes.exit_code == Exit.OK
    assert "approved by night shift" in yes.output
    assert told("approve", sid, call_id).exit_code == Exit.OK, "the same again changes nothing"
    other = told("reject", sid, call_id)
    assert other.exit_code == Exit.FAILED
    assert "already approved by night shift" in other.stderr
    (entry,) = session_client.audit().entries
    assert (entry.act, entry.by, entry.way) == (AuditAct.APPROVE, "night shift", "cli")
    assert entry.address


def test_without_asking_the_digest_must_be_right(told: Told, session_store: SessionStore) -> None:
    sid, call_id = asking(session_store)
    assert told("reject", sid, call_id, "--yes").exit_code == Exit.USAGE
    changed = told("reject", sid, call_id, "--yes", "--digest", "old")
    assert changed.exit_code == Exit.FAILED
    assert "changed since it was shown" in changed.stderr
    asked = told("reject", sid, call_id, "--digest", "old", input="y\n")
    assert "changed since it was shown" in asked.stderr

    arguments = ("--yes", "--digest", f"digest of {call_id}", "-m", "no", "--by", "Ana", "--json")
    done = json.loads(told("reject", sid, call_id, *arguments).output)
    assert (done["status"], done["decision"]["by"], done["decision"]["note"]) == (
        "rejected",
        "Ana",
        "no",
    )


def test_a_question_is_answered_with_a_text_or_a_value(
    told: Told, session_store: SessionStore, session_client: SessionClient
) -> None:
    sid = new_session(session_store)
    one = built_in(BuiltInTool.ASK_USER, {"question": "How many?"})
    two = built_in(BuiltInTool.ASK_USER, {"question": "Sure?"})
    respond(session_store, sid, one, two)
    assert told("answer", sid, one.request.id, "three").exit_code == Exit.OK
    assert told("answer", sid, two.request.id, "{", "--as-value").exit_code == Exit.USAGE
    value = json.loads(told("answer", sid, two.request.id, "false", "--as-value", "--json").output)
    assert value["result"] is False
    assert session_client.call(sid, one.request.id).result == "three"
    again = told("answer", sid, one.request.id, "four")
    assert again.exit_code == Exit.FAILED
    assert "answered already, by night shift" in again.stderr


@pytest.mark.parametrize("command", ["show", "steps", "cancel", "tail"])
@pytest.mark.parametrize("sid", ["nope", "ses_" + "0" * 24, "../x", "\x1b[2J"])
def test_a_wrong_session_id_is_told_in_a_line(told: Told, command: str, sid: str) -> None:
    result = told(command, sid)
    assert result.exit_code == Exit.NOT_FOUND
    assert result.stderr.startswith("celeriac: There is no session ")
    assert "\x1b[2J" not in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_an_unreachable_store_is_told_in_a_line(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CELERIAC_REDIS_URL", "redis://127.0.0.1:1")
    result = told("sessions")
    assert result.exit_code == Exit.UNREACHABLE
    assert result.stderr.startswith("celeriac: The session store does not answer")


def test_without_a_store_nothing_is_made_and_the_variable_is_named(
    told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CELERIAC_REDIS_URL")
    monkeypatch.setenv("CELERIAC_DATA_DIR", str(tmp_path / "none"))
    result = told("sessions")
    assert result.exit_code == Exit.UNREACHABLE
    assert "CELERIAC_REDIS_URL is not set" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_wrong_setting_is_told_in_a_line(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CELERIAC_PORT", "x")
    result = told("sessions")
    assert result.exit_code == Exit.FAILED
    assert "CELERIAC_PORT: Input should be a valid integer" in result.stderr


def test_waiting_ends_with_the_answer_a_failure_or_a_person(
    session_store: SessionStore, session_client: SessionClient, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = new_session(session_store)
    answer(session_store, answered, "Here.")
    assert follow_cli.report_outcome(session_client, answered, as_json=False) == Exit.OK
    assert capsys.readouterr().out == "Here.\n"

    failed = new_session(session_store)
    begun = claim(session_store, failed)
    event = StepFailed(begun.step.id, begun.token, "no such key", retryable=False)
    session_store.apply(failed, event)
    assert follow_cli.report_outcome(session_client, failed, as_json=False) == Exit.FAILED
    assert "This turn failed" in capsys.readouterr().out

    sid, call_id = asking(session_store)
    assert follow_cli.report_outcome(session_client, sid, as_json=False) == Exit.WAITING
    assert f"celeriac approve {sid} {call_id}" in capsys.readouterr().err


def test_tail_writes_what_happens_until_it_is_stopped(
    session_store: SessionStore,
    session_client: SessionClient,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sid = new_session(session_store)
    events = SessionClient.events
    reads = []

    def read(self: SessionClient, session_id: str, **more: object) -> object:
        reads.append(more)
        if len(reads) == 1 and session_client.snapshot(sid).turn is not None:
            answer(session_store, sid, "Here\x1b]0;owned\x07.")
        if len(reads) == 3:
            raise KeyboardInterrupt
        return events(self, session_id, after=str(more["after"]), block_ms=1)

    monkeypatch.setattr(SessionClient, "events", read)
    assert follow_cli.tail_session(session_client, sid, messages=5, as_json=False) == Exit.OK
    told_text = capsys.readouterr().out
    assert "user: Hello" in told_text
    assert "turn.ended" in told_text

    reads.clear()
    assert follow_cli.tail_session(session_client, sid, messages=5, as_json=True) == Exit.OK
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "text", ["\x1b[31mred", "a\u202eb", "\x9b2J", "\U000e0041", "\u2028", "fine é 漢 🎉", "a\tb\nc"]
)
def test_nothing_printed_steers_the_terminal_and_json_stays_json(text: str) -> None:
    shown = plain(json.dumps({"text": text}, ensure_ascii=False))
    assert all(one.isprintable() for one in shown)
    assert json.loads(shown) == {"text": text}


def test_hostile_text_of_a_model_is_shown_as_text(told: Told, session_store: SessionStore) -> None:
    sid = new_session(session_store, "\x1b[2JHello")
    answer(session_store, sid, "\x1b]8;;http://evil\x07click\u202e")
    for command in (("show", sid), ("sessions",), ("show", sid, "--json")):
        output = told(*command, color=True).output.replace("\x1b[1m", "").replace("\x1b[0m", "")
        assert "\x1b" not in output
        assert "\u202e" not in output


def test_unknown_outcomes_and_agents_as_json(told: Told, session_store: SessionStore) -> None:
    sid, call_id = unknown(session_store)
    (item,) = json.loads(told("unknown", "--json").output)
    assert (item["session_id"], item["call"]["status"]) == (sid, "outcome_unknown")
    settled = json.loads(told("reconcile", sid, call_id, "--failed", "--json").output)
    assert settled["status"] == "failed"
    assert [one["name"] for one in json.loads(told("agents", "--json").output)] == [
        "desk",
        "helper",
    ]
    assert json.loads(told("models", "--json").output)["agents"]["desk"]["default"] == "demo"
    assert "tools   look" in told("agents").output
    lines = told("audit", "--session", sid, "--json").output.splitlines()
    assert [json.loads(line)["act"] for line in lines] == ["reconcile"]
    assert "reconcile" in told("audit").output


def test_shells_complete_commands_and_session_ids(
    told: Told, session_store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    sid = new_session(session_store)
    completer = BashComplete(main, {}, "celeriac", "_CELERIAC_COMPLETE")
    assert [one.value for one in completer.get_completions([], "appr")] == ["approvals", "approve"]
    assert [one.value for one in completer.get_completions(["show"], "ses")] == [sid]
    monkeypatch.setenv("CELERIAC_REDIS_URL", "redis://127.0.0.1:1")
    load_settings.cache_clear()
    assert completer.get_completions(["show"], "ses") == []
    assert "_CELERIAC_COMPLETE=zsh_complete" in told("completion", "zsh").output
