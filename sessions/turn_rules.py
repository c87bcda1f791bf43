"""Rules of turns: how they begin, go on from step to step, are steered or stopped, and end. Pure."""

from __future__ import annotations

from typing import TypedDict

from celeriac.sessions import built_in_rules, call_rules, write_order
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.draft import Draft, TextSource
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.events import EventType
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.inputs import (
    ContextCompacted,
    ContextFull,
    MessageSent,
    ModelInterrupted,
    ModelReplied,
    PlanExecuted,
    QueuedMessageDeleted,
    StepFailed,
    TurnCancelled,
    TurnSteered,
)
from celeriac.sessions.messages import Role, Usage
from celeriac.sessions.plans import Plan, PlanStatus, execution_text, stall_text
from celeriac.sessions.state import (
    Control,
    ControlVerb,
    QueuedMessage,
    Step,
    StepName,
    Turn,
)

__all__ = [
    "cancelled",
    "context_compacted",
    "context_full",
    "go_on",
    "message_sent",
    "model_attempt_broke",
    "model_interrupted",
    "model_replied",
    "plan_executed",
    "queued_message_deleted",
    "steered",
]

_TITLE_LENGTH = 80


# --- messages


def message_sent(draft: Draft, event: MessageSent) -> bool:
    """Begin a turn with the message, or queue it while one runs."""
    state = draft.state
    draft.change.message_ids.append(event.message_id)
    if not state.title:
        first_line = event.text.strip().split("\n", 1)[0]
        draft.update(title=first_line[:_TITLE_LENGTH])
    message = QueuedMessage(
        id=event.message_id,
        plan_mode=event.plan_mode,
        model=event.model,
        created_at=draft.now,
    )
    if state.turn is None and not state.queue:
        _begin_turn(draft, (message,), text=event.text)
        return True
    draft.change.queue_texts[event.message_id] = event.text
    queue = (*state.queue, message)
    if state.turn is None:
        # A stopped turn left messages in the queue: they keep their place before this one.
        _set_queue(draft, queue[1:])
        _begin_turn(draft, queue[:1])
    else:
        _set_queue(draft, queue)
    return True


def queued_message_deleted(draft: Draft, event: QueuedMessageDeleted) -> bool:
    """Take a message out of the queue."""
    _require_queued(draft, (event.message_id,))
    draft.change.queue_dropped.append(event.message_id)
    _set_queue(draft, tuple(item for item in draft.state.queue if item.id != event.message_id))
    return True


def _require_queued(draft: Draft, message_ids: tuple[str, ...]) -> None:
    queued = {item.id for item in draft.state.queue}
    for message_id in message_ids:
        if message_id not in queued:
            raise NotFound(
                f"No message {message_id!r} waits in the queue; it may have been taken already.",
                code="unknown_message",
            )


def _set_queue(draft: Draft, queue: tuple[QueuedMessage, ...]) -> None:
    draft.update(queue=queue)
    draft.event(EventType.QUEUE_CHANGED, length=len(queue))


def _begin_turn(
    draft: Draft, messages: tuple[QueuedMessage, ...], *, text: str | None = None
) -> None:
    """Open a turn with its messages; their text is given, or still beside the queue."""
    _open_turn(draft, messages)
    for model in (message.model for message in messages if message.model is not None):
        draft.update(model=model)
    for message in messages:
        draft.append(
            Role.USER,
            text=text or "",
            source=TextSource.QUEUE if text is None else TextSource.GIVEN,
            message_id=message.id,
        )
        if text is None:
            draft.change.queue_dropped.append(message.id)
    draft.open_step(StepName.RUN_MODEL)


def _open_turn(
    draft: Draft, messages: tuple[QueuedMessage, ...] = (), *, executes_plan: bool = False
) -> None:
    number = draft.state.turns + 1
    turn = Turn(
        id=f"t{number}",
        started_at=draft.now,
        message_ids=tuple(message.id for message in messages),
        plan_mode=any(message.plan_mode for message in messages),
        executes_plan=executes_plan,
    )
    draft.update(turn=turn, turns=number)
    draft.transition(StepName.AWAIT_USER_MESSAGE)
    draft.event(EventType.TURN_STARTED, turn_id=turn.id)
    for notice in draft.state.notices:
        draft.append(Role.NOTICE, text=notice)
    draft.update(notices=())


