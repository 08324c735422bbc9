"""Reads typed fields of a JSON body; what is wrong is said by the field's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentspec.errors import RequestError

Body = Mapping[str, Any]


def number(body: Body, name: str, default: float, low: float, high: float) -> float:
    """A number within bounds.

    Raises:
        RequestError: the field is something else.
    """
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise RequestError(f"`{name}` must be a number from {low:g} to {high:g}")
    return float(value)


def integer(body: Body, name: str, default: int, low: int, high: int) -> int:
    """A whole number within bounds.

    Raises:
        RequestError: the field is something else.
    """
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise RequestError(f"`{name}` must be an integer from {low} to {high}")
    return value


def text(body: Body, name: str) -> str | None:
    """A text; None where there is none.

    Raises:
        RequestError: the field is something else.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"`{name}` must be a text")
    return value or None


def texts(body: Body, name: str) -> tuple[str, ...]:
    """A text or a list of texts; empty ones are left out.

    Raises:
        RequestError: the field is something else.
    """
    value = body.get(name) or []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise RequestError(f"`{name}` must be a text or a list of texts")
    return tuple(item for item in found if item)


def mapping(body: Body, name: str) -> Mapping[str, Any]:
    """An object; an empty one where there is none.

    Raises:
        RequestError: the field is something else.
    """
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"`{name}` must be an object")
    return value


def content(value: Any, name: str) -> str:
    """The text of a message's content: a text, or a list of text parts.

    Raises:
        RequestError: there is something else in it.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    parts = value if isinstance(value, list) else [None]
    found = [part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(part, str) for part in found):
        raise RequestError(f"{name} must be a text or a list of text parts")
    return "".join(map(str, found))
