"""The Slack connector: messages, threads, reactions and people. Its README tells how each operation may end."""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from celeriac.connectors.sdk import Call, Connector, Manifest, Outcome, ProviderAnswer
from celeriac.sessions.errors import ToolFailed, ToolNotRun, ToolOutcomeUnknown

__all__ = ["SlackConnector"]

_EVENT_TYPE = "celeriac_call"
_LOOK_BACK_SECONDS = 60
"""A look-up begins so long before the call: the provider's clock is another one."""

_NOT_RUN = frozenset({"ratelimited", "rate_limited"})
_NOT_LET_IN = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"}
)
"""Nothing was done; a token may be one that is just being rotated."""
_UNSURE = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""https://docs.slack.dev/reference/methods/chat.postMessage: "some aspect of the operation may have succeeded"."""


class SlackConnector(Connector):
    """Requests to the Web API of one Slack workspace."""

    manifest = Manifest.of_package(__name__)
    sends_only_by_http = True

    async def post_thread_reply(self, call: Call) -> Outcome:
        """Reply in a thread. Slack takes no idempotency key, so this is sent once."""
        return await self._post(call, {"thread_ts": call.arguments["threadTimestamp"]})

    async def post_channel_message(self, call: Call) -> Outcome:
        """Post in a channel. Slack takes no idempotency key, so this is sent once."""
        return await self._post(call, {})

    async def update_message(self, call: Call) -> Outcome:
        """Replace the text of a message; doing it again changes nothing."""
        fields = {
            "channel": call.arguments["channel"],
            "ts": call.arguments["timestamp"],
            "text": call.arguments["text"],
        }
        body = await self._write(call, "chat.update", fields)
        error = body.get("error")
        if error == "message_not_found":
            return Outcome("notFound", message=_said(body))
        return (
            Outcome("rejected", message=_said(body)) if error else Outcome("updated", _place(body))
        )

    async def add_reaction(self, call: Call) -> Outcome:
        """Add a reaction; one that is there already is what was wanted."""
        fields = {
            "channel": call.arguments["channel"],
            "timestamp": call.arguments["timestamp"],
            "name": call.arguments["name"],
        }
        body = await self._write(call, "reactions.add", fields)
        if body.get("error") in {None, "already_reacted"}:
            return Outcome("added", {})
        return Outcome("rejected", message=_said(body))

    async def list_channels(self, call: Call) -> Outcome:
        """List channels."""
        query = {
            **_page(call),
            "exclude_archived": "true",
            "types": "public_channel,private_channel",
        }
        body = await self._read(call, "conversations.list", query)
        shown = {"id": "id", "name": "name", "is_member": "isMember", "num_members": "members"}
        return _listed(body, "channels", "listed", shown)

    async def read_channel(self, call: Call) -> Outcome:
        """Read the latest messages of a channel."""
        query = {**_page(call), "channel": str(call.arguments["channel"])}
        body = await self._read(call, "conversations.history", query)
        return _listed(body, "messages", "read", _MESSAGE)

    async def read_thread(self, call: Call) -> Outcome:
        """Read a thread."""
        query = {
            **_page(call),
            "channel": str(call.arguments["channel"]),
            "ts": str(call.arguments["threadTimestamp"]),
        }
        body = await self._read(call, "conversations.replies", query, as_user=True)
        if body.get("error") == "thread_not_found":
            return Outcome("notFound", message=_said(body))
        return _listed(body, "messages", "read", _MESSAGE)

    async def find_user(self, call: Call) -> Outcome:
        """Find a person by e-mail address."""
        body = await self._read(
            call, "users.lookupByEmail", {"email": str(call.arguments["email"])}
        )
        user = body.get("user")
        if body.get("error") == "users_not_found":
            return Outcome("notFound", message="nobody in the workspace has this address")
        if body.get("error"):
            return Outcome("rejected", message=_said(body))
        if not isinstance(user, dict):
            return Outcome("invalidResponse", message="Slack's answer holds no user")
        shown: JsonValue = _shown(user, {"id": "id", "name": "name", "real_name": "realName"})
        return Outcome("found", {"user": shown})

    async def find_message_of_call(self, call: Call) -> Outcome:
        """Read back what came to the channel or thread since the call was made, and look for its Call ID."""
        query = {
            "channel": str(call.arguments["channel"]),
            "oldest": f"{(call.created_at or 0) - _LOOK_BACK_SECONDS:.6f}",
            "limit": "200",
            "include_all_metadata": "true",
        }
        thread = call.arguments.get("threadTimestamp")
        method = "conversations.history" if thread is None else "conversations.replies"
        if thread is not None:
            query["ts"] = str(thread)
        body = await self._read(call, method, query, as_user=thread is not None)
        if body.get("error"):
            raise ToolNotRun(f"Slack does not let us look: {_said(body)}")
        messages = body.get("messages")
        if not isinstance(messages, list):
            return Outcome("invalidResponse", message="Slack's answer holds no messages")
        for message in messages:
            if isinstance(message, dict) and self._is_of(message, call.id):
                value: dict[str, JsonValue] = {"channel": call.arguments["channel"]}
                return Outcome(
                    "found", value | _shown(message, {"ts": "timestamp"}), "Slack has it."
                )
        rest = " among the first 200 since then" if body.get("has_more") else ""
        return Outcome("notFound", message=f"Slack shows no message of this call{rest}.")

    async def check(self, call: Call) -> str:
        """Ask who the token is."""
        body = await self._read(call, "auth.test", {})
        if body.get("error"):
            raise ToolFailed(f"Slack refuses the token: {_said(body)}")
        return f"Slack knows the token as {body.get('user')} in {body.get('team')}"

    def _is_of(self, message: Mapping[str, JsonValue], call_id: str) -> bool:
        metadata = message.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("event_type") != _EVENT_TYPE:
            return False
        payload = metadata.get("event_payload")
        ours = isinstance(payload, dict) and payload.get("call_id") == call_id
        bot = self.configuration.get("botId")
        return ours and (bot is None or message.get("bot_id") == bot)

    async def _post(self, call: Call, more: Mapping[str, JsonValue]) -> Outcome:
        fields: dict[str, JsonValue] = {
            "channel": call.arguments["channel"],
            "text": call.arguments["text"],
            # Everybody in the workspace may read it: the Call ID, and nothing else.
            "metadata": {"event_type": _EVENT_TYPE, "event_payload": {"call_id": call.id}},
            **more,
        }
        body = await self._write(call, "chat.postMessage", fields)
        if body.get("error"):
            return Outcome("rejected", message=_said(body))
        return Outcome("sent", _place(body))

    async def _write(
        self, call: Call, method: str, fields: Mapping[str, JsonValue]
    ) -> Mapping[str, JsonValue]:
        """Send a write; what is returned is certain.

        Raises:
            ToolNotRun: Slack turned it away before it did anything.
            ToolOutcomeUnknown: It may have been done.
        """
        headers = {**_authorised(call), "Content-Type": "application/json; charset=utf-8"}
        body = json.dumps(fields, sort_keys=True).encode()
        answer = await call.http.request("POST", self._url(method), headers=headers, body=body)
        found = _body(answer)
        if found is None or found.get("error") in _UNSURE:
            raise ToolOutcomeUnknown(_unclear(answer, found))
        return found

    async def _read(
        self, call: Call, method: str, query: Mapping[str, str], *, as_user: bool = False
    ) -> Mapping[str, JsonValue]:
        """Send a read; one that broke may be sent again.

        Raises:
            ToolNotRun: It broke.
        """
        answer = await call.http.request(
            "GET", self._url(method), headers=_authorised(call, as_user=as_user), params=query
        )
        found = _body(answer)
        if found is None or found.get("error") in _UNSURE:
            raise ToolNotRun(_unclear(answer, found))
        return found

    def _url(self, method: str) -> str:
        return f"{self.text('baseUrl').rstrip('/')}/{method}"


