"""Rules of turns: how they begin, go on from step to step, are steered or stopped, and end. Pure."""

from __future__ import annotations

from celeriac.sessions import built_in_rules, call_rules, write_order
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.draft import Draft, TextSource
from celeriac.sessions.errors import Conflict, NotFound
from celeriac.sessions.events import EventType
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.inputs import (
    MessageSent,
    PlanExecuted,
    QueuedMessageDeleted,
    TurnCancelled,
    TurnSteered,
)
from celeriac.sessions.messages import Role, Usage
from celeriac.sessions.plans import Plan, PlanStatus, execution_text, stall_text
from celeriac.sessions.state import (
    Control,
    ControlVerb,
    QueuedMessage,
    StepName,
    Turn,
)

__all__ = [
    "cancelled",
    "end_turn",
    "fail_turn",
    "go_on",
    "message_sent",
    "plan_executed",
    "queued_message_deleted",
    "steered",
]

_TITLE_LENGTH = 80
_TITLE_OF_IMAGES = "Image"


# --- messages


def message_sent(draft: Draft, event: MessageSent) -> bool:
    """Begin a turn with the message, or queue it while one runs."""
    state = draft.state
    draft.change.message_ids.append(event.message_id)
    if not state.title:
        first_line = event.text.strip().split("\n", 1)[0]
        draft.update(title=first_line[:_TITLE_LENGTH] or _TITLE_OF_IMAGES)
    message = QueuedMessage(
        id=event.message_id,
        plan_mode=event.plan_mode,
        model=event.model,
        created_at=draft.now,
    )
    if state.turn is None and not state.queue:
        _begin_turn(draft, (message,), given=event)
        return True
    draft.change.queue_texts[event.message_id] = event.text
    if event.images:
        draft.change.queue_images[event.message_id] = event.images
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
    draft: Draft, messages: tuple[QueuedMessage, ...], *, given: MessageSent | None = None
) -> None:
    """Open a turn with its messages; what they say is given, or still beside the queue."""
    _open_turn(draft, messages)
    for model in (message.model for message in messages if message.model is not None):
        draft.update(model=model)
    for message in messages:
        draft.append(
            Role.USER,
            text=given.text if given else "",
            source=TextSource.GIVEN if given else TextSource.QUEUE,
            message_id=message.id,
            images=given.images if given else (),
        )
        if given is None:
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


# --- going on


def go_on(draft: Draft) -> None:
    """Take the turn further once no step of it is open: resume, apply a control, or call the model."""
    if draft.turn.calls:
        write_order.take_next(draft)
    if draft.state.turn_steps:
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


def fail_turn(draft: Draft, reason: str, kind: FailureKind | None) -> None:
    """End the turn with a notice of why it failed."""
    draft.append(
        Role.NOTICE,
        text=f"This turn failed: {reason}",
        failure=kind,
        turn_usage=_used(draft.turn),
    )
    draft.transition(StepName.RECORD_TURN_FAILURE, note=reason)
    end_turn(draft, "failed", error=reason)


def _used(turn: Turn) -> Usage | None:
    return turn.usage if turn.usage.model_calls else None


def end_turn(
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
    end_turn(draft, "steered" if steer else "cancelled", then=chosen)
