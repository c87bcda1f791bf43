"""A server made with the SDK, over ``stdio`` or Streamable HTTP: ``sdk_server.py stdio | http PORT``.

It speaks 2026-07-28 and every older version, and can change its own tools while it runs.
"""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("sdk")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def key(context: Context) -> dict[str, object]:
    """Tell what came along with the request."""
    return {"meta": dict(context.request_context.meta or {})}


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def count(to: int, context: Context) -> int:
    """Count, with progress."""
    for number in range(to):
        await context.report_progress(number + 1, to, "counting")
    return to


def late() -> str:
    """A tool that was not there at first."""
    return "here now"


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def grow(context: Context) -> str:
    """Add the tool ``late``."""
    server.add_tool(late, annotations=ToolAnnotations(read_only_hint=True))
    await context.notify_tools_changed()  # to those who subscribed
    await context.session.send_tool_list_changed()  # as it was before 2026-07-28
    return "grown"


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        import uvicorn

        uvicorn.run(
            server.streamable_http_app(), port=int(sys.argv[2]), log_level="warning", lifespan="on"
        )
