"""What an MCP server answers, as values for the record and the model. Links in it are never followed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jsonschema.protocols import Validator
from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from pydantic import JsonValue

from celeriac.sessions.tools import ToolResult

__all__ = ["prompt_value", "resource_value", "tool_result"]

_NOTHING = "(the tool returned nothing)"
_NO_WORDS = "the tool says that it failed, without a message"


def tool_result(answer: CallToolResult, output: Validator | None) -> ToolResult:
    """Turn a tool's answer into a result.

    Args:
        answer: What the server sent.
        output: Checks structured content, if the tool declares a schema of it.

    Returns:
        Structured content as JSON, text as text, other content as blocks of which images and other binary data
        are shown as placeholders. Content that breaks the tool's own schema is kept with a warning: the tool
        has run.
    """
    content = _content(answer.content)
    if answer.is_error:
        return ToolResult(_said(answer, content) or _NO_WORDS, is_error=True)
    value = _said(answer, content)
    if value in ("", [], None) and not _has_structure(answer):
        value = _NOTHING
    fault = None if output is None else _mismatch(answer, output)
    if fault is None:
        return ToolResult(value)
    return ToolResult({"warning": fault, "result": value})


def _has_structure(answer: CallToolResult) -> bool:
    return "structured_content" in answer.model_fields_set


def _said(answer: CallToolResult, content: JsonValue) -> JsonValue:
    if not _has_structure(answer) or (answer.structured_content is None and content):
        return content
    structured: JsonValue = answer.structured_content
    if not content or _repeats(content, structured):
        return structured
    if isinstance(structured, dict) and set(structured) == {"result"}:
        # So SDKs wrap what is no object.
        inner = structured["result"]
        if content in (inner, _joined(inner)) or _repeats(content, inner):
            return inner
    return {"content": content, "structured_content": structured}


def _repeats(content: JsonValue, structured: JsonValue) -> bool:
    """Whether the text is the structured content once more, as the protocol advises."""
    if not isinstance(content, str):
        return False
    try:
        return bool(json.loads(content) == structured)
    except (ValueError, RecursionError):
        return False


def _joined(value: JsonValue) -> JsonValue:
    """Return a list as the text that it becomes when each item is a text of its own."""
    return "\n".join(map(str, value)) if isinstance(value, list) else None


def _mismatch(answer: CallToolResult, output: Validator) -> str | None:
    if not _has_structure(answer):
        return "the tool declares a schema of its output, but sent no structured content"
    try:
        fault = next(iter(output.iter_errors(answer.structured_content)), None)
    except Exception as error:  # noqa: BLE001 - a stranger's schema must not lose the result
        return f"its structured content could not be checked: {type(error).__name__}"
    if fault is None:
        return None
    where = f"{fault.json_path}: {fault.message}"[:300]
    return f"the structured content does not fit the tool's own schema: {where}"


def _content(blocks: Sequence[ContentBlock]) -> JsonValue:
    if all(isinstance(block, TextContent) for block in blocks):
        return "\n".join(block.text for block in blocks if isinstance(block, TextContent))
    return [_block(block) for block in blocks]


def _block(block: ContentBlock) -> JsonValue:
    if isinstance(block, TextContent):
        return {"type": "text", "text": block.text}
    if isinstance(block, EmbeddedResource):
        return {"type": "resource", **_resource(block.resource)}
    if isinstance(block, ResourceLink):
        told: dict[str, JsonValue] = {"type": "resource_link", "uri": block.uri, "name": block.name}
        told |= {"description": block.description} if block.description else {}
        return told | ({"mimeType": block.mime_type} if block.mime_type else {})
    # The record knows images and sounds by this form.
    return {"type": block.type, "mimeType": block.mime_type, "data": block.data}


def _resource(resource: TextResourceContents | BlobResourceContents) -> dict[str, JsonValue]:
    told: dict[str, JsonValue] = {"uri": resource.uri}
    if resource.mime_type:
        told["mimeType"] = resource.mime_type
    if isinstance(resource, TextResourceContents):
        return told | {"text": resource.text}
    if resource.mime_type and resource.mime_type.startswith(("image/", "audio/", "video/")):
        return told | {"content": {"mimeType": resource.mime_type, "blob": resource.blob}}
    size = len(resource.blob.rstrip("=\n")) * 3 // 4
    kind = resource.mime_type or "binary data"
    return told | {"content": f"[{kind}, {size:,} bytes; not shown to the model]"}


def resource_value(answer: ReadResourceResult) -> JsonValue:
    """Return the contents of a resource: a text alone as text, else each part with its address and type."""
    if len(answer.contents) == 1 and isinstance(answer.contents[0], TextResourceContents):
        return answer.contents[0].text
    return [_resource(part) for part in answer.contents]


def prompt_value(answer: GetPromptResult) -> JsonValue:
    """Return a prompt's messages, each with its role."""
    messages: list[JsonValue] = [
        {"role": message.role, "content": _content([message.content])}
        for message in answer.messages
    ]
    if answer.description:
        return {"description": answer.description, "messages": messages}
    return messages
