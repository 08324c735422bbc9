"""A shop as a real MCP server, on standard input and output or over HTTP. Every execution leaves a line in a file.

orders.py FILE [--port N] [--modern]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
import warnings
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")
LOG = Path()
GROWN: list[str] = []


def schema(*names: str) -> dict[str, Any]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": list(names)}


def reads(open_world: bool | None = None) -> types.ToolAnnotations:
    return types.ToolAnnotations(read_only_hint=True, open_world_hint=open_world, title="A reading tool")


TOOLS = [
    types.Tool(
        name="get_order",
        title="An order",
        description="Look an order up.",
        input_schema=schema("order_id"),
        output_schema={"type": "object", "properties": {"status": {"type": "string"}}, "required": ["status"]},
        annotations=reads(False),
        icons=[types.Icon(src="https://shop.example/order.png", mime_type="image/png", sizes=["48x48"])],
        _meta={"shop.example/since": 3},
    ),
    types.Tool(name="slow_order", input_schema=schema("order_id", "seconds"), annotations=reads(False)),
    types.Tool(name="search_web", input_schema=schema("query"), annotations=reads()),
    types.Tool(name="cancel_order", input_schema=schema("order_id")),
    types.Tool(name="refuses", input_schema=schema("order_id"), annotations=reads(False)),
    types.Tool(name="asks", input_schema=schema("order_id"), annotations=reads(False)),
    types.Tool(name="samples", input_schema=schema("order_id"), annotations=reads(False)),
    types.Tool(name="steps", input_schema=schema("order_id"), annotations=reads(False)),
    types.Tool(name="crash", input_schema=schema()),
    types.Tool(name="grow", input_schema=schema("name")),
    types.Tool(name="whoami", input_schema=schema()),
]
PAGE = 6


async def list_tools(ctx: Any, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    tools = [*TOOLS, *(types.Tool(name=name, input_schema=schema("order_id")) for name in GROWN)]
    start = int(params.cursor) if params and params.cursor else 0
    more = str(start + PAGE) if start + PAGE < len(tools) else None
    return types.ListToolsResult(
        tools=tools[start : start + PAGE], next_cursor=more, _meta={"shop.example/page": start}
    )


def text(said: str, **more: Any) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=said)], **more)


def note(name: str, arguments: dict[str, Any]) -> None:
    with LOG.open("a") as log:
        log.write(" ".join([name, *map(str, arguments.values())]) + "\n")


async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult | types.InputRequiredResult:
    arguments = params.arguments or {}
    note(params.name, arguments)
    if params.name == "asks" and MODERN and params.input_responses is None:
        return types.InputRequiredResult(input_requests={"size": question()}, request_state="asked")
    act = globals().get(f"do_{params.name}")
    if act is None and params.name not in GROWN:
        raise MCPError(types.INVALID_PARAMS, f"no tool {params.name}", {"known": len(TOOLS)})
    return await act(ctx, params, **arguments) if act else text("grown")


async def do_get_order(ctx: Any, params: Any, order_id: str) -> types.CallToolResult:
    stamp = f"{order_id} at {time.monotonic_ns()} by {os.getpid()}"
    return text(stamp, structured_content={"status": f"order {order_id}"}, _meta={"shop.example/stamp": stamp})


async def do_slow_order(ctx: Any, params: Any, order_id: str, seconds: str) -> types.CallToolResult:
    await asyncio.sleep(float(seconds))
    note("slow_order_over", {"order_id": order_id})
    return text(f"{order_id} at {time.monotonic_ns()}")


async def do_search_web(ctx: Any, params: Any, query: str) -> types.CallToolResult:
    return text(f"nothing about {query}")


async def do_cancel_order(ctx: Any, params: Any, order_id: str) -> types.CallToolResult:
    return text(f"{order_id} is cancelled")


async def do_refuses(ctx: Any, params: Any, order_id: str) -> types.CallToolResult:
    return text(f"no such order {order_id}", is_error=True)


def question() -> types.ElicitRequest:
    asked = {"type": "object", "properties": {"size": {"type": "string"}}}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message="Which size?", requested_schema=asked))


async def do_asks(ctx: Any, params: types.CallToolRequestParams, order_id: str) -> types.CallToolResult:
    if MODERN:
        answer: Any = (params.input_responses or {})["size"]
    else:
        try:
            asked = question().params
            answer = await ctx.session.elicit_form(asked.message, asked.requested_schema, ctx.request_id)
        except MCPError as error:
            return text(f"could not ask: {error}")
    return text(f"{answer.action} {answer.content}")


async def do_samples(ctx: Any, params: Any, order_id: str) -> types.CallToolResult:
    message = types.SamplingMessage(role="user", content=types.TextContent(text="Say something."))
    said = await ctx.session.create_message([message], max_tokens=5, related_request_id=ctx.request_id)
    return text(f"{said.model}: {said.content.text}")


async def do_steps(ctx: Any, params: Any, order_id: str) -> types.CallToolResult:
    for step in range(3):
        await ctx.session.report_progress(step, 3, f"step {step}")
        await ctx.session.send_log_message("info", f"step {step}", "shop", ctx.request_id)
    return text("done")


async def do_crash(ctx: Any, params: Any) -> types.CallToolResult:
    os._exit(3)


async def do_grow(ctx: Any, params: Any, name: str) -> types.CallToolResult:
    GROWN.append(name)
    await ctx.session.send_tool_list_changed()
    await ctx.session.send_resource_updated("shop://stock")
    return text("grown")


async def do_whoami(ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    info = ctx.session.client_params.client_info if ctx.session.client_params else None
    meta = {key: value for key, value in (params.meta or {}).items() if str(key).startswith("shop.example/")}
    return text(f"{info.name if info else '?'} {meta}")


async def list_resources(ctx: Any, params: Any) -> types.ListResourcesResult:
    return types.ListResourcesResult(
        resources=[types.Resource(name="stock", uri="shop://stock", mime_type="text/plain")]
    )


async def list_templates(ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(
        resource_templates=[types.ResourceTemplate(name="shelf", uri_template="shop://shelf/{number}")]
    )


async def read_resource(ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[types.TextResourceContents(uri=params.uri, text=f"of {params.uri}")])


async def subscribe(ctx: Any, params: Any) -> types.EmptyResult:
    note("subscribe", {"uri": params.uri})
    return types.EmptyResult()


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    return types.ListPromptsResult(
        prompts=[types.Prompt(name="greet", arguments=[types.PromptArgument(name="who", required=True)])]
    )


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    said = types.TextContent(text=f"Greet {(params.arguments or {}).get('who')}.")
    return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=said)])


async def complete(ctx: Any, params: types.CompleteRequestParams) -> types.CompleteResult:
    return types.CompleteResult(completion=types.Completion(values=[f"{params.argument.value}nna"], total=1))


async def set_level(ctx: Any, params: types.SetLevelRequestParams) -> types.EmptyResult:
    note("level", {"level": params.level})
    return types.EmptyResult()


async def roots_changed(ctx: Any, params: Any) -> None:
    found = await ctx.session.list_roots()
    note("roots", {"roots": " ".join(str(root.uri) for root in found.roots)})


async def only_modern(ctx: Any, call_next: Any) -> Any:
    if MODERN and ctx.method == "initialize":
        data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
        raise MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, "no handshake here", data)
    return await call_next(ctx)


def made() -> Server[Any]:
    server: Server[Any] = Server(
        "orders",
        version="1.2",
        instructions="Ask for orders by their number.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
        on_completion=complete,
    )
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    server.add_notification_handler("notifications/roots/list_changed", types.NotificationParams, roots_changed)
    server.middleware.append(only_modern)
    return server


async def over_stdio(server: Server[Any]) -> None:
    told = server.create_initialization_options(NotificationOptions(True, True, True))
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, told)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("log", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--modern", action="store_true")
    chosen = parser.parse_args()
    LOG, MODERN = chosen.log, chosen.modern
    note("started", {"pid": os.getpid()})
    if chosen.port:
        uvicorn.run(made().streamable_http_app(), port=chosen.port, log_level="warning")
    else:
        anyio.run(over_stdio, made())