# --- plans


def plan_executed(draft: Draft, event: PlanExecuted) -> bool:
    """Begin a turn that carries out the reviewed revision of the plan."""
    plan = built_in_rules.require_executable(draft.state.plan, event.revision)
    if draft.state.turn is not None:
        raise Conflict(
            "A turn is running, and may change the plan; execute it when the turn has ended.",
            code="turn_running",
        )
    _open_turn(draft, executes_plan=True)
    draft.set_plan(plan.model_copy(update={"status": PlanStatus.ACTIVE}))
    draft.append(Role.USER, text=execution_text(plan))
    draft.open_step(StepName.RUN_MODEL)
    return True


def _correct_stalled(draft: Draft, plan: Plan) -> None:
    """Begin the one corrective turn of an execution that ended with open tasks."""
    _open_turn(draft)
    draft.append(Role.NOTICE, text=stall_text(plan))
    draft.open_step(StepName.RUN_MODEL)


# --- the model


def model_replied(draft: Draft, step: Step, event: ModelReplied) -> None:
    """Store a response, then end the turn or open its calls."""
    facts = _facts(event)
    answered = not event.calls and draft.turn.control is None
    missing = "; ".join(event.missing_tools)
    note = f"some tools were missing: {missing}" if missing else None
    draft.end_step(step, "succeeded", note=note, facts=facts)
    _count_usage(draft, event.usage)
    several = draft.turn.usage.model_calls > 1
    message = draft.append(
        Role.ASSISTANT,
        text=event.text,
        reasoning=event.reasoning,
        items=tuple(event.items),
        calls=tuple(planned.reference for planned in event.calls),
        turn_usage=draft.turn.usage if answered and several else None,
        **facts,
    )
    draft.update_turn(
        model_calls=draft.turn.model_calls + 1,
        response_seq=message.seq,
        compactions=draft.turn.compactions if event.context_full else 0,
        refused_as_too_large=False,
    )
    if answered:
        _end_turn(draft, "answered")
        return
    for planned in event.calls:
        call_rules.open_call(draft, planned)
    go_on(draft)


class _Facts(TypedDict):
    """What is recorded of a model call, in its message and in the history."""

    model: str | None
    reported_model: str | None
    finish_reason: str | None
    usage: Usage
    first_token_ms: int | None
    latency_ms: int | None


def _facts(event: ModelReplied | ContextCompacted) -> _Facts:
    return {
        "model": event.model,
        "reported_model": event.reported_model,
        "finish_reason": event.finish_reason,
        "usage": event.usage,
        "first_token_ms": event.first_token_ms,
        "latency_ms": event.latency_ms,
    }


def _count_usage(draft: Draft, of_call: Usage) -> None:
    usage = of_call.of_one_call()
    draft.update(usage=draft.state.usage.plus(usage))
    draft.update_turn(usage=draft.turn.usage.plus(usage))


def model_interrupted(draft: Draft, step: Step, event: ModelInterrupted) -> None:
    """Keep the partial text of a stopped model call; no call of it exists, and what it used is unknown."""
    unknown = Usage()
    draft.end_step(step, "cancelled", facts={"usage": unknown})
    _count_usage(draft, unknown)
    if event.text.strip():
        draft.append(Role.ASSISTANT, text=event.text, interrupted=True, usage=unknown)
    elif step.name is StepName.RUN_MODEL:
        _withdraw(draft, step)
    go_on(draft)


def _withdraw(draft: Draft, step: Step) -> None:
    """Tell pages that what this attempt has streamed, reasoning too, will be no message."""
    draft.event(EventType.TEXT_WITHDRAWN, step_id=step.id, attempt=step.attempt)


