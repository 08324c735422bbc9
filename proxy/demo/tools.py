"""The agent's tools as plain functions, and how the model is told about them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentspec import speculate
from agentspec.proxy.demo.shop import Shop

Result = dict[str, Any]
ToolFunction = Callable[..., Result]


@dataclass(frozen=True, slots=True)
class Tool:
    """A plain function with its OpenAI schema."""

    function: ToolFunction
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        return self.function.__name__


def shop_tools(shop: Shop) -> list[Tool]:
    """The tools of a running shop. All of them only read."""
    latency = shop.latency

    def stock(item: str) -> Result:
        """How many pieces of an item are left."""
        time.sleep(latency.database)
        return shop.catalogue.stock(item) or {"error": f"no item {item!r}"}

    def order(number: str) -> Result:
        """What was ordered, its status, and the parcel it went into."""
        time.sleep(latency.database)
        return shop.catalogue.order(number) or {"error": f"no order {number!r}"}

    def track(parcel: str) -> Result:
        """Where a parcel is now and when it arrives."""
        return shop.parcel(parcel)

    def handbook(topic: str) -> Result:
        """The shop's rules."""
        time.sleep(latency.handbook)
        return shop.handbook.search(topic) or {"error": f"nothing about {topic!r}"}

    return [_tool(stock, "item"), _tool(order, "number"), _tool(track, "parcel"), _tool(handbook, "topic")]


def _tool(function: ToolFunction, parameter: str) -> Tool:
    parameters = {"type": "object", "properties": {parameter: {"type": "string"}}, "required": [parameter]}
    description = (function.__doc__ or "").strip()
    schema = {"name": function.__name__, "description": description, "parameters": parameters}
    return Tool(function, {"type": "function", "function": schema})


def speculated(tools: list[Tool]) -> dict[str, ToolFunction]:
    """The same functions, declared as reads that agentspec may run ahead; what they return stays true for a minute."""
    declare = speculate(effect="read", stable_for=60.0)
    return {tool.name: declare(tool.function) for tool in tools}


def undecorated(tools: list[Tool]) -> dict[str, ToolFunction]:
    """The functions as they are."""
    return {tool.name: tool.function for tool in tools}
