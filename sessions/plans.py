"""Plans: the tasks an agent sets itself, and what a person may run of them. Pure."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Plan", "PlanStatus", "Todo", "TodoStatus", "execution_text", "plan_lines", "stall_text"]

MOST_TODOS = 50
TITLE_MAX_CHARACTERS = 200
"""Bounds of a plan: it is part of the control state, which stays small."""


class TodoStatus(StrEnum):
    """Where a task of a plan is."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"

    @property
    def open(self) -> bool:
        """Whether something is left to do."""
        return self in {TodoStatus.PENDING, TodoStatus.IN_PROGRESS}


class Todo(BaseModel):
    """One task of a plan."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    title: str = Field(min_length=1, max_length=TITLE_MAX_CHARACTERS)
    status: TodoStatus = TodoStatus.PENDING


class PlanStatus(StrEnum):
    """What may happen with a plan."""

    DRAFT = "draft"
    """Written by a planning turn; nothing of it runs before a person executes it."""
    ACTIVE = "active"
    """Being worked on, or stopped with open tasks."""
    COMPLETED = "completed"
    """No task is open any more."""


class Plan(BaseModel):
    """The plan of a session; each `write_todos` replaces it and increments its revision."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: int
    status: PlanStatus
    todos: tuple[Todo, ...] = ()
    updated_at: int
    """Unix milliseconds."""

    @property
    def open_todos(self) -> tuple[Todo, ...]:
        """The tasks that are left."""
        return tuple(todo for todo in self.todos if todo.status.open)


def plan_lines(plan: Plan) -> str:
    """Write the tasks as numbered lines, each that is not pending with its status."""
    return "\n".join(
        f"{number}. {todo.title}"
        + ("" if todo.status is TodoStatus.PENDING else f" [{todo.status.value}]")
        for number, todo in enumerate(plan.todos, 1)
    )


def execution_text(plan: Plan) -> str:
    """Return the message with which a person has a plan executed."""
    return f"Execute the plan, revision {plan.revision}:\n\n{plan_lines(plan)}"


def stall_text(plan: Plan) -> str:
    """Return the notice that begins the corrective turn of a plan that stalled."""
    return (
        f"The turn ended, but {len(plan.open_todos)} of {len(plan.todos)} tasks of the plan "
        f"(revision {plan.revision}) are open:\n\n{plan_lines(plan)}\n\nGo on with them now. Mark what is "
        "done or no longer needed with write_todos; if something is in the way, tell the user what it is."
    )
