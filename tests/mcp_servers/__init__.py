"""MCP servers that misbehave, each in the one way that a case asks for."""
