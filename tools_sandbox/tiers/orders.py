"""Calls on their way to another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentspec.keys import Form
from agentspec.runs import Order, Place
from agentspec.tools_sandbox.tool import DeclaredTool

DEFAULT_TIMEOUT_S = 60.0
"""Longest run ahead of a tool without a `timeout_s` of its own."""


def order_of(tool: DeclaredTool, given: Mapping[str, Any], form: Form, place: Place) -> Order:
    """A call of an isolated tool, for its tier."""
    spec = tool.spec
    return Order(
        module=tool.function.__module__,
        qualname=tool.function.__qualname__,
        seal=tool.seal,
        arguments=dict(given),
        form=form.value,
        place=place,
        sandbox=spec.sandbox,
        timeout_s=spec.timeout_s or DEFAULT_TIMEOUT_S,
        changes_nothing=spec.effect.changes_nothing,
    )
