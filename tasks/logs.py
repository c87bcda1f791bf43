"""What a worker logs holds no key: neither in a message nor in a traceback of somebody else's code."""

from __future__ import annotations

import logging

from celeriac.connectors.redaction import without_secrets

__all__ = ["RedactingFormatter", "redact_logs"]


class RedactingFormatter(logging.Formatter):
    """Removes keys from what another formatter wrote.

    Args:
        inner: The other one.
    """

    def __init__(self, inner: logging.Formatter) -> None:
        super().__init__()
        self._inner = inner

    def format(self, record: logging.LogRecord) -> str:
        """Write the record down without keys."""
        text = self._inner.format(record)
        ours = record.name.startswith("celeriac.") and record.levelno < logging.WARNING
        # Our own lines about steps are many, and hold nobody else's text but errors that were cleaned before.
        return text if ours and not record.exc_info else without_secrets(text)


def redact_logs() -> None:
    """Let every handler that there is write through a `RedactingFormatter`."""
    known = logging.root.manager.loggerDict.values()
    loggers = [logging.root, *(one for one in known if isinstance(one, logging.Logger))]
    for handler in {handler for logger in loggers for handler in logger.handlers}:
        if not isinstance(handler.formatter, RedactingFormatter):
            handler.setFormatter(RedactingFormatter(handler.formatter or logging.Formatter()))