def model_attempt_broke(draft: Draft, step: Step, event: StepFailed, word: str) -> None:
    """Retry a model call (of `CompactContext`, too), or record that the turn failed."""
    if step.name is StepName.RUN_MODEL:
        _withdraw(draft, step)
    if event.usage is not None:
        _count_usage(draft, event.usage)
    facts = {"usage": event.usage, "failure": event.kind}
    if draft.turn.control is not None:
        draft.end_step(step, word, error=event.error, facts=facts)
        go_on(draft)
        return
    rules = draft.rules
    too_long = event.delay_ms is not None and event.delay_ms > rules.provider_wait_max_ms
    if event.retryable and not too_long and step.attempt < rules.model_attempts:
        call_rules.retry(
            draft,
            step,
            event.error,
            delay_ms=event.delay_ms,
            backoff_seconds=None,
            word=word,
            facts=facts,
        )
        return
    draft.end_step(step, word, error=event.error, facts=facts)
    most = rules.provider_wait_max_ms
    why = _why_turn_failed(event, step, too_long=too_long, most_ms=most)
    _fail_turn(draft, why, event.kind)


def _why_turn_failed(event: StepFailed, step: Step, *, too_long: bool, most_ms: int) -> str:
    why = event.error
    if too_long and event.delay_ms is not None:
        asked, most = event.delay_ms // 1000, most_ms // 1000
        why = (
            f"{event.error} (the provider asks to wait {asked} s; "
            f"CELERIAC_PROVIDER_WAIT_MAX_SECONDS allows {most} s)"
        )
    elif step.attempt > 1:
        why = f"the model call failed {step.attempt} times; the last error: {event.error}"
    if step.name is StepName.COMPACT_CONTEXT:
        return f"the older messages could not be summarised, nothing of them is lost: {why}"
    return why


# --- compaction


def context_full(draft: Draft, step: Step, event: ContextFull) -> None:
    """Summarise older messages first; this attempt of the model call was none."""
    draft.end_step(step, "returned", note=event.reason)
    if event.refused:
        _withdraw(draft, step)
    if draft.turn.control is not None:
        go_on(draft)
        return
    refused = event.refused or draft.turn.refused_as_too_large
    draft.update_turn(compact_before=event.compact_before, refused_as_too_large=refused)
    draft.open_step(StepName.COMPACT_CONTEXT)


def context_compacted(draft: Draft, step: Step, event: ContextCompacted) -> None:
    """Append the summary and let the context begin after what it covers; both in this one commit."""
    before = draft.turn.compact_before
    facts = _facts(event)
    draft.end_step(step, "succeeded", facts=facts)
    draft.append(
        Role.SUMMARY,
        text=event.text + _still_unknown(draft),
        covers_before=before,
        **facts,
    )
    _count_usage(draft, event.usage)
    draft.update(context_from=before)
    draft.update_turn(compact_before=0, compactions=draft.turn.compactions + 1)
    go_on(draft)


def _still_unknown(draft: Draft) -> str:
    """Say which outcomes are unknown: what the model must not forget is not left to a summary."""
    if not draft.state.unknown:
        return ""
    calls = ", ".join(f"{entry.id} of {entry.tool}" for entry in draft.state.unknown)
    return f"\n\nCalls whose outcome is still unknown (do not repeat them): {calls}."


# --- going on


def go_on(draft: Draft) -> None:
    """Take the turn further once no step of it is open: resume, apply a control, or call the model."""
    if draft.turn.calls:
        write_order.take_next(draft)
    if draft.state.steps:
        return
    if draft.turn.calls:
        _resume(draft)
    if draft.turn.control is not None:
        _apply_control(draft, draft.turn.control)
    else:
        draft.open_step(StepName.RUN_MODEL)


