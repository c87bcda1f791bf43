"""A model that needs no key: it does what slash commands say, so that everything else can be tried."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Sequence

from celeriac.connectors import demo_commands as commands, summaries
from celeriac.sessions.images import image_words
from celeriac.sessions.messages import Message, Role, Usage
from celeriac.sessions.model import (
    ModelCall,
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["DemoModel"]

_SIGNATURE = re.compile(r"^\s*DEMO-SIGNATURE:\s*(\S.*?)\s*$", re.MULTILINE)
_SUMMARY_LINE = 100
_WORD = re.compile(r"\S+\s*|\s+")


class DemoModel:
    """Answers the same request with the same reply, word by word.

    It reads the newest messages only: after a person's message it does what `demo_commands.HELP` lists or
    echoes; after the results of its calls it repeats each of them. A line ``DEMO-SIGNATURE: xyz`` of the
    instructions ends each answer with `` — xyz``, which shows whose instructions it had.

    Args:
        seconds_per_word: Wait before each word.
        longest_seconds: Most time that one answer takes; a long one comes in larger pieces.
    """

    def __init__(self, *, seconds_per_word: float = 0.02, longest_seconds: float = 2.0) -> None:
        self._seconds_per_word = seconds_per_word
        self._longest_seconds = longest_seconds

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Yield the words of the answer and then the reply.

        Raises:
            ModelError: ``/fail`` asked for it.
        """
        text, calls = _decide(request)
        for piece in self._pieces(text):
            await asyncio.sleep(self._seconds_per_word)
            yield TextDelta(piece)
        yield ModelReply(
            text=text,
            calls=calls,
            usage=_usage(request, text, calls),
            finish_reason="tool_calls" if calls else "stop",
            model=request.model,
        )

    def _pieces(self, text: str) -> list[str]:
        words = _WORD.findall(text)
        most = max(1, int(self._longest_seconds / max(self._seconds_per_word, 0.001)))
        size = max(1, -(-len(words) // most))
        return ["".join(words[at : at + size]) for at in range(0, len(words), size)]


def _decide(request: ModelRequest) -> tuple[str, Sequence[ModelCall]]:
    if request.instructions == summaries.INSTRUCTIONS:
        return _summary(request.messages[0].text), ()
    results = _newest(request.messages, Role.TOOL)
    if results:
        told = [f"{message.tool or 'the tool'} returned: {message.text}" for message in results]
        return _signed("\n\n".join(told), request), ()
    said = _newest(request.messages, Role.USER)
    if not said:
        notice = request.messages[-1].text if request.messages else "Nobody has said anything yet."
        return _signed(f"{notice}\n\nTry /help.", request), ()
    command = commands.parse(said[-1].text)
    if isinstance(command, commands.Calls):
        return _call(command.calls, request)
    answer = [_answer(command, said, request)]
    answer += [image_words(one.images, "received") for one in said if one.images]
    return _signed("\n\n".join(answer), request), ()


def _summary(transcript: str) -> str:
    """Summarise as well as a model can that understands nothing: the beginning of each message."""
    entries = transcript.split("\n\n[")[1:]
    lines = (entry.replace("\n", " ") for entry in entries)
    return "\n".join(f"- [{line[:_SUMMARY_LINE]}" for line in lines)


def _newest(messages: Sequence[Message], role: Role) -> list[Message]:
    """Return the messages of a role that end the request, oldest first, all of one turn.

    Notices at the very end are passed over: they tell something, and ask nothing.
    """
    newest = itertools.dropwhile(lambda message: message.role is Role.NOTICE, reversed(messages))
    turns: set[str | None] = set()
    found: list[Message] = []
    for message in itertools.takewhile(lambda message: message.role is role, newest):
        turns.add(message.turn_id)
        if len(turns) > 1:
            break
        found.append(message)
    return found[::-1]


def _answer(command: commands.Command, said: Sequence[Message], request: ModelRequest) -> str:
    match command:
        case commands.Fail(attempts) if request.attempt <= attempts:
            raise ModelError(
                f"/fail {attempts}: attempt {request.attempt} fails as you asked", retryable=True
            )
        case commands.Fail():
            return f"Attempt {request.attempt} worked."
        case commands.Say("model"):
            return f"The model {request.model} answers here."
        case commands.Say():
            return f"My instructions are:\n\n{request.instructions}"
        case commands.Answer(text) if not said[-1].text.strip().startswith("/"):
            # Several messages may have been steered into one turn; an echo shows that all arrived.
            return text if len(said) == 1 else "You said: " + "\n".join(one.text for one in said)
        case commands.Answer(text):
            return text
        case commands.Calls():
            raise AssertionError("calls are no answer")


def _call(calls: Sequence[ModelCall], request: ModelRequest) -> tuple[str, Sequence[ModelCall]]:
    offered = {tool.name for tool in request.tools}
    missing = sorted({call.name for call in calls} - offered)
    if not missing:
        return "", calls
    has = ", ".join(sorted(offered)) or "none"
    text = f"This agent has no such tool now: {', '.join(missing)}. The tools it has: {has}."
    return _signed(text, request), ()


def _signed(text: str, request: ModelRequest) -> str:
    signature = _SIGNATURE.search(request.instructions)
    return text if signature is None else f"{text} — {signature.group(1)}"


def _usage(request: ModelRequest, text: str, calls: Sequence[ModelCall]) -> Usage:
    """Count as the demo model does: a token is four characters; its cost stays unknown."""
    read = len(request.instructions) + sum(len(message.text) for message in request.messages)
    written = len(text) + sum(len(call.arguments) for call in calls)
    return Usage(input_tokens=-(-read // 4), output_tokens=-(-written // 4), model_calls=1)
