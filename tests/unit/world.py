"""A session played in memory: what the store and the workers do to it, without a store or a worker.

`World.apply` commits what `advance` decides, exactly as the store would: the state goes through the codec,
texts of results and queued messages are filled in, and claims are written into the timing of a step as the
claim script writes them. After each commit every invariant of `invariants.py` is checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import JsonValue

from celeriac.sessions.advance import advance, start
from celeriac.sessions.built_in import BuiltInTool
from celeriac.sessions.calls import (
    CallOutcome,
    CallRequest,
    CallStatus,
    DecisionVerb,
    LateResult,
    ToolEffect,
    result_text,
)
from celeriac.sessions.context import active_context
from celeriac.sessions.draft import Change, NewMessage, Rules, TextSource
from celeriac.sessions.events import EventType, LiveEvent
from celeriac.sessions.failures import FailureKind
from celeriac.sessions.images import ImageReference
from celeriac.sessions.inputs import (
    ApprovalDecided,
    CallReconciled,
    CheckRequested,
    ContextCompacted,
    ContextFull,
    Input,
    MessageSent,
    ModelReplied,
    OutcomeFound,
    PlanExecuted,
    PlannedCall,
    QuestionAnswered,
    SettledCall,
    StepFailed,
    StepReturned,
    ToolChanged,
    ToolEnded,
    TurnCancelled,
    TurnSteered,
    WokenUp,
)
from celeriac.sessions.messages import CallReference, Message, Role, Usage
from celeriac.sessions.plans import Plan
from celeriac.sessions.snapshot import StepRecord
from celeriac.sessions.state import (
    OpenCall,
    SessionState,
    SessionStatus,
    Step,
    StepName,
    Turn,
)
from tests.unit.invariants import check_change, check_history, stored_and_loaded

NOON = 1_796_040_000_000
RULES = Rules()

READ = ToolEffect.READ
IDEMPOTENT = ToolEffect.IDEMPOTENT_WRITE
ONCE = ToolEffect.NON_IDEMPOTENT_WRITE
PROVIDER = "the provider"
EFFECTS = (READ, IDEMPOTENT, ONCE)


def planned(
    call_id: str = "call_a",
    effect: ToolEffect = READ,
    *,
    asks: bool = False,
    max_attempts: int | None = None,
    refused: str | None = None,
    backoff_seconds: float | None = None,
    queue: str | None = None,
    shown_bytes: int | None = None,
    approval_timeout_ms: int | None = None,
    built_in: BuiltInTool | None = None,
    arguments: JsonValue = None,
    ordered: bool = False,
    reconcile_after_ms: int | None = None,
    idempotency_valid_ms: int | None = None,
) -> PlannedCall:
    """A call as the toolset would plan it; its tool is named after its Call ID unless it is built in."""
    tool = built_in.value if built_in else call_id.removeprefix("call_") + "_tool"
    attempts = 1 if effect is ONCE else 3
    return PlannedCall(
        reference=CallReference(id=call_id, tool=tool, arguments="{}"),
        request=CallRequest(
            id=call_id,
            tool=tool,
            arguments={} if arguments is None else arguments,
            effect=effect,
            turn_id="t1",
            created_at=NOON,
        ),
        refused=refused,
        requires_approval=asks,
        digest=f"digest of {call_id}",
        max_attempts=attempts if max_attempts is None else max_attempts,
        backoff_seconds=backoff_seconds,
        queue=queue,
        shown_bytes=shown_bytes,
        approval_timeout_ms=approval_timeout_ms,
        built_in=built_in,
        ordered=ordered,
        reconcile_after_ms=reconcile_after_ms,
        idempotency_valid_ms=idempotency_valid_ms,
    )


def question(call_id: str = "call_a", text: str = "Which one?", *choices: str) -> PlannedCall:
    """A call of `ask_user`."""
    arguments: dict[str, JsonValue] = {"question": text}
    if choices:
        arguments["choices"] = list(choices)
    return planned(call_id, built_in=BuiltInTool.ASK_USER, arguments=arguments)


def timer(call_id: str = "call_a", seconds: float = 10) -> PlannedCall:
    """A call of `durable_wait`."""
    arguments: JsonValue = {"seconds": seconds, "reason": "it takes a while"}
    return planned(call_id, built_in=BuiltInTool.DURABLE_WAIT, arguments=arguments)


def todos(call_id: str = "call_a", **tasks: str) -> PlannedCall:
    """A call of `write_todos`: titles with their status."""
    listed: list[JsonValue] = [
        {"title": title, "status": status} for title, status in tasks.items()
    ]
    arguments: JsonValue = {"todos": listed}
    return planned(call_id, built_in=BuiltInTool.WRITE_TODOS, arguments=arguments)


class World:
    """One session, its log, its records, and a clock that only the test moves."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.now = NOON
        self.log: list[Message] = []
        self.requests: dict[str, CallRequest] = {}
        self.outcomes: dict[str, CallOutcome] = {}
        self.late: dict[str, LateResult] = {}
        self.queue_texts: dict[str, str] = {}
        self.queue_images: dict[str, tuple[ImageReference, ...]] = {}
        self.history: list[StepRecord] = []
        self.events: list[LiveEvent] = []
        self.sent: list[Step] = []
        self._fence = 0
        begun = start("ses_1", "support", "demo", self.now, rules)
        self.state: SessionState = begun.state
        self._commit(begun)

    # --- what the store does

    def apply(self, event: Input) -> bool:
        """Let something happen; say whether it changed anything."""
        before = self.state
        if isinstance(event, ToolEnded):
            event = replace(event, settled=self._settled(event.call_id))
        as_it_was = before.model_dump_json()
        change = advance(before, event, self.now, self.rules)
        assert before.model_dump_json() == as_it_was, "advance changed its input"
        if change is None:
            return False
        check_change(before, change, self.outcomes, self.now)
        self._commit(change)
        return True

    def _settled(self, call_id: str) -> SettledCall | None:
        """What is recorded of a call that is settled, as the store reads it for a late result."""
        request, outcome = self.requests.get(call_id), self.outcomes.get(call_id)
        if request is None or outcome is None:
            return None
        return SettledCall(request, outcome, self.late.get(call_id))

    def _commit(self, change: Change) -> None:
        self.requests |= {request.id: request for request in change.requests}
        self.outcomes |= change.outcomes
        self.late |= change.late_results
        texts = {**self.queue_texts, **change.queue_texts}
        self.queue_images |= change.queue_images
        self.log += [self._filled(new, texts) for new in change.messages]
        self.queue_texts = {k: v for k, v in texts.items() if k not in change.queue_dropped}
        self.history += change.history
        self.events += change.events
        self.sent += change.send
        self.state = stored_and_loaded(change.state)
        assert [message.seq for message in self.log] == list(range(self.state.next_seq))
        assert set(self.queue_texts) == {item.id for item in self.state.queue}
        check_history(self.log, self.state)

    def _filled(self, new: NewMessage, texts: Mapping[str, str]) -> Message:
        message = new.message
        if new.source is TextSource.OUTCOME:
            outcome = self.outcomes[message.call_id or ""]
            text = result_text(message.tool or "", outcome)
            return message.model_copy(update={"text": text, "status": outcome.status})
        if new.source is TextSource.QUEUE:
            message_id = message.message_id or ""
            images = self.queue_images.get(message_id, ())
            return message.model_copy(update={"text": texts[message_id], "images": images})
        return message

    def claim(self, step: Step, owner: str = "worker/1") -> Step | None:
        """Claim a step as the claim script does; None when it is not to be had."""
        current = self.state.step(step.id)
        if current is None or current.timing.claimed or current.timing.not_before > self.now:
            return None
        self._fence = max(self._fence + 1, self.now * 1000)
        timing = current.timing.model_copy(
            update={
                "due": self.now + self.rules.lease_ms,
                "token": self._fence,
                "claimed_at": self.now,
                "owner": owner,
            }
        )
        claimed = current.model_copy(update={"timing": timing})
        steps = tuple(claimed if one.id == step.id else one for one in self.state.steps)
        self.state = self.state.model_copy(update={"steps": steps})
        return claimed

    # --- what people do

    def send(
        self,
        text: str = "hello",
        message_id: str | None = None,
        *,
        plan_mode: bool = False,
        model: str | None = None,
    ) -> str:
        """Send a message; its id is its text unless given."""
        message_id = message_id or text
        assert self.apply(MessageSent(message_id, text, plan_mode, model))
        return message_id

    def answer(self, answer: JsonValue, call_id: str = "call_a") -> bool:
        return self.apply(QuestionAnswered(call_id, answer, "Ann"))

    def execute(self, revision: int = 1) -> bool:
        return self.apply(PlanExecuted(revision, "Ann"))

    def steer(self, *message_ids: str, by: str | None = "Ann") -> bool:
        return self.apply(TurnSteered(message_ids, by))

    def cancel(self, by: str | None = "Ann", turn_id: str | None = None) -> bool:
        return self.apply(TurnCancelled(by, turn_id))

    def decide(
        self,
        verb: DecisionVerb,
        call_id: str = "call_a",
        *,
        by: str = "Ann",
        note: str | None = None,
        digest: str | None = None,
    ) -> bool:
        digest = self.call(call_id).digest if digest is None else digest
        return self.apply(ApprovalDecided(call_id, verb, by, digest, note))

    def approve(self, call_id: str = "call_a", *, by: str = "Ann") -> bool:
        return self.decide(DecisionVerb.APPROVE, call_id, by=by)

    def reject(self, call_id: str = "call_a", *, note: str | None = None) -> bool:
        return self.decide(DecisionVerb.REJECT, call_id, note=note)

    def reconcile(
        self,
        call_id: str = "call_a",
        *,
        succeeded: bool,
        note: str | None = None,
        result: JsonValue = None,
    ) -> bool:
        return self.apply(CallReconciled(call_id, succeeded, "Ann", result, note))

    def ask_for_check(self, call_id: str = "call_a") -> bool:
        return self.apply(CheckRequested(call_id, "Ann"))

    # --- what workers do

    def start_model(self) -> Step:
        """Claim the model step that is ready."""
        return self._started(next(s for s in self.state.steps if s.name is StepName.RUN_MODEL))

    def start_call(self, call_id: str = "call_a") -> Step:
        """Claim the step of a call."""
        return self._started(self.step_of(call_id))

    def _started(self, step: Step) -> Step:
        claimed = self.claim(step)
        assert claimed is not None, f"{step.name} {step.id} cannot be claimed"
        return claimed

    def reply(self, *calls: PlannedCall, text: str = "", step: Step | None = None) -> None:
        """Let the model reply, with calls or else with a final answer."""
        step = step or self.start_model()
        assert self.apply(
            ModelReplied(step.id, step.timing.token, text or ("" if calls else "done"), calls)
        )

    def finds_full(self, before: int, step: Step | None = None, *, refused: bool = False) -> bool:
        """Let `RunModel` find the context full, with messages from `before` on to be left as they are."""
        step = step or self.start_model()
        full = ContextFull(step.id, step.timing.token, before, "about 9 tokens", refused)
        return self.apply(full)

    def start_compaction(self) -> Step:
        return self._started(
            next(s for s in self.state.steps if s.name is StepName.COMPACT_CONTEXT)
        )

    def compacts(self, text: str = "What came before.", step: Step | None = None) -> bool:
        """Let the summary come."""
        step = step or self.start_compaction()
        usage = Usage(input_tokens=100, output_tokens=10)
        return self.apply(ContextCompacted(step.id, step.timing.token, text, usage, "demo"))

    @property
    def context(self) -> list[Message]:
        """What the model reads."""
        return active_context(self.log[self.state.context_from :])

    def calling(self, *calls: PlannedCall) -> None:
        """Begin a turn whose model asks for these calls."""
        self.send("hello")
        self.reply(*calls)

    def ended(
        self,
        step: Step,
        *,
        succeeded: bool = True,
        result: JsonValue = "ok",
        error: str | None = None,
    ) -> bool:
        """Let a tool return, or fail for certain."""
        return self.apply(
            ToolEnded(
                step.id,
                step.timing.token,
                step.call_id or "",
                succeeded=succeeded,
                result=result if succeeded else None,
                error=error,
            )
        )

    def breaks(
        self,
        step: Step,
        error: str = "it broke",
        *,
        retryable: bool = True,
        entered: bool = True,
        delay_ms: int | None = None,
        kind: FailureKind | None = None,
        usage: Usage | None = None,
    ) -> bool:
        """Let an attempt break."""
        token = step.timing.token
        return self.apply(
            StepFailed(
                step.id, token, error, step.call_id, retryable, entered, delay_ms, kind, usage
            )
        )

    @property
    def checks(self) -> list[Step]:
        """The look-ups that are open."""
        return list(self.state.background_steps)

    def start_check(self) -> Step:
        """Claim the one look-up that is open."""
        (step,) = self.checks
        return self._started(step)

    def finds(
        self, step: Step, happened: bool | None, *, result: JsonValue = None, note: str = ""
    ) -> bool:
        """Let a look-up end."""
        token = step.timing.token
        return self.apply(
            OutcomeFound(
                step.id,
                token,
                step.call_id or "",
                happened=happened,
                by=PROVIDER,
                result=result,
                note=note,
            )
        )

    def gives_back(self, step: Step) -> bool:
        return self.apply(StepReturned(step.id, step.timing.token, step.call_id))

    def finds_changed(
        self, step: Step, digest: str = "new digest", effect: ToolEffect | None = None
    ) -> bool:
        changed = ToolChanged(step.id, step.timing.token, digest, "its text changed", effect)
        return self.apply(changed)

    def lose_worker(self) -> None:
        """Let the lease of every claim run out, and look."""
        self.pass_time(self.rules.lease_ms)
        assert self.wake()

    def wake(
        self,
        *,
        backlogged: Sequence[str | None] = (),
        after_outage: bool = False,
        dead: Mapping[str, str] | None = None,
    ) -> bool:
        return self.apply(WokenUp(frozenset(backlogged), after_outage, dead or {}))

    def pass_time(self, milliseconds: int) -> None:
        self.now += milliseconds

    def wait_for_retry(self) -> None:
        """Let time pass until the next step may be claimed."""
        self.now = max(self.now, *(step.timing.not_before for step in self.state.steps))

    # --- what tests look at

    @property
    def turn(self) -> Turn:
        assert self.state.turn is not None, "no turn is open"
        return self.state.turn

    @property
    def plan(self) -> Plan:
        assert self.state.plan is not None, "there is no plan"
        return self.state.plan

    @property
    def looks(self) -> tuple[SessionStatus, int | None]:
        """The status, and in how many milliseconds somebody must look at the session."""
        wake_at = self.state.wake_at
        return self.state.status, None if wake_at is None else wake_at - self.now

    @property
    def idle(self) -> bool:
        return self.state.turn is None

    @property
    def steps(self) -> list[StepName]:
        return [step.name for step in self.state.steps]

    def call(self, call_id: str = "call_a") -> OpenCall:
        call = self.state.call(call_id)
        assert call is not None, f"{call_id} is not open"
        return call

    def step_of(self, call_id: str = "call_a") -> Step:
        return next(step for step in self.state.steps if step.call_id == call_id)

    def step_is_open(self, step: Step) -> bool:
        return self.state.step(step.id) == step

    def has_step(self, call_id: str = "call_a") -> bool:
        return any(step.call_id == call_id for step in self.state.steps)

    def status(self, call_id: str = "call_a") -> CallStatus:
        """How a call ended."""
        return self.outcomes[call_id].status

    def told(self, call_id: str = "call_a") -> str:
        """What the model read as the result of a call."""
        return next(message.text for message in self.log if message.call_id == call_id)

    def error(self, call_id: str = "call_a") -> str:
        return self.outcomes[call_id].error or ""

    @property
    def conversation(self) -> list[tuple[Role, str]]:
        return [(message.role, message.text) for message in self.log]

    @property
    def roles(self) -> list[Role]:
        return [message.role for message in self.log]

    @property
    def route(self) -> list[StepName]:
        """Every step that ended or was passed, in order."""
        return [record.name for record in self.history]

    def ended_turns(self) -> list[str]:
        return [
            str(event.data["state"]) for event in self.events if event.type is EventType.TURN_ENDED
        ]
