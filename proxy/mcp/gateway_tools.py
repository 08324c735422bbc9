"""Tools of MCP servers as declared tools: what an order runs ahead, and what a real call claims."""

from __future__ import annotations

from typing import Any

from mcp_types import CallToolResult, Tool

from agentspec.keys import SchemaKeys
from agentspec.proxy.mcp.agent_side import CURRENT
from agentspec.proxy.mcp.upstream import Upstream
from agentspec.tools_sandbox.declare import declaration
from agentspec.tools_sandbox.tiers.thread import running_ahead
from agentspec.tools_sandbox.tool import DeclaredTool


def declared_tool(upstream: Upstream, tool: Tool, name: str) -> DeclaredTool:
    """The tool as the runtime holds it, under the name that the agent sees.

    Two calls whose `_meta` differs in more than what names the request are two calls.
    """

    def meta() -> dict[str, Any]:
        real = CURRENT.get()
        return real.own_meta(tool.meta or {}) if real is not None else {}

    async def call(**arguments: Any) -> CallToolResult:
        if running_ahead():
            return await upstream.run_ahead(tool.name, arguments, meta())
        return await upstream.call(tool.name, arguments, CURRENT.get())

    options = upstream.server.options_of(tool).copy()
    options["identity"] = meta
    spec, word = declaration(options, name, tool.input_schema)
    found = DeclaredTool(call, spec, word, SchemaKeys(name))
    found.seen_running()
    return found
