"""What templates may say: words, times, safe HTML, addresses of static files."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Flask, request
from markupsafe import Markup

from celeriac.tasks.operation_words import queue_words, reason_words
from celeriac.web import audit_words, model_words, words
from celeriac.web.auth import csrf_token, visitor
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.render import (
    argument_rows,
    exact,
    markdown,
    pretty_json,
    prose,
    visible,
    written_out,
)
from celeriac.web.transcript import own_arguments

__all__ = ["register_filters"]


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def clock(milliseconds: int) -> Markup:
    """Return a time of day as ``<time>``; a script shows it in the reader's own zone."""
    moment = _moment(milliseconds)
    return _time(moment, moment.strftime("%H:%M UTC"), "clock")


def day(milliseconds: int) -> Markup:
    """Return a day and time as ``<time>``."""
    moment = _moment(milliseconds)
    return _time(moment, f"{moment.day} {moment.strftime('%b %Y, %H:%M UTC')}", "day")


def moment(milliseconds: int) -> Markup:
    """Return the time of day of a moment that is near, with its day when that is not today."""
    at = _moment(milliseconds)
    return _time(at, _to_the_second(at), "moment")


def until(milliseconds: int) -> Markup:
    """Return a moment to come; a script says how long it is until then."""
    at = _moment(milliseconds)
    return _time(at, _to_the_second(at), "until")


def _to_the_second(at: datetime) -> str:
    return f"{at.day} {at.strftime('%b %Y, %H:%M:%S UTC')}"


def _time(moment: datetime, shown: str, kind: str) -> Markup:
    stamp = moment.isoformat(timespec="seconds")
    return Markup('<time datetime="{}" data-time="{}">{}</time>').format(stamp, kind, shown)


def register_filters(app: Flask) -> None:
    """Give the templates of `app` their words.

    Args:
        app: The application.
    """
    app.jinja_env.trim_blocks = True
    app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(
        clock=clock,
        day=day,
        moment=moment,
        until=until,
        markdown=markdown,
        prose=prose,
        visible=visible,
        written_out=written_out,
        pretty=pretty_json,
        rows=argument_rows,
        exact=exact,
        own=own_arguments,
        chip=words.call_chip,
        summary_chip=words.summary_chip,
        effect=words.effect_words,
        ending=words.ending_words,
        ending_tone=words.ending_tone,
        late=words.late_words,
        reason_words=reason_words,
        queue_words=queue_words,
        unknown_words=words.unknown_words,
        plan_chip=words.plan_chip,
        progress=words.plan_progress,
        todo=words.todo_words,
        attempts=words.attempt_words,
        tool_title=words.tool_title,
        usage=model_words.usage_words,
        answer_line=model_words.answer_line,
        answer_facts=model_words.answer_facts,
        failure=model_words.failure_words,
        decided=words.decision_verb,
        act=audit_words.act_words,
        way=audit_words.way_words,
    )
    app.context_processor(_page_context)


def _page_context() -> dict[str, object]:
    return {
        "asset": parts().assets.address,
        "csrf_token": csrf_token,
        "visitor": visitor(),
        "by_proxy": parts().proxies.operator_of(request) is not None,
        "Role": Role,
    }
