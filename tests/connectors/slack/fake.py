"""A Slack of our own: one workspace with its channels, in memory. `test_fake` has the official SDK judge it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import cast
from urllib.parse import parse_qs, urlsplit

from pydantic import JsonValue

from tests.connectors.sdk.provider import Answer, Request

__all__ = ["BOT", "CHANNEL", "USER", "FakeSlack"]

BOT = "xoxb-1111-Qm3Vt8aa1Zz"
USER = "xoxp-2222-Qm3Vt8aa1Zz"
CHANNEL = "C024BE91L"
_BOT_ID = "B0LD8MX41"

Body = dict[str, JsonValue]


class FakeSlack:
    """The workspace; call it with a request."""

    def __init__(self) -> None:
        self.messages: dict[str, list[Body]] = {CHANNEL: [], "C0ARCHIVE": [], "C0PRIVATE": []}
        self.reactions: list[tuple[str, str]] = []
        self.now = 1_796_040_000

    def __call__(self, request: Request) -> Answer:
        method = urlsplit(request.path).path.rsplit("/", 1)[-1]
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in {BOT, USER}:
            return _answer({"ok": False, "error": "invalid_auth" if token else "not_authed"})
        handler = getattr(self, f"_{method.replace('.', '_')}", None)
        if handler is None:
            return _answer({"ok": False, "error": "unknown_method"})
        return _answer(handler(_arguments(request), token))

    def texts(self, channel: str = CHANNEL) -> list[JsonValue]:
        return [message["text"] for message in self.messages[channel]]

    def _auth_test(self, _fields: Body, _token: str) -> Body:
        return {"ok": True, "team": "Acme", "user": "celeriac", "bot_id": _BOT_ID}

    def _chat_postMessage(self, fields: Body, _token: str) -> Body:  # noqa: N802 - Slack's name
        channel = str(fields.get("channel"))
        if (error := self._refused(channel)) is not None:
            return {"ok": False, "error": error}
        if not fields.get("text"):
            return {"ok": False, "error": "no_text"}
        thread = fields.get("thread_ts")
        if thread is not None and not self._has(channel, str(thread)):
            return {"ok": False, "error": "thread_not_found"}
        self.now += 1
        message: Body = {
            "type": "message",
            "text": fields["text"],
            "ts": f"{self.now}.000100",
            "bot_id": _BOT_ID,
            **{name: fields[name] for name in ("thread_ts", "metadata") if fields.get(name)},
        }
        self.messages[channel].append(message)
        return {"ok": True, "channel": channel, "ts": message["ts"], "message": message}

    def _chat_update(self, fields: Body, _token: str) -> Body:
        for message in self.messages.get(str(fields.get("channel")), []):
            if message["ts"] == fields.get("ts"):
                message["text"] = fields["text"]
                return {"ok": True, "channel": fields["channel"], "ts": message["ts"]}
        return {"ok": False, "error": "message_not_found"}

    def _reactions_add(self, fields: Body, _token: str) -> Body:
        key = (str(fields.get("timestamp")), str(fields.get("name")))
        if not self._has(str(fields.get("channel")), key[0]):
            return {"ok": False, "error": "message_not_found"}
        if key in self.reactions:
            return {"ok": False, "error": "already_reacted"}
        self.reactions.append(key)
        return {"ok": True}

    def _conversations_list(self, fields: Body, _token: str) -> Body:
        names = sorted(self.messages)
        start = int(str(fields.get("cursor") or 0))
        end = start + int(str(fields.get("limit") or 100))
        channels: list[JsonValue] = [
            {"id": one, "name": one.lower(), "is_member": True, "num_members": 3}
            for one in names[start:end]
        ]
        cursor = str(end) if end < len(names) else ""
        return {"ok": True, "channels": channels, "response_metadata": {"next_cursor": cursor}}

    def _conversations_history(self, fields: Body, _token: str) -> Body:
        channel = str(fields.get("channel"))
        if channel not in self.messages:
            return {"ok": False, "error": "channel_not_found"}
        found = [one for one in self.messages[channel] if "thread_ts" not in one]
        return self._page(list(reversed(found)), fields)

    def _conversations_replies(self, fields: Body, token: str) -> Body:
        if token != USER:
            return {"ok": False, "error": "missing_scope", "needed": "channels:history"}
        channel, thread = str(fields.get("channel")), fields.get("ts")
        if not self._has(channel, str(thread)):
            return {"ok": False, "error": "thread_not_found"}
        found = [
            one for one in self.messages[channel] if thread in {one["ts"], one.get("thread_ts")}
        ]
        return self._page(found, fields)

    def _users_lookupByEmail(self, fields: Body, _token: str) -> Body:  # noqa: N802 - Slack's name
        if fields.get("email") != "ann@example.com":
            return {"ok": False, "error": "users_not_found"}
        return {"ok": True, "user": {"id": "U1", "name": "ann", "real_name": "Ann Example"}}

    def _page(self, found: list[Body], fields: Body) -> Body:
        oldest = float(str(fields.get("oldest") or 0))
        since = [one for one in found if float(str(one["ts"])) >= oldest]
        limit = int(str(fields.get("limit") or 100))
        hidden = () if fields.get("include_all_metadata") in {"1", "true"} else ("metadata",)
        shown: list[JsonValue] = [
            {name: value for name, value in one.items() if name not in hidden}
            for one in since[:limit]
        ]
        return {"ok": True, "messages": shown, "has_more": len(since) > limit}

    def _refused(self, channel: str) -> str | None:
        if channel not in self.messages:
            return "channel_not_found"
        return {"C0ARCHIVE": "is_archived", "C0PRIVATE": "not_in_channel"}.get(channel)

    def _has(self, channel: str, timestamp: str) -> bool:
        return any(one["ts"] == timestamp for one in self.messages.get(channel, []))


def _arguments(request: Request) -> Body:
    """Read arguments as Slack does: of the query, of a form, or of JSON."""
    fields: Body = dict(_single(urlsplit(request.path).query))
    kind = request.headers.get("content-type", "")
    if kind.startswith("application/json"):
        return fields | cast("Body", json.loads(request.body))
    fields |= _single(request.body.decode())
    if isinstance(fields.get("metadata"), str):
        fields["metadata"] = json.loads(str(fields["metadata"]))
    return fields


def _single(query: str) -> Mapping[str, str]:
    return {name: values[-1] for name, values in parse_qs(query).items()}


def _answer(body: Body) -> Answer:
    return Answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
