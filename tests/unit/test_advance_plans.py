"""Plans: revisions, what may be executed, and the one corrective turn of a plan that stalls."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from celeriac.sessions.built_in import BuiltInTool, parse_built_in, plan_instructions
from celeriac.sessions.calls import CallStatus
from celeriac.sessions.errors import Conflict
from celeriac.sessions.messages import Role
from celeriac.sessions.plans import MOST_TODOS, TITLE_MAX_CHARACTERS, PlanStatus
from celeriac.sessions.state import StepName
from celeriac.sessions.tools import InvalidArguments
from tests.unit.invariants import STATE_MAX_BYTES
from tests.unit.world import World, planned, todos


def drafted(**tasks: str) -> World:
    """A session with a reviewed draft: its planning turn has ended."""
    world = World()
    world.send("plan it", plan_mode=True)
    world.reply(todos("call_p", **(tasks or {"look": "pending", "write": "pending"})))
    world.reply(text="I propose this")
    assert world.idle
    return world


def code(world: World, revision: int = 1) -> str | None:
    before = world.state
    with pytest.raises(Conflict) as caught:
        world.execute(revision)
    assert world.state is before
    return caught.value.code


def test_a_planning_turn_writes_a_draft() -> None:
    world = drafted()
    assert (world.plan.revision, world.plan.status) == (1, PlanStatus.DRAFT)
    assert [(todo.title, todo.status.value) for todo in world.plan.todos] == [
        ("look", "pending"),
        ("write", "pending"),
    ]
    assert world.told("call_p") == '{"revision":1,"open_tasks":2}'
    assert len(world.ended_turns()) == 1, "a draft does not stall"


def test_a_plan_is_written_at_once_and_the_turn_goes_on_in_the_same_commit() -> None:
    world = World()
    world.calling(todos("call_a", look="pending"))
    assert world.status() is CallStatus.SUCCEEDED
    assert world.steps == [StepName.RUN_MODEL]
    assert (world.plan.revision, world.plan.status) == (1, PlanStatus.ACTIVE)


def test_each_writing_replaces_the_plan_and_counts() -> None:
    world = World()
    world.calling(todos("call_a", look="pending"))
    world.reply(todos("call_b", look="completed", write="in_progress"))
    assert (world.plan.revision, world.plan.status) == (2, PlanStatus.ACTIVE)
    world.reply(todos("call_c", look="completed", write="cancelled"))
    assert (world.plan.revision, world.plan.status) == (3, PlanStatus.COMPLETED)
    world.reply()
    assert world.idle


def test_two_writings_in_one_response_are_done_in_order() -> None:
    world = World()
    world.calling(todos("call_a", look="pending"), todos("call_b", write="pending"))
    assert world.plan.revision == 2
    assert [todo.title for todo in world.plan.todos] == ["write"]


def test_a_plan_beside_a_call_that_waits_is_written_at_once() -> None:
    world = World()
    world.calling(todos("call_a", look="pending"), planned("call_b", asks=True))
    assert world.plan.revision == 1
    assert world.steps == [StepName.AWAIT_TOOL_APPROVAL]
    world.reject("call_b")
    assert [m.call_id for m in world.log if m.role is Role.TOOL] == ["call_a", "call_b"]


def test_a_stopped_turn_writes_no_plan() -> None:
    world = World()
    world.send()
    step = world.start_model()
    world.cancel()
    world.reply(todos("call_a", look="pending"), step=step)
    assert world.state.plan is None
    assert world.outcomes["call_a"].cancelled_while is CallStatus.PENDING
    assert "cancelled before it ran" in world.told()


# --- executing


def test_a_reviewed_plan_is_executed_as_it_was_shown() -> None:
    world = drafted()
    assert world.execute(1)
    assert world.plan.status is PlanStatus.ACTIVE
    assert world.plan.revision == 1, "only writing makes a revision"
    assert not world.turn.plan_mode
    role, text = world.conversation[-1]
    assert role is Role.USER
    assert "revision 1" in text
    assert "1. look\n2. write" in text
    assert world.steps == [StepName.RUN_MODEL]


def test_only_the_present_revision_can_be_executed() -> None:
    assert code(World()) == "no_plan"
    world = drafted()
    assert code(world, 0) == "stale_plan"
    assert code(world, 2) == "stale_plan"
    world.send("other", plan_mode=True)
    world.reply(todos("call_q", other="pending"))
    world.reply()
    assert code(world, 1) == "stale_plan"
    assert world.execute(2)


def test_a_plan_is_not_executed_while_a_turn_runs_nor_twice_at_once() -> None:
    world = drafted()
    world.send("wait", plan_mode=True)
    assert code(world) == "turn_running"
    world.reply()
    world.execute()
    assert code(world) == "turn_running"


def test_a_completed_plan_is_not_executed() -> None:
    world = drafted(look="pending")
    world.execute()
    world.reply(todos("call_a", look="completed"))
    world.reply()
    assert world.idle
    assert world.plan.status is PlanStatus.COMPLETED
    assert code(world, 2) == "plan_completed"


def test_a_plan_that_was_stopped_stays_active_and_can_go_on() -> None:
    world = drafted()
    world.execute()
    world.reply(todos("call_a", look="completed", write="pending"))
    world.cancel()
    assert world.plan.status is PlanStatus.ACTIVE
    assert world.execute(2)
    assert "1. look [completed]" in world.conversation[-1][1]


def test_executing_leaves_the_queue_in_its_order() -> None:
    world = drafted()
    world.send("begin")
    world.send("later")
    world.cancel()
    assert world.execute()
    world.send("last")
    world.reply()
    assert world.conversation[-1] == (Role.USER, "later")
    world.reply()
    assert world.conversation[-1] == (Role.USER, "last")


# --- stalling


def test_an_execution_that_stalls_is_corrected_exactly_once() -> None:
    world = drafted()
    world.execute()
    world.reply(text="I am done, I think")
    role, text = world.conversation[-1]
    assert role is Role.NOTICE
    assert "2 of 2 tasks" in text
    assert "1. look" in text
    assert world.steps == [StepName.RUN_MODEL]
    assert world.turn.id == "t3"
    world.reply(text="still done")
    assert world.idle, "it is left alone after one correction"
    assert world.plan.status is PlanStatus.ACTIVE


def test_every_execution_has_a_correction_of_its_own() -> None:
    world = drafted()
    for _ in range(2):
        world.execute()
        world.reply()
        world.reply()
        assert world.idle
    assert world.roles.count(Role.NOTICE) == 2


def test_a_plan_that_is_completed_is_not_corrected() -> None:
    world = drafted()
    world.execute()
    world.reply(todos("call_a", look="completed", write="completed"))
    world.reply()
    assert world.idle
    assert Role.NOTICE not in world.roles


def test_a_turn_that_executes_no_plan_is_not_corrected() -> None:
    world = drafted()
    world.send("what is in the plan?")
    world.reply()
    assert world.idle


def test_a_queued_message_comes_instead_of_the_correction() -> None:
    world = drafted()
    world.execute()
    world.send("wait, something else")
    world.reply()
    assert world.conversation[-1] == (Role.USER, "wait, something else")
    world.reply()
    assert world.idle
    assert Role.NOTICE not in world.roles


@pytest.mark.parametrize("how", ["failed", "stopped", "steered"])
def test_a_turn_that_ended_otherwise_is_not_corrected(how: str) -> None:
    world = drafted()
    world.execute()
    step = world.start_model()
    if how == "failed":
        world.breaks(step, "no such model", retryable=False)
    elif how == "stopped":
        world.cancel()
        world.reply(step=step)
    else:
        world.steer(world.send("other"))
        world.reply(step=step)
        world.reply()
    assert world.idle
    assert not [text for role, text in world.conversation if "tasks of the plan" in text]


# --- words and bounds


def test_what_the_model_is_told_about_its_plan() -> None:
    assert plan_instructions(None, planning=False) == ""
    planning = plan_instructions(None, planning=True)
    assert "write_todos" in planning
    assert "Nothing may be done yet" in planning
    world = drafted()
    draft = plan_instructions(world.plan, planning=False)
    assert "revision 1, a draft that nobody has approved yet" in draft
    assert "1. look\n2. write" in draft
    both = plan_instructions(world.plan, planning=True)
    assert both == f"{planning}\n\n{draft}"
    world.execute()
    world.reply(todos("call_a", look="completed", write="in_progress"))
    active = plan_instructions(world.plan, planning=False)
    assert "revision 2, active" in active
    assert "1. look [completed]\n2. write [in_progress]" in active
    world.reply(todos("call_b", look="completed", write="completed"))
    assert plan_instructions(world.plan, planning=False) == "", "what is done needs no words"


def test_the_largest_plan_fits_into_the_state() -> None:
    """`World` checks the size of each state that it commits."""
    world = World()
    world.calling(
        todos(
            "call_a",
            **{
                f"{n:03}" + "x" * (TITLE_MAX_CHARACTERS - 3): "in_progress"
                for n in range(MOST_TODOS)
            },
        )
    )
    assert len(world.plan.todos) == MOST_TODOS
    assert len(world.plan.model_dump_json()) < STATE_MAX_BYTES


@pytest.mark.parametrize(
    "listed",
    [
        [],
        None,
        "look",
        [{}],
        [{"title": ""}],
        [{"title": "  "}],
        [{"title": "x" * (TITLE_MAX_CHARACTERS + 1)}],
        [{"title": "x", "status": "doing"}],
        [{"title": "x", "more": 1}],
        ["look"],
        [{"title": "x"}] * (MOST_TODOS + 1),
    ],
)
def test_a_plan_out_of_bounds_is_refused_in_short_words(listed: JsonValue) -> None:
    with pytest.raises(InvalidArguments) as caught:
        parse_built_in(BuiltInTool.WRITE_TODOS, {"todos": listed})
    assert len(str(caught.value)) < 600
