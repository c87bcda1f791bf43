"""What the demo model makes of a message: the slash commands, parsed without running anything."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.model import ModelCall

__all__ = ["HELP", "Answer", "Calls", "Command", "Fail", "Say", "parse"]

HELP = """\
I am the demo model: I do what slash commands say and echo everything else.

- `/tool name {json}` calls one tool, e.g. `/tool look_up_order {"order_id": "1001"}`
- `/tools name {json} name {json}` calls several at once
- `/ask text` asks you a question; `/choose a|b|c` offers choices
- `/wait seconds` waits, without holding a worker
- `/plan a; b` writes a plan of two tasks; in plan mode it is a draft that you review and execute
- `/model` says which model answers; `/instructions` shows what it was told
- `/fail n` fails the first n attempts of this model call, and then works"""

_DECODER = json.JSONDecoder()
# How `plans.execution_text` writes a plan that a person has executed.
_EXECUTION = re.compile(r"Execute the plan, revision \d+:\n")
_TASK = re.compile(r"^\d+\. (.*?)(?: \[[a-z_]+\])?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer with a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Calls:
    """Call tools."""

    calls: Sequence[ModelCall]


@dataclass(frozen=True, slots=True)
class Fail:
    """Fail the first attempts of this model call."""

    attempts: int


@dataclass(frozen=True, slots=True)
class Say:
    """Answer with something about the request itself: ``model`` or ``instructions``."""

    what: str


Command = Answer | Calls | Fail | Say


def parse(text: str) -> Command:
    """Say what a user's message asks of the demo model.

    Args:
        text: The message. One that begins with no known command is echoed.

    Returns:
        What to do. A malformed command gives an `Answer` that shows the right form.
    """
    line = text.strip()
    if _EXECUTION.match(line):
        return _execute(line)
    if not line.startswith("/"):
        return Answer(f"You said: {text}")
    word, _, rest = line.partition(" ")
    command = _COMMANDS.get(word)
    if command is None:
        return Answer(f"There is no command {word}.\n\n{HELP}")
    return command(rest.strip())


def _tool(rest: str) -> Command:
    return _tool_calls(rest, usage='/tool name {"argument": "value"}', at_most=1)


def _tools(rest: str) -> Command:
    return _tool_calls(rest, usage='/tools name {"argument": "value"} name {…}', at_most=None)


def _tool_calls(rest: str, *, usage: str, at_most: int | None) -> Command:
    calls: list[ModelCall] = []
    while rest:
        name, rest = _take_name(rest)
        arguments = "{}"
        if rest.startswith("{"):
            try:
                _, end = _DECODER.raw_decode(rest)
            except json.JSONDecodeError as error:
                return Answer(
                    f"The arguments of {name} are no valid JSON: {error.msg} at character "
                    f"{error.pos + 1} of {rest!r}. Write: {usage}"
                )
            # The text goes on as it was typed, the way a real model's arguments would.
            arguments, rest = rest[:end], rest[end:].lstrip()
        calls.append(ModelCall(name=name, arguments=arguments))
    if not calls or (at_most is not None and len(calls) > at_most):
        return Answer(f"I cannot read that as a tool call. Write: {usage}")
    return Calls(calls)


def _take_name(rest: str) -> tuple[str, str]:
    # A brace ends the name too, so that `name{…}` works.
    end = next((at for at, char in enumerate(rest) if char.isspace() or char == "{"), len(rest))
    end = max(end, 1)
    return rest[:end], rest[end:].lstrip()


def _ask(rest: str) -> Command:
    if not rest:
        return Answer("Write what I should ask: /ask Which order do you mean?")
    return _built_in("ask_user", {"question": rest})


def _choose(rest: str) -> Command:
    choices: list[JsonValue] = [choice.strip() for choice in rest.split("|") if choice.strip()]
    if len(choices) < 2:
        return Answer("Write two choices or more, with a bar between them: /choose red|green|blue")
    return _built_in("ask_user", {"question": "Which one?", "choices": choices})


def _wait(rest: str) -> Command:
    usage = "Write how many seconds I should wait: /wait 5"
    try:
        seconds = float(rest)
    except ValueError:
        return Answer(usage)
    if not math.isfinite(seconds) or seconds < 0:
        return Answer(usage)
    whole = int(seconds) if seconds.is_integer() else seconds
    return _built_in("durable_wait", {"seconds": whole, "reason": "You asked me to wait."})


def _plan(rest: str) -> Command:
    todos: list[JsonValue] = [{"title": part.strip()} for part in rest.split(";") if part.strip()]
    if not todos:
        return Answer("Write the tasks, with a semicolon between them: /plan buy seeds; sow them")
    return _built_in("write_todos", {"todos": todos})


def _execute(text: str) -> Command:
    """Do a plan the demo model's way: it says at once that every task is done."""
    titles = [match.group(1) for match in _TASK.finditer(text)]
    todos: list[JsonValue] = [{"title": title, "status": "completed"} for title in titles]
    return _built_in("write_todos", {"todos": todos})


def _built_in(name: str, arguments: dict[str, JsonValue]) -> Command:
    return Calls([ModelCall(name=name, arguments=dump_json(arguments))])


def _fail(rest: str) -> Command:
    if not rest.isascii() or not rest.isdigit() or len(rest) > 6:
        return Answer("Write how many attempts should fail: /fail 2")
    return Fail(int(rest))


_COMMANDS: dict[str, Callable[[str], Command]] = {
    "/ask": _ask,
    "/choose": _choose,
    "/fail": _fail,
    "/help": lambda _rest: Answer(HELP),
    "/instructions": lambda _rest: Say("instructions"),
    "/model": lambda _rest: Say("model"),
    "/plan": _plan,
    "/tool": _tool,
    "/tools": _tools,
    "/wait": _wait,
}
