"""A model for tests: it replies as scripted and refuses a malformed request."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass

from celeriac.connectors.history import problems_of, validate_request
from celeriac.sessions.model import (
    ModelError,
    ModelReply,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
)

__all__ = ["Script", "Scripted", "ScriptedModel"]

Outcome = ModelReply | str | Exception


@dataclass(frozen=True, slots=True)
class Scripted:
    """One reply together with the deltas that come before it.

    Args:
        outcome: A reply, the text of one, or an exception that breaks the stream.
        deltas: What is streamed first.
    """

    outcome: Outcome
    deltas: Sequence[TextDelta | ReasoningDelta] = ()


Script = Outcome | Scripted | Callable[[ModelRequest], Outcome | Scripted]


class ScriptedModel:
    """Gives one scripted reply to each request.

    Args:
        script: Replies, texts, exceptions to raise, or functions of the request that make one.
        repeat_last: Give the last one again when the script has ended, instead of failing.

    Attributes:
        requests: Every request, in the order they came.
        problems: What was wrong with any of them; a test asserts that it is empty.
    """

    def __init__(self, script: Iterable[Script], *, repeat_last: bool = False) -> None:
        self._script = list(script)
        self._repeat_last = repeat_last
        self._lock = threading.Lock()
        self.requests: list[ModelRequest] = []
        self.problems: list[str] = []

    async def stream(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Yield the scripted deltas and reply.

        Raises:
            HistoryError: The request is malformed.
            ModelError: As scripted, or the script has ended.
        """
        script = self._take(request)
        validate_request(request)
        made = script(request) if callable(script) else script
        scripted = made if isinstance(made, Scripted) else Scripted(made)
        for delta in scripted.deltas or _default_deltas(scripted.outcome):
            yield delta
        if isinstance(scripted.outcome, Exception):
            raise scripted.outcome
        yield _as_reply(scripted.outcome)

    def _take(self, request: ModelRequest) -> Script:
        with self._lock:
            self.problems.extend(problems_of(request))
            self.requests.append(request)
            at = len(self.requests) - 1
            if at < len(self._script):
                return self._script[at]
            if self._repeat_last and self._script:
                return self._script[-1]
        return ModelError(f"the script has no reply for request {at + 1}", retryable=False)


def _as_reply(outcome: ModelReply | str) -> ModelReply:
    if isinstance(outcome, str):
        return ModelReply(text=outcome, finish_reason="stop")
    return outcome


def _default_deltas(outcome: Outcome) -> Sequence[TextDelta]:
    if isinstance(outcome, Exception):
        return ()
    text = _as_reply(outcome).text
    return (TextDelta(text),) if text else ()
