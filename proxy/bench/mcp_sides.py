"""The other processes of `bench mcp`: a small MCP server, and a proxy that foresees every call before its model.

python -m agentspec.proxy.bench.mcp_sides server | proxy MODEL_PORT PROXY_PORT
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import mcp_types as types
import uvicorn
from mcp.server import Server
from mcp.server.stdio import stdio_server
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agentspec.calls import ToolCall
from agentspec.config import load
from agentspec.protocols import LiveTurn, Offer, Prediction
from agentspec.proxy.wiring import build

QUICK_TOOL, SLOW_TOOL = "look_up", "look_up_slowly"
SLOW_S = 0.05
_THINKING_S = 0.12
_SCHEMA: dict[str, Any] = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}


def schema() -> list[dict[str, Any]]:
    """The tools as a model request offers them."""
    return [{"type": "function", "function": {"name": SLOW_TOOL, "parameters": _SCHEMA}}]


async def _list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema=_SCHEMA) for name in (QUICK_TOOL, SLOW_TOOL)]
    )


async def _call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Answers with the time at which it ran, on the clock that all processes of a machine share."""
    ran_at = str(time.monotonic())
    await asyncio.sleep(SLOW_S if params.name == SLOW_TOOL else 0)
    return types.CallToolResult(content=[types.TextContent(text=ran_at)])


async def _serve_tools() -> None:
    server: Server[Any] = Server("bench", on_list_tools=_list_tools, on_call_tool=_call_tool)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


class _Foresees:
    """Offers the very call that the model is about to make: the user has said its key."""

    name = "foresees"
    _numbers = itertools.count(1)

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        key = json.loads(turn.body)["messages"][-1]["content"]
        offer(Prediction(ToolCall(SLOW_TOOL, {"key": key}), f"{self.name}-{next(self._numbers)}", 0.99, 0.99))


async def _model(request: Request) -> StreamingResponse:
    """Thinks for a while, then calls the tool with what the user said."""
    asked = await request.json()
    arguments = json.dumps({"key": asked["messages"][-1]["content"]})
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": SLOW_TOOL, "arguments": arguments}}

    async def events() -> AsyncIterator[bytes]:
        yield _event({"role": "assistant", "content": "Let me look."})
        await asyncio.sleep(_THINKING_S)
        yield _event({"tool_calls": [call]})
        yield _event({}, "tool_calls") + b"data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


async def _serve_proxy(model_port: int, proxy_port: int) -> None:
    upstream = f"http://127.0.0.1:{model_port}/v1"
    settings = load(
        {
            "upstream": upstream,
            "database": "sqlite:///ledger.sqlite3",
            "memory": False,
            "probe": False,
            "holdout_share": 0,
        }
    )
    model = Starlette(routes=[Route("/v1/chat/completions", _model, methods=["POST"])])
    apps: dict[int, Any] = {model_port: model, proxy_port: build(settings, extra_speculators=[_Foresees()])}
    servers = [
        uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning", interface="asgi3"))
        for port, app in apps.items()
    ]
    await asyncio.gather(*(server.serve() for server in servers))


if __name__ == "__main__":
    role, *ports = sys.argv[1:]
    asyncio.run(_serve_tools() if role == "server" else _serve_proxy(*map(int, ports)))
