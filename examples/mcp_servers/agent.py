"""An agent whose tools all come from MCP servers."""

from celeriac import AgentDefinition, McpToolSource

keeper = AgentDefinition(
    name="keeper",
    instructions="You look after a repository. Look before you change anything.",
    tool_sources=[McpToolSource()],
)
