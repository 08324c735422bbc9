"""Tasks made for the grid: a small shop's back office, recorded as a model would have handled them.

Every task goes the same way over other customers, orders and items, so that memory has something to learn; how long the
model reasons before each call is the cell's. Results depend on the arguments alone.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentspec.effects import Effect
from agentspec.proxy.replay.deltas import CHARS_PER_TOKEN
from agentspec.proxy.replay.recordings import Call, Library, Recording, Step

TOOLS_REF = "back_office"
EFFECTS: dict[str, Effect] = {
    "find_orders": Effect.READ,
    "get_order": Effect.READ,
    "get_stock": Effect.READ,
    "ship_order": Effect.WRITE,
}
PLAN = ("find_orders", "get_order", "get_order", "get_stock", "ship_order", "get_order")
"""The calls of each task; those of the second order, but for the first two."""
PARAMETER = {"find_orders": "customer", "get_order": "order_id", "get_stock": "item", "ship_order": "order_id"}
SYSTEM = "You work in a shop's back office. Look things up before you ship anything."


def library() -> Library:
    """The system prompt and the tools of all tasks."""
    return Library({TOOLS_REF: SYSTEM}, {TOOLS_REF: [_schema(name) for name in EFFECTS]})


def result_of(tool: str, argument: str) -> str:
    """What a tool answers."""
    if tool == "find_orders":
        return json.dumps({"customer": argument, "orders": [_name("O", argument, nth) for nth in range(2)]})
    if tool == "get_order":
        return json.dumps({"order_id": argument, "item": _name("I", argument, 0), "quantity": 1 + len(argument) % 3})
    if tool == "get_stock":
        return json.dumps({"item": argument, "in_stock": 40 + len(argument)})
    return json.dumps({"order_id": argument, "status": "shipped"})


def parameters_of(tool: str) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments."""
    parameter = PARAMETER[tool]
    return {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}


def tasks(count: int, reasoning_tokens: int, first: int = 0, calls: int | None = None) -> list[Recording]:
    """So many tasks, numbered from `first`; of the calls of each the first few only, where a number is given."""
    return [task(first + nth, reasoning_tokens, calls) for nth in range(count)]


def written(recordings: Iterable[Recording], folder: Path, kept: Library | None = None) -> Path:
    """Tasks as a file of recordings, their prompts and tools (by default the shop's) beside it."""
    file, kept = folder / "tasks.jsonl", kept or library()
    file.write_bytes(b"\n".join(msgspec.json.encode(one) for one in recordings))
    (folder / "prompts.json.gz").write_bytes(gzip.compress(msgspec.json.encode(kept.prompts)))
    (folder / "tools.json.gz").write_bytes(gzip.compress(msgspec.json.encode(kept.tools)))
    return file


def task(number: int, reasoning_tokens: int, calls: int | None = None) -> Recording:
    """The task of this number; of its calls the first few only, where a number is given."""
    customer = _name("C", "customer", number)
    name = f"task-{number}"
    steps = [Step("user", content=f"Customer {customer} wants to know what happened to the orders. Ship the second.")]
    for nth, (tool, argument) in enumerate(zip(PLAN[:calls], _arguments(customer), strict=False)):
        call = Call(tool, {PARAMETER[tool]: argument}, f"call_{number}_{nth}")
        steps.append(Step("assistant", reasoning=thought(name, nth, reasoning_tokens), tool_calls=(call,)))
        steps.append(Step("tool", tool_call_id=call.id, tool_result=result_of(tool, argument)))
    last = "The first order is on its way, the second has been shipped."
    steps.append(Step("assistant", content=last, reasoning=thought(name, -1, reasoning_tokens)))
    return Recording(name, tuple(steps), "made for the grid", TOOLS_REF, TOOLS_REF, name)


def _arguments(customer: str) -> Iterator[str]:
    """Of the plan's calls."""
    first, second = json.loads(result_of("find_orders", customer))["orders"]
    yield from (customer, first, second, json.loads(result_of("get_order", second))["item"], second, second)


def thought(name: str, nth: int, tokens: int) -> str:
    """Reasoning of so many tokens, another one for each place."""
    words = f"{name} step {nth}: what is known, what is missing, what comes next. "
    chars = tokens * CHARS_PER_TOKEN
    return (words * (chars // len(words) + 1))[:chars]


def _name(kind: str, of: str, nth: int) -> str:
    return f"{kind}{int(hashlib.sha256(f'{kind}{of}{nth}'.encode()).hexdigest()[:8], 16) % 10**7:07d}"


def _schema(tool: str) -> dict[str, Any]:
    about = f"{tool.replace('_', ' ')} by its {PARAMETER[tool]}"
    return {"type": "function", "function": {"name": tool, "description": about, "parameters": parameters_of(tool)}}
