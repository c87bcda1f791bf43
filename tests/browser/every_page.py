"""Every page in every state it can show, on the in-memory client: what the walks over all pages visit."""

from __future__ import annotations

import time

from celeriac.sessions.audit import AuditAct, AuditEntry
from celeriac.sessions.calls import CallStatus, Decision, DecisionVerb, ToolEffect
from celeriac.sessions.messages import Role
from celeriac.sessions.operations import QueueInfo, Reason, ReasonKind, SlowSession
from celeriac.sessions.plans import PlanStatus, Todo, TodoStatus
from celeriac.sessions.state import StepName
from tests.web.fake_client import NOON, FakeClient

__all__ = ["fill_pages"]

_PROSE = """# Two orders are late

Both were **shipped** on Monday, see [the carrier](https://carrier.example/track?id=1) and `order 1002`.

1. Ask the customer
2. Cancel what was not sent

| Order | State |
|-------|-------|
| 1001  | sent  |
| 1002  | *lost* |

> They asked twice.

```python
def total(lines: list[Line]) -> Decimal:
    return sum((line.price * line.count for line in lines), start=Decimal(0))
```
"""


def fill_pages(fake: FakeClient) -> dict[str, str]:
    """Give the client something of everything; return each page's address by a name for it."""
    fake.tool_names.append("write_todos")
    empty = fake.create_session(model="demo").session_id
    calls = _every_call(fake)
    asking = _asking(fake)
    for sid in (calls, asking):
        fake.recorded += [
            AuditEntry(
                id=f"{number}-{sid}",
                at=NOON + number * 60_000,
                act=act,
                by=None if act.refused else "Ana",
                role=None if act.refused else "operator",
                way="page",
                address="203.0.113.9",
                session_id=sid,
                detail="no operator's token" if act.refused else None,
            )
            for number, act in enumerate(AuditAct)
        ]
    _trouble(fake, asking)
    return {
        "sessions": "/sessions",
        "no-match": "/sessions?state=running",
        "new-session": f"/sessions/{empty}",
        "calls": f"/sessions/{calls}",
        "asking": f"/sessions/{asking}",
        "approvals": "/approvals",
        "operations": "/operations",
        "audit": "/audit",
        "audit-none": "/audit?session_id=ses_nothing",
        "login": "/login",
        "login-link": "/login?code=1",
        "not-found": "/sessions/ses_000000000000000000000000",
        "no-page": "/nothing-here",
        "wrong": "/sessions?cursor=wrong",
    }


def _every_call(fake: FakeClient) -> str:
    """A session with one call of each ending, which has come to rest."""
    sid = fake.create_session(message="Please look after my two late orders").session_id
    fake.say(sid, _PROSE, reasoning="The person wants **both** orders looked at.")
    approved = Decision(verb=DecisionVerb.APPROVE, by="Ana", at=NOON, digest="d1", note="be quick")
    refused = Decision(verb=DecisionVerb.REJECT, by="Bo", at=NOON, digest="d1", note="not yet")
    fake.ask(
        sid,
        status=CallStatus.SUCCEEDED,
        decision=approved,
        result={"cancelled": True, "lines": [1, 2]},
        settled_at=NOON,
    )
    fake.ask(
        sid, status=CallStatus.FAILED, error="The order desk said no.", text="", settled_at=NOON
    )
    fake.ask(sid, status=CallStatus.REJECTED, decision=refused, text="", settled_at=NOON)
    fake.ask(sid, status=CallStatus.OUTCOME_UNKNOWN, text="", checkable=True, settled_at=NOON)
    fake.ask(sid, status=CallStatus.CANCELLED, text="", settled_at=NOON)
    fake.say(sid, "Earlier: two orders, both late.", role=Role.SUMMARY)
    fake.say(sid, "Stopped by Ana.", role=Role.NOTICE)
    fake.write_plan(
        sid,
        PlanStatus.DRAFT,
        Todo(title="Ask the customer", status=TodoStatus.COMPLETED),
        Todo(title="Cancel order 1002", status=TodoStatus.IN_PROGRESS),
        Todo(title="Send a voucher"),
    )
    fake.sessions[sid].turn_id = None
    return sid


def _asking(fake: FakeClient) -> str:
    """A session that needs a person in every way, with calls that still run and a queue."""
    sid = fake.create_session(message="Cancel order 1002 and tell me when it is done").session_id
    fake.say(sid, "I shall look first.")
    fake.ask(sid, status=CallStatus.RUNNING, effect=ToolEffect.READ, text="")
    fake.ask(sid, status=CallStatus.RETRYING, last_error="no answer within 5 s", text="")
    letter = "Dear customer,\n\nwe are sorry.\n" * 20
    fake.ask(
        sid,
        arguments={
            "order_id": "1002",
            "amount": 12.5,
            "notify": True,
            "lines": [1],
            "text": letter,
        },
        description="Cancels an order for good.",
        source="orders",
    )
    fake.question(sid, "Shall the customer get a voucher?", "yes", "no")
    fake.question(sid, "How many were in the parcel?")
    fake.wait(sid, int((time.time() + 3600) * 1000), "the carrier opens at nine")
    todos = (Todo(title="Ask the customer", status=TodoStatus.COMPLETED), Todo(title="Cancel it"))
    fake.write_plan(sid, PlanStatus.ACTIVE, *todos)
    fake.send_message(sid, "and the other order, too", plan_mode=True)
    fake.missing_tools.append("orders: it did not answer within 10 seconds.")
    return sid


def _trouble(fake: FakeClient, sid: str) -> None:
    fake.operations.queues += (QueueInfo(name="celeriac.slow", depth=1, workers=0),)
    reason = Reason(
        kind=ReasonKind.NO_WORKER,
        since=NOON - 60_000,
        step=StepName.CALL_TOOL,
        tool="cancel_order",
        queue="celeriac.slow",
    )
    slow = SlowSession(
        session_id=sid, agent="demo", title="Cancel", updated_at=NOON - 60_000, reasons=(reason,)
    )
    fake.operations.slow = (slow,)
