"""Answers in the words of the Messages API."""

from __future__ import annotations

import json
from typing import Any

from tests.wire.answers import CALL, PROVIDER, REASONING, TEXT, Answer, Part, interleaved

PARTS = frozenset({TEXT, REASONING, CALL, PROVIDER})
_BLOCKS = {TEXT: "text", REASONING: "thinking", CALL: "tool_use"}


def request(*said: str, stream: bool = True, **more: Any) -> bytes:
    messages = [{"role": "user", "content": text} for text in said or ("hello",)]
    return json.dumps({"model": "m", "max_tokens": 64, "messages": messages, "stream": stream, **more}).encode()


def payloads(answer: Answer) -> list[Any]:
    message = {**body(answer), "content": [], "stop_reason": None, "usage": _usage(answer, 1)}
    delta = {"stop_reason": _reason(answer), "stop_sequence": None}
    usage = {"output_tokens": answer.completion_tokens}
    return [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        *interleaved(answer, _part),
        {"type": "message_delta", "delta": delta, "usage": usage},
        {"type": "message_stop"},
    ]


def _part(part: Part, index: int) -> list[Any]:
    return [
        {"type": "content_block_start", "index": index, "content_block": _block(part, empty=True)},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in _deltas(part)),
        {"type": "content_block_stop", "index": index},
    ]


def _deltas(part: Part) -> list[dict[str, str]]:
    if part.kind == TEXT:
        return [{"type": "text_delta", "text": piece} for piece in part.pieces]
    if part.kind == REASONING:
        thinking = [{"type": "thinking_delta", "thinking": piece} for piece in part.pieces]
        return [*thinking, {"type": "signature_delta", "signature": "c2ln"}]
    return [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *part.pieces)]


def _block(part: Part, *, empty: bool = False) -> dict[str, Any]:
    if part.kind == TEXT:
        return {"type": "text", "text": "" if empty else part.whole}
    if part.kind == REASONING:
        return {"type": "thinking", "thinking": "" if empty else part.whole, "signature": ""}
    kind = _BLOCKS.get(part.kind) or ("mcp_tool_use" if part.name.startswith("mcp") else "server_tool_use")
    block = {"type": kind, "id": part.id, "name": part.name, "input": {} if empty else json.loads(part.whole or "{}")}
    return block | ({"server_name": "s"} if kind == "mcp_tool_use" else {})


def body(answer: Answer) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [_block(part) for part in answer.parts],
        "stop_reason": _reason(answer),
        "stop_sequence": None,
        "usage": _usage(answer, answer.completion_tokens),
    }


def _reason(answer: Answer) -> str:
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: Answer, output: int) -> dict[str, Any]:
    return {"input_tokens": answer.prompt_tokens, "output_tokens": output, "service_tier": "standard"}
