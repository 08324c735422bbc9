"""Turns of all three APIs, for forks."""

from __future__ import annotations

import json
from typing import Any

from agentspec.config import Engine
from agentspec.proxy.live import Live
from agentspec.wire.apis import CHAT, MESSAGES, RESPONSES, WireApi

APIS: dict[str, WireApi] = {"chat": CHAT, "responses": RESPONSES, "messages": MESSAGES}
SCHEMA = {"type": "object", "properties": {"order_id": {"type": "string"}}}
TOOLS: dict[str, Any] = {
    "chat": {"type": "function", "function": {"name": "get_order", "description": "Reads.", "parameters": SCHEMA}},
    "responses": {"type": "function", "name": "get_order", "description": "Reads.", "parameters": SCHEMA},
    "messages": {"name": "get_order", "description": "Reads.", "input_schema": SCHEMA},
}
QUESTION = {"role": "user", "content": "Where is A1?"}
SAID = {"chat": "messages", "responses": "input", "messages": "messages"}


def request_of(api: str, *said: Any, **more: Any) -> dict[str, Any]:
    limit = {"max_tokens": 999} if api == "messages" else {}
    return {"model": "m", SAID[api]: list(said or [QUESTION]), "tools": [TOOLS[api]], "stream": True, **limit, **more}


def turn_of(api: str, *said: Any, upstream: Any = None, engine: Engine = Engine.VLLM, **more: Any) -> Live:
    body = json.dumps(request_of(api, *said, **more)).encode()
    wire = APIS[api]
    read = wire.read_request(body)
    return Live(
        request=read,
        history=read.said,
        api=wire,
        engine=engine,
        upstream=upstream,
        headers=[(b"content-type", b"application/json")],
        path=wire.path.removeprefix("/v1"),
        body=body,
        id="turn",
        trajectory="t",
        scope="s",
        tenant="n",
    )