def _resume(draft: Draft) -> None:
    """Append the results of all calls together, in call order, right after their response."""
    calls = draft.turn.calls
    for call in calls:
        draft.append(
            Role.TOOL,
            source=TextSource.OUTCOME,
            shown_bytes=call.shown_bytes,
            call_id=call.id,
            tool=call.tool,
            status=call.status,
        )
    told = {call.id for call in calls if call.status is CallStatus.OUTCOME_UNKNOWN}
    if told:
        draft.update(
            unknown=tuple(
                entry.evolve(told_model=True) if entry.id in told else entry
                for entry in draft.state.unknown
            )
        )
    draft.update_turn(calls=(), response_seq=None)
    draft.transition(StepName.RESUME_TURN)


def _fail_turn(draft: Draft, reason: str, kind: FailureKind | None) -> None:
    draft.append(
        Role.NOTICE,
        text=f"This turn failed: {reason}",
        failure=kind,
        turn_usage=_used(draft.turn),
    )
    draft.transition(StepName.RECORD_TURN_FAILURE, note=reason)
    _end_turn(draft, "failed", error=reason)


def _used(turn: Turn) -> Usage | None:
    return turn.usage if turn.usage.model_calls else None


def _end_turn(
    draft: Draft, state: str, *, error: str | None = None, then: tuple[QueuedMessage, ...] = ()
) -> None:
    """Close the turn; the next one begins with `then`, or with the first queued message."""
    ended = draft.turn
    draft.event(EventType.TURN_ENDED, turn_id=ended.id, state=state, error=error)
    draft.update(turn=None, updated_at=draft.now)
    if not then and state != "cancelled":
        then = draft.state.queue[:1]
    plan = draft.state.plan
    if then:
        _start_chosen(draft, tuple(message.id for message in then))
    elif state == "answered" and ended.executes_plan and plan is not None and plan.open_todos:
        _correct_stalled(draft, plan)


def _start_chosen(draft: Draft, message_ids: tuple[str, ...]) -> None:
    """Begin a turn with these messages of the queue, in the queue's order."""
    queue = draft.state.queue
    _set_queue(draft, tuple(item for item in queue if item.id not in message_ids))
    _begin_turn(draft, tuple(item for item in queue if item.id in message_ids))


# --- control


def steered(draft: Draft, event: TurnSteered) -> bool:
    """Store a steer; it takes effect at once where nothing has started, else at the next boundary."""
    _require_queued(draft, event.message_ids)
    if not event.message_ids:
        raise Conflict("No queued message to steer with; send one first.", code="nothing_to_steer")
    if draft.state.turn is None:
        _start_chosen(draft, event.message_ids)
        return True
    control = draft.turn.control
    earlier = control.message_ids if control and control.verb is ControlVerb.STEER else ()
    ids = (*earlier, *(mid for mid in event.message_ids if mid not in earlier))
    return _control(
        draft, Control(verb=ControlVerb.STEER, message_ids=ids, by=event.by, at=draft.now)
    )


def cancelled(draft: Draft, event: TurnCancelled) -> bool:
    """Store a stop; the same again changes nothing."""
    if draft.state.turn is None:
        raise Conflict("No turn is running, so there is nothing to stop.", code="no_open_turn")
    if event.turn_id is not None and event.turn_id != draft.turn.id:
        raise Conflict(f"Turn {event.turn_id} is not open any more.", code="turn_ended")
    control = draft.turn.control
    if control is not None and control.verb is ControlVerb.CANCEL:
        return False
    return _control(draft, Control(verb=ControlVerb.CANCEL, by=event.by, at=draft.now))


def _control(draft: Draft, control: Control) -> bool:
    draft.update_turn(control=control)
    call_rules.cancel_unstarted(draft)
    go_on(draft)
    return True


def _apply_control(draft: Draft, control: Control) -> None:
    steer = control.verb is ControlVerb.STEER
    note = f"{control.verb.value} by {control.by}" if control.by else control.verb.value
    draft.transition(StepName.APPLY_TURN_CONTROL, note=note)
    chosen = tuple(item for item in draft.state.queue if item.id in control.message_ids)
    if not steer:
        draft.append(Role.NOTICE, text="The user stopped this turn.", turn_usage=_used(draft.turn))
    _end_turn(draft, "steered" if steer else "cancelled", then=chosen)
