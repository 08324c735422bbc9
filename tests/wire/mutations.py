"""Small damages to JSON and to bytes, from a seeded generator: any case can be had again."""

from __future__ import annotations

import random
from typing import Any

ODD: list[Any] = [None, True, -1, 2**70, 1.5, "", "x", "{", [], {}, [None], {"type": 5}, [[]], {"index": []}]


def altered(value: Any, chance: random.Random) -> Any:
    """A JSON value with something else in one place."""
    if chance.random() < 0.15 or not isinstance(value, (dict, list)) or not value:
        return chance.choice(ODD)
    if isinstance(value, dict):
        key = chance.choice(sorted(value))
        return {**value, key: altered(value[key], chance)}
    place = chance.randrange(len(value))
    return [altered(item, chance) if number == place else item for number, item in enumerate(value)]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Bytes with a few of them changed, left out, repeated or put in."""
    raw = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, size = chance.randrange(len(raw) + 1), chance.choice((1, 1, 2, 8, 40))
        what = chance.randrange(5)
        if what == 0:
            raw[place : place + size] = chance.randbytes(size)
        elif what == 1:
            del raw[place : place + size]
        elif what == 2:
            raw[place:place] = raw[place : place + size] * chance.randint(1, 3)
        elif what == 3:
            raw[place:place] = chance.choice(TOKENS)
        else:
            other = chance.randrange(len(raw) + 1)
            raw[place:place] = raw[other : other + size]
    return bytes(raw)


TOKENS = (
    *(b"\r", b"\n", b"\r\n", b"\n\n", b"\x00", b"\xff", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"data: ", b"event: ", b": "),
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b'"',
        b"\\",
        b"null",
        b"true",
        b"1e999",
        b"NaN",
        b"-0",
        b"[DONE]",
        b'"index":',
        b'"type":',
    ),
    *(b'{"type": {}}', b'"id": []', b'"\\ud800"', b"9" * 400, b"[" * 2000, b'{"a":' * 500),
)


HISTORY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}}],
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "r"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text"}]}]},
    ],
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "r"},
        {"type": "item_reference", "id": "x"},
    ],
    "tools": [{"type": "function", "name": "f", "function": {"name": "f", "parameters": {}}, "input_schema": {}}],
    "tool_choice": {"type": "function", "name": "f"},
    "instructions": "be brief",
    "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
    "previous_response_id": "resp",
    "conversation": {"id": "conv"},
    "stream": True,
}
