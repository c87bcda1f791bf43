"""The official MCP conformance suite, in its client mode, against our client: `make conformance`."""
