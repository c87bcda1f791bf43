"""What a harness is: how one model step of an agent is made, by Celeriac's own loop or by a framework. Pure.

A harness asks the model and says which tools it wants; it never runs one. What a framework must remember
between two model steps is its snapshot: JSON that is committed with the step and given back to the next one,
in whatever process that runs.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from celeriac.sessions.calls import CallStatus
from celeriac.sessions.jsonsafe import dump_json
from celeriac.sessions.messages import Message, Role
from celeriac.sessions.model import ModelReply, ModelRequest, ReasoningDelta, TextDelta

__all__ = [
    "SNAPSHOT_MAX_BYTES",
    "CallResult",
    "Harness",
    "ModelStepContext",
    "ModelStepResult",
    "StoredSnapshot",
    "read_snapshot",
    "step_context",
    "write_snapshot",
]

SNAPSHOT_MAX_BYTES = 4_000_000
"""A larger one is not kept; the next step then begins with the conversation, which is kept in any case."""


@dataclass(frozen=True, slots=True)
class CallResult:
    """How a call of the last response ended."""

    provider_id: str
    """The id that the harness gave for the call; the Call ID where it gave none."""
    call_id: str
    tool: str
    status: CallStatus
    text: str
    """What the model reads; each kind of ending has words of its own."""


@dataclass(frozen=True, slots=True)
class ModelStepContext:
    """Everything a harness needs for one model step."""

    request: ModelRequest
    """The active context and all the tools; the whole truth, whatever else is there."""
    snapshot: JsonValue = None
    """What this harness, in this version, gave with the last response of the session, if it still fits."""
    results: Sequence[CallResult] | None = None
    """The results of all calls of that response, in its order, if nothing else has happened since. None: begin with
    the messages of the request."""


@dataclass(frozen=True, slots=True)
class ModelStepResult(ModelReply):
    """A complete response, with what the harness wants back at the next one."""

    snapshot: JsonValue = None


class Harness(Protocol):
    """Makes the model steps of an agent. It never runs a tool, and never retries."""

    @property
    def name(self) -> str:
        """Of what framework it is, e.g. ``openai-agents``."""

    @property
    def version(self) -> str:
        """Version of the framework; a snapshot of another one is not read."""

    def run_model(
        self, context: ModelStepContext
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Yield deltas as they come and the complete response last: a `ModelStepResult` to keep a snapshot.

        Raises:
            ModelError: The attempt failed; nothing of it may be used.
        """

    def summarise(
        self, request: ModelRequest
    ) -> AsyncIterator[TextDelta | ReasoningDelta | ModelReply]:
        """Ask the model for a summary: a request with instructions of its own, one message and no tools.

        Raises:
            ModelError: The attempt failed.
        """


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot as it is kept, with what says whether it still fits."""

    harness: str
    version: str
    call_ids: Sequence[str]
    """The Call IDs of the response that it came with."""
    state: JsonValue


def write_snapshot(harness: Harness, reply: ModelReply, call_ids: Sequence[str]) -> str | None:
    """Return what is kept of a response's snapshot.

    Args:
        harness: Whose it is.
        reply: The response.
        call_ids: Our ids of its calls.

    Returns:
        The text to keep; empty when nothing is to be kept, None when this harness keeps none ever.
    """
    if not isinstance(reply, ModelStepResult):
        return None
    if reply.snapshot is None:
        return ""
    kept = dump_json(
        {
            "harness": harness.name,
            "version": harness.version,
            "calls": list(call_ids),
            "state": reply.snapshot,
        }
    )
    return kept if len(kept.encode()) <= SNAPSHOT_MAX_BYTES else ""


def read_snapshot(text: str | None) -> StoredSnapshot | None:
    """Read what `write_snapshot` returned; anything else counts as none."""
    try:
        kept = json.loads(text or "null")
    except ValueError:
        return None
    match kept:
        case {"harness": str(harness), "version": str(version), "calls": [*ids], "state": state}:
            return StoredSnapshot(harness, version, [str(one) for one in ids], state)
        case _:
            return None


def step_context(
    harness: Harness, request: ModelRequest, stored: StoredSnapshot | None
) -> ModelStepContext:
    """Put together what a harness gets, with the snapshot only where it is its own.

    Args:
        harness: The harness that runs the step.
        request: The active context.
        stored: What the session keeps.
    """
    if stored is None or (stored.harness, stored.version) != (harness.name, harness.version):
        return ModelStepContext(request)
    results = _results(request.messages, stored.call_ids)
    return ModelStepContext(request, stored.state, results)


def _results(messages: Sequence[Message], call_ids: Sequence[str]) -> Sequence[CallResult] | None:
    """Return the results of these calls where the conversation ends with them, and with nothing else."""
    at = len(messages) - len(call_ids) - 1
    if not call_ids or at < 0:
        return None
    response, results = messages[at], messages[at + 1 :]
    summarised = any(one.role is Role.SUMMARY and one.seq > response.seq for one in messages)
    if summarised or [call.id for call in response.calls] != list(call_ids):
        return None
    if [one.call_id for one in results] != list(call_ids):
        return None
    ids: Mapping[str, str | None] = {call.id: call.provider_id for call in response.calls}
    return [_result(one, ids) for one in results]


def _result(message: Message, ids: Mapping[str, str | None]) -> CallResult:
    call_id = message.call_id or ""
    return CallResult(
        provider_id=ids[call_id] or call_id,
        call_id=call_id,
        tool=message.tool or "",
        status=message.status or CallStatus.FAILED,
        text=message.text,
    )
