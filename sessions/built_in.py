"""Celeriac's own tools: their arguments, and how the model is told about them. Pure.

No worker runs them. A question waits for a person, a wait for its time, and a plan is stored at once; the
rules are in `built_in_rules`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError

from celeriac.sessions.calls import ToolEffect
from celeriac.sessions.plans import MOST_TODOS, Plan, PlanStatus, Todo, plan_lines
from celeriac.sessions.tools import InvalidArguments, ToolDefinition, explain_invalid

__all__ = [
    "BUILT_IN_DEFINITIONS",
    "AskUser",
    "BuiltInTool",
    "DurableWait",
    "WriteTodos",
    "parse_built_in",
    "parse_choices",
    "plan_instructions",
]

LONGEST_WAIT_SECONDS = 366 * 24 * 3600
MOST_CHOICES = 20


class BuiltInTool(StrEnum):
    """Tools that Celeriac itself provides."""

    ASK_USER = "ask_user"
    DURABLE_WAIT = "durable_wait"
    WRITE_TODOS = "write_todos"


_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=4_000)]
_Choice = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]


class _Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AskUser(_Arguments):
    """Ask the user one question and wait for the answer, which may take days.

    Offer choices only when the answer must be one of them.
    """

    question: _Text
    choices: list[_Choice] | None = Field(None, min_length=2, max_length=MOST_CHOICES)


class DurableWait(_Arguments):
    """Wait for a time, from a second to a year, before going on; nothing runs meanwhile."""

    seconds: float = Field(ge=1, le=LONGEST_WAIT_SECONDS, allow_inf_nan=False)
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = ""


class WriteTodos(_Arguments):
    """Replace the plan by this complete list of tasks; write it again whenever one changes its status."""

    todos: list[Todo] = Field(min_length=1, max_length=MOST_TODOS)


_MODELS: dict[BuiltInTool, type[AskUser | DurableWait | WriteTodos]] = {
    BuiltInTool.ASK_USER: AskUser,
    BuiltInTool.DURABLE_WAIT: DurableWait,
    BuiltInTool.WRITE_TODOS: WriteTodos,
}


def parse_built_in(tool: BuiltInTool, arguments: JsonValue) -> AskUser | DurableWait | WriteTodos:
    """Check the arguments of a call of a built-in tool.

    Args:
        tool: The tool.
        arguments: What the model wrote.

    Returns:
        The arguments.

    Raises:
        InvalidArguments: Some are wrong or missing; the message is short and names each.
    """
    try:
        parsed = _MODELS[tool].model_validate(arguments)
    except ValidationError as error:
        raise InvalidArguments(explain_invalid(error)) from None
    if isinstance(parsed, AskUser) and parsed.choices and len(set(parsed.choices)) < 2:
        raise InvalidArguments("invalid arguments: choices: they must differ from each other")
    return parsed


def parse_choices(arguments: JsonValue) -> tuple[str, ...]:
    """Return the choices that a stored question offers; none when any answer will do."""
    try:
        parsed = parse_built_in(BuiltInTool.ASK_USER, arguments)
    except InvalidArguments:
        return ()
    return tuple(parsed.choices or ()) if isinstance(parsed, AskUser) else ()


def _definition(tool: BuiltInTool) -> ToolDefinition:
    model = _MODELS[tool]
    schema = model.model_json_schema()
    description = str(schema.pop("description")).replace("\n", " ")
    schema.pop("title", None)
    return ToolDefinition(
        name=tool.value, description=description, input_schema=schema, effect=ToolEffect.READ
    )


BUILT_IN_DEFINITIONS = {tool: _definition(tool) for tool in BuiltInTool}
"""How each is offered to the model."""

_PLANNING = """\
You are planning. Nothing may be done yet: the only tool you have is write_todos. Write the plan with it, as a \
short list of concrete tasks in the order in which they should be done, then say in a sentence or two what you \
propose. A person reviews the plan before anything of it runs."""


def plan_instructions(plan: Plan | None, *, planning: bool) -> str:
    """Return what the model is told about planning and about the present plan.

    Args:
        plan: The session's plan, if it has one.
        planning: Whether the turn may only plan.

    Returns:
        Paragraphs to put after the agent's instructions; empty when there is nothing to say.
    """
    parts = [_PLANNING] if planning else []
    if plan is not None and plan.status is not PlanStatus.COMPLETED:
        word = (
            "a draft that nobody has approved yet" if plan.status is PlanStatus.DRAFT else "active"
        )
        parts.append(f"The plan (revision {plan.revision}, {word}):\n\n{plan_lines(plan)}")
    return "\n\n".join(parts)
