"""What the tests of the server ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rom"]}, "days": {"type": "integer", "enum": [1, 2]}},
    "required": ["city", "days"],
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]
FLAT_TOOLS: list[Any] = [{"type": "function", **tool["function"]} for tool in TOOLS]
"""The same as `/v1/responses` has them."""
WEATHER: Any = {"type": "function", "function": {"name": "get_weather"}}
MESSAGES: list[Any] = [{"role": "user", "content": "What is the weather?"}]
SHAPE = {
    "type": "object",
    "properties": {"sky": {"enum": ["clear", "grey"]}, "sure": {"type": "boolean"}},
    "required": ["sky", "sure"],
    "additionalProperties": False,
}


def chunks(stream: str) -> Iterator[Any]:
    """The JSON of a stream's events."""
    for event in stream.split("\n\n"):
        data = [line[6:] for line in event.split("\n") if line.startswith("data: {")]
        yield from map(json.loads, data)
