"""Copies of results for whoever predicts what comes after them: text, small, made before anybody owns the object."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import BaseModel

from agentspec.tools_sandbox.claim_table import approximate_bytes

MAX_COPY_BYTES = 64 * 2**10
_LOOKED_AT = 1_000
"""Parts of a result that are looked at to guess its size: a claim may be waiting for it."""


def copy_of(result: Any) -> str | None:
    """A result as the text that an agent is likely to tell its model; None where it is too large or no plain data.

    >>> copy_of({"seats": 3})
    '{"seats":3}'
    """
    try:
        if approximate_bytes(result, _LOOKED_AT) > 2 * MAX_COPY_BYTES:
            return None
        text = result if isinstance(result, str) else msgspec.json.encode(result, enc_hook=_plain).decode()
        return text if len(text.encode()) <= MAX_COPY_BYTES else None
    except Exception:  # an object of the user's that is no data, or half an emoji: nothing is told of it
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"{type(value).__name__} is no plain data")