_MESSAGE = {
    "user": "user",
    "bot_id": "bot",
    "text": "text",
    "ts": "timestamp",
    "reply_count": "replies",
}


def _authorised(call: Call, *, as_user: bool = False) -> dict[str, str]:
    token = (call.credentials.get("userToken") if as_user else None) or call.credentials["botToken"]
    return {"Authorization": f"Bearer {token.reveal()}"}


def _page(call: Call) -> dict[str, str]:
    limit = call.arguments.get("limit")
    page = {"limit": str(20 if limit is None else limit)}
    cursor = call.arguments.get("cursor")
    return page if cursor is None else {**page, "cursor": str(cursor)}


def _body(answer: ProviderAnswer) -> Mapping[str, JsonValue] | None:
    """Return Slack's answer if it is a whole one, with ``error`` in it unless all is well.

    Raises:
        ToolNotRun: Slack turned the request away before it did anything.
    """
    if answer.status == 429:
        raise ToolNotRun("Slack asks to wait (429)", retry_after_seconds=answer.retry_after_seconds)
    if not answer.ok:
        return None
    try:
        body = answer.json()
    except ValueError:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("ok"), bool):
        return None
    error = str(body.get("error") or "no reason") if not body["ok"] else None
    if error in _NOT_RUN:
        raise ToolNotRun("Slack asks to wait", retry_after_seconds=answer.retry_after_seconds)
    if error in _NOT_LET_IN:
        raise ToolNotRun(f"Slack does not accept the token: {error}")
    return {**{name: value for name, value in body.items() if name != "error"}, "error": error}


def _unclear(answer: ProviderAnswer, body: Mapping[str, JsonValue] | None) -> str:
    if body is not None:
        return f"Slack answered {body['error']}"
    return f"Slack answered {answer.status}" if not answer.ok else "Slack's answer cannot be read"


def _said(body: Mapping[str, JsonValue]) -> str:
    """Say what Slack refused, with the permission that is missing if it names one."""
    needed = body.get("needed")
    return f"{body['error']} (the token needs {needed})" if needed else str(body["error"])


def _place(body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {"channel": body.get("channel"), "timestamp": body.get("ts")}


def _listed(
    body: Mapping[str, JsonValue], what: str, branch: str, shown: Mapping[str, str]
) -> Outcome:
    if body.get("error"):
        return Outcome("rejected", message=_said(body))
    items = body.get(what)
    if not isinstance(items, list):
        return Outcome("invalidResponse", message=f"Slack's answer holds no {what}")
    value: dict[str, JsonValue] = {
        what: [_shown(item, shown) for item in items if isinstance(item, dict)]
    }
    more = body.get("response_metadata")
    cursor = more.get("next_cursor") if isinstance(more, dict) else None
    return Outcome(branch, {**value, "nextCursor": cursor} if cursor else value)


def _shown(item: Mapping[str, JsonValue], names: Mapping[str, str]) -> dict[str, JsonValue]:
    return {ours: item[theirs] for theirs, ours in names.items() if item.get(theirs) is not None}
