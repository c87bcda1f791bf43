"""Moves a session along as workers do: claim a step, say how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar, cast

import redis
from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import CallRequest, ToolEffect
from celeriac.sessions.ids import new_call_id, new_message_id, new_session_id
from celeriac.sessions.inputs import MessageSent, ModelReplied, PlannedCall, StepFailed, ToolEnded
from celeriac.sessions.messages import CallReference
from celeriac.sessions.state import SessionState, Step, StepName
from celeriac.sessions.store.keys import SessionKeys, partition_of, step_field
from celeriac.sessions.store.sessions import Claim, SessionStore, Verdict

Answer = TypeVar("Answer")

WRITE = ToolEffect.NON_IDEMPOTENT_WRITE


def message(text: str = "Hello", message_id: str | None = None) -> MessageSent:
    return MessageSent(message_id or new_message_id(), text)


def new_session(
    store: SessionStore, text: str | None = "Hello", *, partition: int | None = None
) -> str:
    """A session with a first message, so that `RunModel` is ready; idle when `text` is None."""
    session_id = new_session_id()
    while partition is not None and partition_of(session_id) != partition:
        session_id = new_session_id()
    store.create(session_id, "desk", "demo", None if text is None else message(text))
    return session_id


def planned(
    tool: str = "look",
    arguments: dict[str, JsonValue] | None = None,
    *,
    effect: ToolEffect = ToolEffect.READ,
    approval: bool = False,
    built_in: BuiltInTool | None = None,
) -> PlannedCall:
    call_id = new_call_id()
    given = arguments if arguments is not None else {"order_id": "A-1"}
    return PlannedCall(
        reference=CallReference(id=call_id, tool=tool, arguments=json.dumps(given)),
        request=CallRequest(
            id=call_id, tool=tool, arguments=given, effect=effect, turn_id="t1", created_at=1
        ),
        requires_approval=approval,
        digest=f"digest of {call_id}",
        max_attempts=3,
        built_in=built_in,
    )


def built_in(tool: BuiltInTool, arguments: dict[str, JsonValue]) -> PlannedCall:
    """A call of one of Celeriac's own tools."""
    return planned(tool.value, arguments, built_in=tool)


def open_step(store: SessionStore, session_id: str, name: StepName | None = None) -> Step:
    """The first open step (of a kind)."""
    steps = store.load(session_id).state.steps
    return next(step for step in steps if name is None or step.name is name)


def try_claim(
    store: SessionStore, session_id: str, step: Step, owner: str = "worker-1"
) -> Claim | Verdict:
    return store.claim(session_id, step.id, step.name, step.call_id, owner)


def claim(
    store: SessionStore, session_id: str, step: Step | None = None, owner: str = "worker-1"
) -> Claim:
    """Claim a step, the first one that works when none is named."""
    if step is None:
        steps = store.load(session_id).state.steps
        step = next(one for one in steps if not one.name.waits and not one.timing.claimed)
    claimed = try_claim(store, session_id, step, owner)
    assert isinstance(claimed, Claim), claimed
    return claimed


def reply(
    store: SessionStore, claimed: Claim, text: str = "", calls: Sequence[PlannedCall] = ()
) -> SessionState:
    """End a claimed `RunModel` with a response."""
    event = ModelReplied(claimed.step.id, claimed.token, text, calls)
    return store.apply(claimed.loaded.state.session_id, event)[0]


def tool_ended(store: SessionStore, claimed: Claim, result: JsonValue = "done") -> SessionState:
    """End a claimed tool step with a result."""
    call_id = claimed.step.call_id
    assert call_id is not None
    event = ToolEnded(claimed.step.id, claimed.token, call_id, succeeded=True, result=result)
    return store.apply(claimed.loaded.state.session_id, event)[0]


def broke(store: SessionStore, claimed: Claim, error: str = "no answer") -> SessionState:
    """Let a claimed attempt break after the outside was entered."""
    event = StepFailed(claimed.step.id, claimed.token, error)
    return store.apply(claimed.loaded.state.session_id, event)[0]


def respond(store: SessionStore, session_id: str, *calls: PlannedCall) -> SessionState:
    """Run the ready `RunModel` to a response with these calls."""
    return reply(store, claim(store, session_id), "I will look.", calls)


def asking(store: SessionStore, text: str = "Hello") -> tuple[str, str]:
    """A session with one call that waits for a decision: (session id, call id)."""
    session_id = new_session(store, text)
    call = planned("cancel_order", effect=WRITE, approval=True)
    respond(store, session_id, call)
    return session_id, call.request.id


def unknown(store: SessionStore) -> tuple[str, str]:
    """A session whose turn went on after a call with an unknown outcome: (session id, call id)."""
    session_id = new_session(store)
    call = planned("cancel_order", effect=WRITE)
    respond(store, session_id, call)
    broke(store, claim(store, session_id))
    return session_id, call.request.id


def answer(store: SessionStore, session_id: str, text: str = "Here you are.") -> SessionState:
    """Run the ready `RunModel` to a final answer."""
    return reply(store, claim(store, session_id), text)


def whole_turn(store: SessionStore, session_id: str, *calls: PlannedCall) -> None:
    """A turn from the message to the answer, with calls that all succeed."""
    store.apply(session_id, message("What about my order?"))
    if calls:
        respond(store, session_id, *calls)
        for _ in calls:
            tool_ended(store, claim(store, session_id))
    answer(store, session_id)


def set_timing(
    client: redis.Redis, session_id: str, step_id: str, *, not_before: int = 1, due: int = 1
) -> None:
    """Put the times of a step in the past, as if that much time had gone by."""
    keys = SessionKeys.of(session_id)
    field = step_field(step_id)
    raw = cast("bytes", client.hget(keys.session, field))
    rest = raw.decode().split(" ")[2:]
    client.hset(keys.session, field, " ".join([str(not_before), str(due), *rest]))
    client.zadd(keys.partition.wake, {session_id: due})


def compact(client: redis.Redis, session_id: str, context_from: int) -> None:
    """Let the active context begin at a later message, as a summary of the older ones does."""
    key = SessionKeys.of(session_id).session
    state = json.loads(cast("bytes", client.hget(key, "state")))
    first = {"schema_version": state.pop("schema_version")}
    state["context_from"] = context_from
    written = json.dumps({**first, **state}, separators=(",", ":"))
    client.hset(key, mapping={"state": written, "context_from": context_from})
    client.hincrby(key, "version", 1)


def at_once(count: int, work: Callable[[int], Answer]) -> list[Answer | Exception]:
    """Do something in several threads that all begin at the same moment; return what each got."""
    barrier = Barrier(count)

    def one(number: int) -> Answer | Exception:
        barrier.wait(10)
        try:
            return work(number)
        except Exception as error:  # noqa: BLE001 - it is the result
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))
