"""What is written can be read: by this version, and by every later one."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel

from celeriac.sessions import codec
from celeriac.sessions.calls import CallOutcome, CallRequest, CallStatus, ToolEffect
from celeriac.sessions.codec import (
    UnknownSchema,
    read_record,
    read_state,
    read_timing,
    write_record,
    write_state,
    write_timing,
)
from celeriac.sessions.messages import CallReference, Message, Role, Usage
from celeriac.sessions.state import SCHEMA_VERSION, SessionState, StepTiming
from tests.unit.invariants import stored_and_loaded
from tests.unit.world import ONCE, World, planned

MILLISECONDS = st.integers(min_value=0, max_value=2**53)


def busy() -> World:
    """A session with something in every part of its state."""
    world = World()
    world.calling(planned("call_a", ONCE), planned("call_b", ONCE, asks=True), planned("call_c"))
    world.start_call("call_a")
    world.lose_worker()
    world.approve("call_b")
    world.breaks(world.start_call("call_c"), "HTTP 503")
    world.send("waiting")
    world.steer("waiting")
    return world


def test_a_state_with_everything_in_it_comes_back_equal() -> None:
    for world in (World(), busy()):
        assert stored_and_loaded(world.state) == world.state


def test_timings_are_kept_beside_the_state_and_not_in_it() -> None:
    world = World()
    world.send("hello")
    step = world.start_model()
    raw = write_state(world.state)
    assert str(step.timing.token) not in raw
    without = read_state(raw.encode(), {})
    assert without.steps[0].timing == StepTiming(not_before=0)
    assert without.steps[0].id == step.id


@given(
    st.builds(
        StepTiming,
        not_before=MILLISECONDS,
        due=st.none() | MILLISECONDS,
        sends=st.integers(0, 1000),
        token=MILLISECONDS,
        claimed_at=MILLISECONDS,
        owner=st.text(
            alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="#"), max_size=20
        ),
    )
)
def test_a_timing_comes_back_equal(timing: StepTiming) -> None:
    assert read_timing(write_timing(timing).encode()) == timing


def test_a_timing_is_read_as_the_claim_script_writes_it() -> None:
    timing = read_timing(b"1000 9000 1 1796040000000001 1000 worker@host/17")
    assert timing.claimed
    assert (timing.not_before, timing.due, timing.owner) == (1000, 9000, "worker@host/17")
    assert read_timing(b"1000 9000 1 17 1000 worker@host/17#a1").owner == "worker@host/17"
    assert not read_timing(b"1000 - 0 0 0 ").claimed
    assert read_timing(b"1000 - 0 0 0 ").due is None


RECORDS: list[BaseModel] = [
    CallRequest(
        id="call_a",
        tool="t",
        arguments={"a": [1, None, True, "é\u2028"], "b": {}},
        effect=ToolEffect.READ,
        turn_id="t1",
        created_at=1,
    ),
    CallOutcome(status=CallStatus.SUCCEEDED, result=None, settled_at=1),
    CallOutcome(status=CallStatus.SUCCEEDED, result=False, settled_at=1),
    CallOutcome(status=CallStatus.SUCCEEDED, result=0, settled_at=1),
    CallOutcome(status=CallStatus.SUCCEEDED, result="", settled_at=1),
    CallOutcome(status=CallStatus.SUCCEEDED, result=[1.5, 2**70], settled_at=1),
    Message(seq=0, role=Role.USER, text="hello", created_at=1),
    Message(
        seq=3,
        role=Role.ASSISTANT,
        created_at=1,
        items=({"type": "reasoning", "encrypted_content": "AA=="}, {"n": 1.0}),
        calls=(CallReference(id="call_a", tool="t", arguments='{"a": 1.0}'),),
        usage=Usage(cost_usd=0.0, input_tokens=0),
    ),
]


@pytest.mark.parametrize("record", RECORDS, ids=write_record)
@pytest.mark.parametrize("as_bytes", [True, False])
def test_records_come_back_equal(record: BaseModel, as_bytes: bool) -> None:
    raw = write_record(record)
    assert read_record(type(record), raw.encode() if as_bytes else raw) == record


def test_items_of_a_provider_come_back_with_the_same_json() -> None:
    items = ({"signature": "x" * 50, "n": 1.0, "m": 1, "z": None, "a": False},)
    message = Message(seq=0, role=Role.ASSISTANT, items=items, created_at=1)
    again = read_record(Message, write_record(message))
    assert json.dumps(again.items) == json.dumps(items)


def test_an_idle_session_is_small() -> None:
    assert len(write_state(World().state)) < 250


def test_a_session_of_a_newer_version_is_refused_and_says_what_to_do() -> None:
    raw = json.dumps({"schema_version": SCHEMA_VERSION + 1, "session_id": "ses_9"}).encode()
    with pytest.raises(UnknownSchema, match=r"ses_9.*schema version 2.*Run a newer Celeriac"):
        read_state(raw, {})


def test_a_session_of_an_older_version_is_brought_up_to_date(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def upcast(data: dict[str, object]) -> dict[str, object]:
        data["model"] = data.pop("model_name")
        return data

    monkeypatch.setattr(codec, "UPCASTERS", {SCHEMA_VERSION - 1: upcast})
    old = json.loads(write_state(World().state))
    old["model_name"] = old.pop("model")
    old["schema_version"] = SCHEMA_VERSION - 1
    assert read_state(json.dumps(old).encode(), {}) == World().state


def test_the_version_is_written_first_so_that_reading_is_quick() -> None:
    assert write_state(busy().state).startswith(f'{{"schema_version":{SCHEMA_VERSION},')
    assert isinstance(busy().state, SessionState)
