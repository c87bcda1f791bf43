"""Puts tool calls together from the pieces of a stream, or says that it cannot. Pure.

Providers agree on little: some give every parallel call the index 0, some give an id only with the first
piece or only with the last, some give neither. Joining by index alone or by "last seen" glues two calls into
one, and such a call may do harm. So pieces are joined by index *and* id, a finished JSON object is never
added to, and whatever stays doubtful breaks the whole response.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from celeriac.sessions.model import ModelCall

__all__ = ["BrokenCalls", "ToolCallAssembly", "ToolCallPiece"]


class BrokenCalls(ValueError):
    """The pieces make no certain calls, so no call of the response may be used."""


@dataclass(frozen=True, slots=True)
class ToolCallPiece:
    """One piece as it came; every part of it may be missing."""

    index: int | None = None
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class ToolCallAssembly:
    """Collects the pieces of one response."""

    def __init__(self) -> None:
        self._calls: list[_OpenCall] = []

    @property
    def empty(self) -> bool:
        """Whether no piece came at all."""
        return not self._calls

    def add(self, pieces: Sequence[ToolCallPiece]) -> None:
        """Take the pieces of one chunk, in order.

        Raises:
            BrokenCalls: A piece belongs to no call for certain.
        """
        touched: list[_OpenCall] = []
        for piece in pieces:
            call = self._call_of(piece)
            # Two pieces with a name in one chunk are two calls: nobody cuts a call within a chunk.
            if call is None or (piece.name and call in touched):
                call = _OpenCall(index=piece.index)
                self._calls.append(call)
            call.take(piece)
            touched.append(call)

    def finish(self) -> list[ModelCall]:
        """Return the calls in the order they began.

        Raises:
            BrokenCalls: A call has no name, or its arguments were cut or run into another call's.
        """
        return [call.finish() for call in self._calls]

    def _call_of(self, piece: ToolCallPiece) -> _OpenCall | None:
        """Find the open call that a piece goes on with; None means that it begins a new one."""
        for call in reversed(self._calls):
            if call.goes_on_with(piece):
                return call
            if piece.id is None and piece.index in (None, call.index):
                # Only the newest call of an index can go on without an id.
                return None
        return None


class _ObjectScanner:
    """Says, piece by piece, whether a text is an open or a complete JSON object.

    It only follows braces, brackets and strings; whether the text is valid is for the parser to say.
    """

    def __init__(self) -> None:
        self.complete = False
        """The object that the text began with is closed."""
        self.overrun = False
        """Another object came after the closed one."""
        self._began = False
        self._is_object = False
        self._depth = 0
        self._in_string = False
        self._escaped = False

    @property
    def cut(self) -> bool:
        """Whether the text began an object and did not close it."""
        return self._is_object and not self.complete

    def feed(self, text: str) -> None:
        """Read the next piece of the text."""
        for char in text:
            if self._in_string:
                self._read_in_string(char)
            elif not char.isspace():
                self._read(char)

    def _read_in_string(self, char: str) -> None:
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_string = False

    def _read(self, char: str) -> None:
        if not self._began:
            self._began = True
            self._is_object = char == "{"
        if not self._is_object:
            return
        if self.complete:
            self.overrun = True
        elif char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            self.complete = self._depth == 0


@dataclass(slots=True, eq=False)
class _OpenCall:
    index: int | None
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)
    json: _ObjectScanner = field(default_factory=_ObjectScanner)

    def goes_on_with(self, piece: ToolCallPiece) -> bool:
        if piece.index is not None and self.index is not None and piece.index != self.index:
            return False
        if piece.id is not None and self.id is not None and piece.id != self.id:
            return False
        if piece.id is None and piece.index is None and self._begins_another(piece):
            return False
        # A finished object takes no more: what follows it belongs to the next call.
        return not (self.json.complete and (piece.arguments.strip() or self._begins_another(piece)))

    def _begins_another(self, piece: ToolCallPiece) -> bool:
        return bool(piece.name) and self.name is not None and piece.name != self.name

    def take(self, piece: ToolCallPiece) -> None:
        if self._begins_another(piece):
            raise BrokenCalls(f"one call has two names: {self.name!r} and {piece.name!r}")
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.index = self.index if self.index is not None else piece.index
        self.arguments.append(piece.arguments)
        self.json.feed(piece.arguments)

    def finish(self) -> ModelCall:
        if not self.name:
            raise BrokenCalls("a call came without the name of its tool")
        if self.json.cut:
            raise BrokenCalls(f"the arguments of {self.name} were cut")
        if self.json.overrun:
            raise BrokenCalls(f"the arguments of {self.name} run into those of another call")
        # A tool without parameters gets no arguments from some providers.
        text = "".join(self.arguments)
        return ModelCall(
            name=self.name, arguments=text if text.strip() else "{}", provider_id=self.id
        )
