"""The questions, tools and scripts that all clients share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.clients.script import Call, Text, Thinking, Turn

QUESTION = "Where are orders A1 and Zürich-2, and how many shirts are left?"
ANSWER = "A1 is on its way\u2028and Zürich-2 was delivered; 42 shirts are left. ✓"

ORDERS = Call("get_order", {"order_id": "A1"}), Call("get_order", {"order_id": "Zürich-2"})
STOCK = Call("count_stock", {"item": "shirt", "size": "M\u2028"})

LOOP: tuple[Turn, ...] = ([Text("Let me look."), *ORDERS], [STOCK], [Text(ANSWER)])
"""Two parallel calls of one tool, then one of another, then the final answer."""

THOUGHTFUL = [Thinking("They ask for two orders; I need both."), Text("Let me look."), *ORDERS]

RESULTS = ["order A1 is shipped", "order Zürich-2 is shipped", "42 pieces of shirt"]
"""What the loop's tools return."""


def get_order(order_id: str) -> str:
    """The status of an order."""
    return f"order {order_id} is shipped"


def count_stock(item: str, size: str = "M") -> str:
    """How many pieces are left."""
    return f"42 pieces of {item}"


TOOLS = (get_order, count_stock)


def run(name: str, arguments: dict[str, Any], tools: Sequence[Callable[..., str]] = TOOLS) -> str:
    """Call a tool by its name."""
    return {tool.__name__: tool for tool in tools}[name](**arguments)


def _schema(*names: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": list(names), "additionalProperties": False}


SCHEMAS = {"get_order": _schema("order_id"), "count_stock": _schema("item", "size")}

CHAT_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": name, "strict": True, "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": name, "description": name, "strict": True, "parameters": schema}
    for name, schema in SCHEMAS.items()
]
MESSAGES_TOOLS: Any = [
    {"name": name, "description": name, "input_schema": schema, "eager_input_streaming": True}
    for name, schema in SCHEMAS.items()
]
