"""What templates may say: words, times, safe HTML, addresses of static files."""

from __future__ import annotations

from datetime import UTC, datetime

from flask import Flask
from markupsafe import Markup

from celeriac.web import words
from celeriac.web.auth import csrf_token, visitor
from celeriac.web.operators import Role
from celeriac.web.parts import parts
from celeriac.web.render import argument_rows, markdown, pretty_json, visible

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
        markdown=markdown,
        visible=visible,
        pretty=pretty_json,
        rows=argument_rows,
        chip=words.call_chip,
        summary_chip=words.summary_chip,
        effect=words.effect_words,
        error_tone=words.error_tone,
        attempts=words.attempt_words,
        tool_title=words.tool_title,
        usage=words.usage_words,
        decided=words.decision_verb,
    )
    app.context_processor(_page_context)


def _page_context() -> dict[str, object]:
    return {
        "asset": parts().assets.address,
        "csrf_token": csrf_token,
        "visitor": visitor(),
        "Role": Role,
    }
