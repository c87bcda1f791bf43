"""How workers and the web write their logs: as text, or as a JSON object a line; and never with a key in it.

While a step or a request is worked on, `log_facts` says which: each JSON line written meanwhile carries that, also
lines of tools and libraries.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Literal

from celeriac.connectors.redaction import without_secrets

__all__ = [
    "JsonFormatter",
    "LogFormat",
    "TextFormatter",
    "log_facts",
    "set_log_facts",
    "set_up_logs",
]

LogFormat = Literal["text", "json"]

_NOTHING: Mapping[str, object] = {}
_facts: ContextVar[Mapping[str, object]] = ContextVar("celeriac_log_facts", default=_NOTHING)


@contextmanager
def log_facts(facts: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """Add facts to every JSON line that is logged within the block.

    Args:
        facts: Ids, names and numbers; never arguments, texts of people or keys.

    Yields:
        The facts, to add more to them meanwhile.
    """
    held = dict(facts)
    token = _facts.set(held)
    try:
        yield held
    finally:
        _facts.reset(token)
        # What was started meanwhile and lives on, such as a connection, is not about this any more.
        held.clear()


def set_log_facts(facts: Mapping[str, object]) -> None:
    """Do as `log_facts` until it is called again in this thread."""
    _facts.set(facts)


class TextFormatter(logging.Formatter):
    """Removes keys from what another formatter wrote.

    Args:
        inner: The other one.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Write the record down without keys."""
        return _cleaned(record, self._inner.format(record))


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object: time, level, logger, message, exception, and what it is about.

    A record may bring facts of its own: ``extra={"facts": {"duration_ms": 12}}``.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write the record down without keys."""
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            # Cleaned before it is quoted: what is removed must not take a quotation mark with it.
            "message": _cleaned(record, record.getMessage()),
        }
        line |= _facts.get()
        line |= getattr(record, "facts", _NOTHING)
        if record.exc_info:
            line["exception"] = _cleaned(record, self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def _cleaned(record: logging.LogRecord, text: str) -> str:
    ours = record.name.startswith("celeriac.") and record.levelno < logging.WARNING
    # Our own lines about steps are many, and hold nobody else's text but errors that were cleaned before.
    return text if ours and not record.exc_info else without_secrets(text)


def set_up_logs(log_format: LogFormat) -> None:
    """Let every handler that there is write in this format, and without keys."""
    known = logging.root.manager.loggerDict.values()
    loggers = [logging.root, *(one for one in known if isinstance(one, logging.Logger))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if isinstance(handler.formatter, TextFormatter | JsonFormatter):
            continue
        if log_format == "json":
            handler.setFormatter(JsonFormatter())
        else:
            handler.setFormatter(TextFormatter(handler.formatter or logging.Formatter()))
