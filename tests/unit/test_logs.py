"""No key in a worker's log, its tracebacks included, nor in what is recorded of a broken step."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest

from celeriac.tasks.logs import RedactingFormatter, redact_logs
from celeriac.tasks.step import error_text

KEY = "9f8E7d6C5b4A3210zyXwVuTs"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    monkeypatch.setenv("INHOUSE_API_KEY", KEY)
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("somebody.elses")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    redact_logs()
    yield logger, written
    logger.removeHandler(handler)


def test_a_traceback_holds_no_key(log: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = log

    def fetch() -> None:
        raise ValueError(f"GET https://g.example/v1?key={KEY}x")

    def ask() -> None:
        try:
            fetch()
        except ValueError as error:
            raise RuntimeError({"headers": {"x-api-key": KEY}}) from error

    try:
        ask()
    except RuntimeError:
        logger.exception("It broke with %s", KEY)
    assert written.getvalue().startswith("ERROR It broke with [removed]")
    assert "ValueError: GET https://g.example/v1?key=[removed]" in written.getvalue()
    assert KEY not in written.getvalue()


def test_a_message_of_somebody_else_holds_no_key(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, written = log
    logger.debug("POST to %s", f"https://me:{KEY}@proxy.example")
    assert "proxy.example" in written.getvalue()
    assert KEY not in written.getvalue()


def test_setting_up_twice_changes_nothing(log: tuple[logging.Logger, io.StringIO]) -> None:
    [handler] = log[0].handlers
    before = handler.formatter
    redact_logs()
    assert handler.formatter is before
    assert isinstance(before, RedactingFormatter)


def test_what_is_recorded_of_an_exception_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHOUSE_API_KEY", KEY)
    assert error_text(ValueError(f"no {KEY}")) == "ValueError: no [removed]"
    assert error_text(ValueError("x" * 1_983 + f" {KEY}")).endswith("[rem")
