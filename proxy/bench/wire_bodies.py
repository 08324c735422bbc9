"""What the benchmark asks: request bodies of 1 KB and 100 KB, no two of them alike.

`1kb` is a short chat with one tool. `100kb` is an agent deep in its work: 30 tools with their schemas and a history of
40 messages, of which the last is new each time. `100kb_growing` is the same agent going on: each request repeats the
one before, with its answer and a new message, and after `TURNS` requests another conversation begins.
"""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentspec.proxy.bench.wire_endpoint import ANSWER_TEXT, MODEL

TURNS = 8
TOOL_COUNT = 30
_MESSAGES = 40
_SMALL_BYTES = 1_000
_LARGE_BYTES = 100_000
_FIRST, _LAST, _END = "<first>", "<last>", "<end>"
_VERBS = ("get", "list", "find", "count", "check", "compare")
_NOUNS = ("order", "customer", "shipment", "invoice", "product")
_WORDS = (
    *("order", "item", "status", "shipped", "warehouse", "address", "customer", "total", "price", "refund", "delay"),
    *("carrier", "tracking", "number", "quantity", "colour", "size", "of", "the", "and", "is", "to", "for", "with"),
    *("on", "by", "from", "each", "after", "before", "not", "yet", "open", "closed", "paid", "due"),
)
TOOL_NAMES = tuple(f"{verb}_{noun}" for verb in _VERBS for noun in _NOUNS)

_numbers = itertools.count(1)


class Size(StrEnum):
    """Which kind of body."""

    SMALL = "1kb"
    LARGE = "100kb"
    GROWING = "100kb_growing"


@dataclass(frozen=True, slots=True)
class Template:
    """A body cut at the places that change: in the first message, in the last, and after it."""

    start: bytes
    middle: bytes
    after_last: bytes
    end: bytes

    def filled(self, first: int, last: int, later: bytes = b"") -> bytes:
        """A body; `later` are further messages, each with a comma before it."""
        return b"%b%012d%b%012d%b%b%b" % (self.start, first, self.middle, last, self.after_last, later, self.end)


def bodies(size: Size, *, streamed: bool) -> Iterator[bytes]:
    """The requests of one connection, without end."""
    template = _template(size is Size.SMALL, streamed)
    if size is Size.GROWING:
        while True:
            yield from _conversation(template)
    while True:
        yield template.filled(1, next(_numbers))


def _conversation(template: Template) -> Iterator[bytes]:
    name, later = next(_numbers), b""
    answer = _compact({"role": "assistant", "content": ANSWER_TEXT})
    for turn in range(TURNS):
        yield template.filled(name, 0, later)
        question = _compact({"role": "user", "content": f"And then? Question {turn} of {name}. {_text(turn, 200)}"})
        later += f",{answer},{question}".encode()


@functools.cache
def _template(small: bool, streamed: bool) -> Template:
    return _cut(_small(streamed) if small else _large(streamed))


def _cut(payload: dict[str, Any]) -> Template:
    text = _compact(payload)
    start, rest = text.split(_FIRST)
    middle, rest = rest.split(_LAST)
    after_last, end = rest.split(f',"{_END}"')
    return Template(start.encode(), middle.encode(), after_last.encode(), end.encode())


def _request(messages: list[Any], tools: list[dict[str, Any]], streamed: bool) -> dict[str, Any]:
    flags = {"stream": True} if streamed else {}
    return {"messages": [*messages, _END], "model": MODEL, "temperature": 0, "tools": tools, **flags}


def _small(streamed: bool) -> dict[str, Any]:
    system = {"role": "system", "content": f"You help customers of a shop. Case {_FIRST}."}
    user = {"role": "user", "content": ""}
    request = _request([system, user], [_tool(TOOL_NAMES[0], 1)], streamed)
    missing = _SMALL_BYTES - len(_compact(request)) - 24
    user["content"] = f"{_text(0, max(missing, 16))} {_LAST}"
    return request


def _large(streamed: bool) -> dict[str, Any]:
    tools = [_tool(name, 4) for name in TOOL_NAMES]
    messages: list[dict[str, Any]] = [{"role": "system", "content": f"Case {_FIRST}. {_text(1, 4000)}"}]
    while len(messages) < _MESSAGES - 1:
        messages += _step(len(messages), _MESSAGES - 1 - len(messages))
    missing = _LARGE_BYTES - len(_compact(_request(messages, tools, streamed)))
    return _request([*messages, {"role": "user", "content": f"{_text(2, max(missing, 16))} {_LAST}"}], tools, streamed)


def _step(nth: int, room: int) -> list[dict[str, Any]]:
    """A call and its result, or now and then a word of the user's."""
    name, call = TOOL_NAMES[nth % TOOL_COUNT], f"call_{nth:08d}"
    if nth % 10 == 1 or room < 2:
        return [{"role": "user", "content": _text(nth, 300)}]
    arguments = json.dumps({"id": f"#W{nth:07d}", "since": "2026-03-01", "limit": nth})
    function = {"name": name, "arguments": arguments}
    rows = [
        {"id": f"#W{nth:04d}{row:03d}", "total": 12.5 * row, "note": _text(nth * 99 + row, 180)} for row in range(11)
    ]
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": json.dumps(rows)},
    ]


def _tool(name: str, options: int) -> dict[str, Any]:
    properties: dict[str, Any] = {"id": {"type": "string", "description": "Number of the record, as #W0000000."}}
    for nth in range(options):
        properties[f"option_{nth}"] = {
            "type": "string",
            "enum": ["any", "open", "closed"],
            "description": _text(nth, 60),
        }
    parameters = {"type": "object", "properties": properties, "required": ["id"], "additionalProperties": False}
    description = f"{name.replace('_', ' ').capitalize()}. {_text(len(name), 40 * options)}"
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(seed: int, chars: int) -> str:
    """So many characters of words, the same for the same seed."""
    chosen = random.Random(seed).choices(_WORDS, k=chars // 3 + 1)
    return " ".join(chosen)[:chars]


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
