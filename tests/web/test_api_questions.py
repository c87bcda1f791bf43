"""What people say of calls and plans over the API, on a real store; turns are moved along as workers do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from flask.testing import FlaskClient
from pydantic import JsonValue, SecretStr

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.client import SessionClient
from celeriac.sessions.inputs import PlannedCall
from celeriac.sessions.settings import Settings
from celeriac.sessions.state import StepName
from celeriac.sessions.store.sessions import SessionStore
from celeriac.web import create_app
from celeriac.web.keys import WebKey
from tests.store.driving import (
    WRITE,
    answer as agent_answers,
    claim,
    message,
    new_session,
    planned,
    respond,
    tool_ended,
)
from tests.web.conftest import KEY, content, operators


@pytest.fixture
def served(session_client: SessionClient, settings: Settings) -> FlaskClient:
    update = {
        "session_key": SecretStr(KEY),
        "operators": SecretStr(operators("Vi:viewer:v", "Ap:approver:a", "Op:operator:o")),
    }
    return create_app(session_client, settings.model_copy(update=update)).test_client()


def holder(session_id: str) -> dict[str, str]:
    return {"X-Agent-Session-Token": WebKey(KEY.encode()).session_token(session_id)}


def built_in(tool: BuiltInTool, arguments: dict[str, JsonValue]) -> PlannedCall:
    return replace(planned(tool.value, arguments), built_in=tool)


def question(text: str, *choices: str) -> PlannedCall:
    arguments: dict[str, JsonValue] = {"question": text}
    return built_in(
        BuiltInTool.ASK_USER, arguments | ({"choices": list(choices)} if choices else {})
    )


def plan(*titles: str) -> PlannedCall:
    todos: list[JsonValue] = [{"title": title} for title in titles]
    return built_in(BuiltInTool.WRITE_TODOS, {"todos": todos})


def statuses(web: FlaskClient, session_id: str) -> dict[str, str]:
    snapshot = content(web.get(f"/api/sessions/{session_id}", headers=holder(session_id)))
    return {call["id"]: call["status"] for call in snapshot["calls"]}


@pytest.mark.parametrize("first", [False, ""])
def test_dh_02_falsy_answers_are_answers_and_each_reaches_its_own_question(
    served: FlaskClient, session_store: SessionStore, first: JsonValue
) -> None:
    session_id = new_session(session_store)
    q1, q2 = question("Gift wrap?"), question("How many?")
    respond(session_store, session_id, q1, q2)
    held = holder(session_id)

    def answer(call: PlannedCall, value: JsonValue) -> tuple[int, dict[str, JsonValue]]:
        path = f"/api/sessions/{session_id}/calls/{call.request.id}/answer"
        told = served.post(path, json={"answer": value}, headers=held)
        return told.status_code, content(told)

    status, call = answer(q1, first)
    assert (status, call["result"], call["answered_by"]) == (200, first, "session user")
    # What a page that is loaded again sees: only the other question is open.
    assert statuses(served, session_id) == {
        q1.request.id: "succeeded",
        q2.request.id: "awaiting_answer",
    }
    status, call = answer(q2, 0)
    assert (status, call["result"]) == (200, 0)
    for repeated in (first, "another"):
        status, problem = answer(q1, repeated)
        assert (status, problem["code"]) == (409, "already_answered")
        assert "by session user" in str(problem["detail"])
    snapshot = content(served.get(f"/api/sessions/{session_id}", headers=held))
    told = [one["text"] for one in snapshot["messages"] if one["role"] == "tool"]
    assert told == ["false" if first is False else "(The user gave an empty answer.)", "0"]


def test_null_a_missing_answer_and_one_that_is_no_choice_change_nothing(
    served: FlaskClient, session_store: SessionStore
) -> None:
    session_id = new_session(session_store)
    asked = question("Which colour?", "red", "blue")
    respond(session_store, session_id, asked)
    path = f"/api/sessions/{session_id}/calls/{asked.request.id}/answer"
    for body, code in (
        ({"answer": None}, "no_answer"),
        ({"answer": "green"}, "not_a_choice"),
        ({"answer": 0}, "not_a_choice"),
        ({}, "invalid_body"),
        ({"answer": "red", "by": "somebody else"}, "invalid_body"),
    ):
        told = served.post(path, json=body, headers=holder(session_id))
        assert (told.status_code, content(told)["code"]) == (400, code)
    assert statuses(served, session_id) == {asked.request.id: "awaiting_answer"}
    assert served.post(path, json={"answer": "red"}, headers=holder(session_id)).status_code == 200


def test_what_is_no_open_question_is_not_answered(
    served: FlaskClient, session_store: SessionStore
) -> None:
    session_id = new_session(session_store)
    other = planned("cancel_order", approval=True)
    respond(session_store, session_id, other)
    for call_id, expected in ((other.request.id, (409, "not_awaiting_answer")),
                              ("call_none", (404, "unknown_call"))):  # fmt: skip
        path = f"/api/sessions/{session_id}/calls/{call_id}/answer"
        told = served.post(path, json={"answer": "x"}, headers=holder(session_id))
        assert (told.status_code, content(told)["code"]) == expected


def test_who_may_send_may_answer_and_execute(
    served: FlaskClient, session_store: SessionStore
) -> None:
    session_id = new_session(session_store)
    asked = question("Sure?")
    respond(session_store, session_id, asked)
    paths = {
        f"/api/sessions/{session_id}/calls/{asked.request.id}/answer": {"answer": "yes"},
        f"/api/sessions/{session_id}/plan/execute": {"revision": 1},
    }
    for path, body in paths.items():
        for token in ("v", "a"):
            told = served.post(path, json=body, headers={"Authorization": f"Bearer {token}"})
            assert told.status_code == 403
        assert served.post(path, json=body).status_code == 403
        assert served.get(path, headers=holder(session_id)).status_code == 405
    told = served.post(next(iter(paths)), json={"answer": "yes"},
                       headers={"Authorization": "Bearer o"})  # fmt: skip
    assert content(told)["answered_by"] == "Op"


def test_the_reviewed_revision_of_a_plan_is_executed_once(
    served: FlaskClient, session_store: SessionStore
) -> None:
    session_id = new_session(session_store, None)
    path = f"/api/sessions/{session_id}/plan/execute"

    def execute(revision: JsonValue) -> tuple[int, JsonValue]:
        told = served.post(path, json={"revision": revision}, headers=holder(session_id))
        return told.status_code, content(told).get("code")

    assert execute(1) == (409, "no_plan")
    for wrong in (0, "1", 1.5, True, None):
        assert execute(wrong) == (400, "invalid_body")
    session_store.apply(session_id, replace(message("Plan it"), plan_mode=True))
    respond(session_store, session_id, plan("buy seeds", "sow them"))
    assert execute(1) == (409, "turn_running")
    agent_answers(session_store, session_id)
    snapshot = content(served.get(f"/api/sessions/{session_id}", headers=holder(session_id)))
    assert (snapshot["plan"]["status"], snapshot["plan"]["revision"]) == ("draft", 1)
    assert execute(2) == (409, "stale_plan")
    assert execute(1) == (202, None)
    assert execute(1) == (409, "turn_running")
    snapshot = content(served.get(f"/api/sessions/{session_id}", headers=holder(session_id)))
    assert snapshot["plan"]["status"] == "active"
    assert snapshot["messages"][-1]["text"].startswith("Execute the plan, revision 1:")


def test_a_timer_says_when_it_ends(served: FlaskClient, session_store: SessionStore) -> None:
    session_id = new_session(session_store)
    wait = built_in(BuiltInTool.DURABLE_WAIT, {"seconds": 3600, "reason": "the shop opens"})
    respond(session_store, session_id, wait)
    snapshot = content(served.get(f"/api/sessions/{session_id}", headers=holder(session_id)))
    (call,) = snapshot["calls"]
    (step,) = snapshot["turn"]["steps"]
    assert call["waits_until"] == step["due"] == step["since"] + 3_600_000


def test_dh_10_each_decision_touches_its_own_call_and_the_turn_waits_for_all(
    served: FlaskClient, session_store: SessionStore
) -> None:
    session_id = new_session(session_store)
    calls = [planned("cancel_order", effect=WRITE, approval=True) for _ in range(3)]
    respond(session_store, session_id, *calls)
    first, second, third = (call.request.id for call in calls)

    def decide(call_id: str, decision: str) -> int:
        path = f"/api/sessions/{session_id}/calls/{call_id}/decision"
        body = {"decision": decision, "digest": f"digest of {call_id}"}
        return served.post(path, json=body, headers=holder(session_id)).status_code

    assert decide(first, "reject") == 200
    assert [decide(second, "approve") for _ in range(2)] == [200, 200]
    tool_ended(session_store, claim(session_store, session_id))
    assert statuses(served, session_id) == {
        first: "rejected",
        second: "succeeded",
        third: "awaiting_approval",
    }
    # Nothing can be claimed: no second run of a call, and no model call before all are settled.
    (step,) = session_store.load(session_id).state.steps
    assert (step.name, step.call_id) == (StepName.AWAIT_TOOL_APPROVAL, third)
