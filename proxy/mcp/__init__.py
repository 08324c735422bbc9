"""The gateway between an agent's MCP client and its MCP servers: it runs their reading tools ahead."""
