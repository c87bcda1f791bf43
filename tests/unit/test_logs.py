"""No key in a log, its tracebacks included, nor in what is recorded of a broken step; and JSON lines say what
they are about."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest

from celeriac.tasks.logs import JsonFormatter, TextFormatter, log_facts, set_log_facts, set_up_logs
from celeriac.tasks.loop import LoopThread
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
    set_up_logs("text")
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
    set_up_logs("text")
    assert handler.formatter is before
    assert isinstance(before, TextFormatter)


def test_what_is_recorded_of_an_exception_holds_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHOUSE_API_KEY", KEY)
    assert error_text(ValueError(f"no {KEY}")) == "ValueError: no [removed]"
    assert error_text(ValueError("x" * 1_983 + f" {KEY}")).endswith("[rem")


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[logging.Logger, io.StringIO]]:
    monkeypatch.setenv("INHOUSE_API_KEY", KEY)
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    logger = logging.getLogger("somebody.json")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    set_up_logs("json")
    set_log_facts({})  # a request that was answered in this thread before
    yield logger, written
    logger.removeHandler(handler)


def read(written: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in written.getvalue().splitlines()]


def test_a_json_line_says_what_it_is_about(lines: tuple[logging.Logger, io.StringIO]) -> None:
    logger, written = lines
    with log_facts({"session_id": "ses_1", "step_id": "s3"}) as facts:
        facts["attempt"] = 2
        logger.warning("Two\nlines %s", "\x00", extra={"facts": {"duration_ms": 1.5}})
    logger.info("After")
    first, after = read(written)
    assert str(first.pop("time")).endswith("Z")
    assert first == {
        "level": "WARNING",
        "logger": "somebody.json",
        "message": "Two\nlines \x00",
        "session_id": "ses_1",
        "step_id": "s3",
        "attempt": 2,
        "duration_ms": 1.5,
    }
    assert "session_id" not in after


SECRETS = [
    f'{{"x-api-key": "{KEY}"}}',
    'AWS4-HMAC-SHA256 Credential=AKIAABCDEFGHIJKLMNOP/x "quoted"',
    "-----BEGIN PRIVATE KEY-----\nabc",
    f"Authorization: Bearer {KEY}",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_json_line_is_json_whatever_was_removed_from_it(
    lines: tuple[logging.Logger, io.StringIO], secret: str
) -> None:
    logger, written = lines

    def ask() -> None:
        raise ValueError(secret)

    try:
        ask()
    except ValueError:
        logger.exception("It broke: %s", secret)
    (line,) = read(written)
    assert "[removed]" in str(line["message"])
    assert "ValueError" in str(line["exception"])
    for piece in (KEY, "AKIA", "abc"):
        assert piece not in written.getvalue()


def test_lines_of_a_coroutine_are_about_the_step_that_awaits_it(
    lines: tuple[logging.Logger, io.StringIO],
) -> None:
    """And those of what it left running are not, once the step is over."""
    logger, written = lines
    loop = LoopThread()
    go_on, done = asyncio.Event(), threading.Event()

    async def linger() -> None:
        await go_on.wait()
        logger.info("lingering")
        done.set()

    async def work() -> asyncio.Task[None]:
        logger.info("working")
        return asyncio.create_task(linger())

    async def release() -> None:
        go_on.set()

    with log_facts({"step_id": "s1"}):
        task = loop.run(work())
    loop.run(release())
    assert done.wait(10)
    assert not task.cancelled()
    working, lingering = read(written)
    assert working["step_id"] == "s1"
    assert "step_id" not in lingering


def test_a_lone_surrogate_can_be_written() -> None:
    record = logging.makeLogRecord({"name": "x", "levelno": 30, "msg": "half of \ud83d"})
    assert JsonFormatter().format(record).encode()
