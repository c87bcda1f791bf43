"""The two ways in which people reach their sessions: a client in their own program, or the web."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import httpx
from pydantic import JsonValue

from celeriac.sessions.calls import CallRecord, DecisionVerb
from celeriac.sessions.client import SessionClient
from celeriac.sessions.errors import Refused, StoreUnavailable
from celeriac.sessions.snapshot import Snapshot

__all__ = ["PERSON", "ByClient", "ByWeb", "Hands"]

PERSON = "ana"
"""Everybody's name and, over HTTP, token."""


class Hands(Protocol):
    """What a person can do.

    Each may raise `StoreUnavailable`: it is unknown whether it was done, and doing it again is safe.
    """

    def create(self) -> str: ...
    def snapshot(self, session_id: str) -> Snapshot: ...
    def send(self, session_id: str, text: str, message_id: str, *, plan_mode: bool) -> None: ...
    def execute(self, session_id: str, revision: int) -> None: ...
    def answer(self, session_id: str, call_id: str, answer: JsonValue) -> None: ...
    def delete(self, session_id: str, message_id: str) -> None: ...
    def steer(self, session_id: str, message_id: str | None) -> None: ...
    def stop(self, session_id: str, turn_id: str) -> None: ...
    def decide(self, session_id: str, call: CallRecord, *, approve: bool) -> None: ...
    def reconcile(self, session_id: str, call_id: str, *, succeeded: bool) -> None: ...


class ByClient:
    """A program with a `SessionClient`."""

    def __init__(self, client: SessionClient) -> None:
        self._client = client

    def create(self) -> str:
        return self._client.create_session().session_id

    def snapshot(self, session_id: str) -> Snapshot:
        return self._client.snapshot(session_id)

    def send(self, session_id: str, text: str, message_id: str, *, plan_mode: bool) -> None:
        self._client.send_message(session_id, text, message_id=message_id, plan_mode=plan_mode)

    def execute(self, session_id: str, revision: int) -> None:
        self._client.execute_plan(session_id, revision=revision, by=PERSON)

    def answer(self, session_id: str, call_id: str, answer: JsonValue) -> None:
        self._client.answer(session_id, call_id, answer, by=PERSON)

    def delete(self, session_id: str, message_id: str) -> None:
        self._client.delete_queued(session_id, message_id)

    def steer(self, session_id: str, message_id: str | None) -> None:
        ids = None if message_id is None else (message_id,)
        self._client.steer(session_id, message_ids=ids, by=PERSON)

    def stop(self, session_id: str, turn_id: str) -> None:
        self._client.cancel_turn(session_id, turn_id=turn_id, by=PERSON)

    def decide(self, session_id: str, call: CallRecord, *, approve: bool) -> None:
        verb = DecisionVerb.APPROVE if approve else DecisionVerb.REJECT
        self._client.decide(session_id, call.id, verb, by=PERSON, digest=call.digest)

    def reconcile(self, session_id: str, call_id: str, *, succeeded: bool) -> None:
        self._client.reconcile(session_id, call_id, succeeded=succeeded, by=PERSON)


class ByWeb:
    """A person at the web, wherever it is just now.

    Attributes:
        base: The web's address; None while there is none.
    """

    def __init__(self) -> None:
        self.base: str | None = None
        self._http = httpx.Client(timeout=8, headers={"Authorization": f"Bearer {PERSON}"})

    def close(self) -> None:
        """Let go of its connections."""
        self._http.close()

    def _ask(
        self, method: str, path: str, body: Mapping[str, JsonValue] | None = None
    ) -> httpx.Response:
        if self.base is None:
            raise StoreUnavailable("the web is not there")
        try:
            answer = self._http.request(method, f"{self.base}/api/sessions{path}", json=body)
        except httpx.HTTPError as error:
            raise StoreUnavailable(f"the web does not answer: {error}") from error
        if answer.status_code >= 502:
            raise StoreUnavailable(answer.text)
        if answer.status_code >= 500:
            raise AssertionError(f"{method} {path}: {answer.text}")
        if answer.is_error:
            raise Refused(answer.text, code=str(answer.json().get("code")))
        return answer

    def create(self) -> str:
        return str(self._ask("POST", "", {}).json()["session_id"])

    def snapshot(self, session_id: str) -> Snapshot:
        return Snapshot.model_validate_json(self._ask("GET", f"/{session_id}").content)

    def send(self, session_id: str, text: str, message_id: str, *, plan_mode: bool) -> None:
        body: dict[str, JsonValue] = {
            "text": text,
            "message_id": message_id,
            "plan_mode": plan_mode,
        }
        self._ask("POST", f"/{session_id}/messages", body)

    def execute(self, session_id: str, revision: int) -> None:
        self._ask("POST", f"/{session_id}/plan/execute", {"revision": revision})

    def answer(self, session_id: str, call_id: str, answer: JsonValue) -> None:
        self._ask("POST", f"/{session_id}/calls/{call_id}/answer", {"answer": answer})

    def delete(self, session_id: str, message_id: str) -> None:
        self._ask("DELETE", f"/{session_id}/queue/{message_id}")

    def steer(self, session_id: str, message_id: str | None) -> None:
        body: dict[str, JsonValue] = {} if message_id is None else {"message_ids": [message_id]}
        self._ask("POST", f"/{session_id}/steer", body)

    def stop(self, session_id: str, turn_id: str) -> None:
        self._ask("POST", f"/{session_id}/cancel", {"turn_id": turn_id})

    def decide(self, session_id: str, call: CallRecord, *, approve: bool) -> None:
        word = "approve" if approve else "reject"
        body: dict[str, JsonValue] = {"decision": word, "digest": call.digest}
        self._ask("POST", f"/{session_id}/calls/{call.id}/decision", body)

    def reconcile(self, session_id: str, call_id: str, *, succeeded: bool) -> None:
        word = "succeeded" if succeeded else "failed"
        self._ask("POST", f"/{session_id}/calls/{call_id}/reconcile", {"outcome": word})
