"""What the scripted model says, in words that all three APIs share."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "scripted-1"
CREATED = 1_760_000_000

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Text:
    """Spoken text."""

    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning that comes before the answer."""

    text: str
    signature: str = "c2lnbmF0dXJl+/=="


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; its arguments stream in pieces of a few characters."""

    name: str
    arguments: dict[str, Any]

    @property
    def json(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Failing:
    """The stream ends with an error event of the API."""

    message: str = "Overloaded"


@dataclass(frozen=True, slots=True)
class BreakingOff:
    """The connection closes in mid-stream."""


Part = Text | Thinking | Call | Failing | BreakingOff


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer with an error status."""

    status: int
    body: bytes
    headers: Headers = ()


Turn = Sequence[Part] | Fault


def pieces(text: str, size: int = 7) -> Iterator[str]:
    """The text as a model generates it."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def openai_fault(status: int, code: str, message: str, *headers: tuple[str, str]) -> Fault:
    """An error in the shape of the OpenAI APIs."""
    error = {"message": message, "type": "scripted_error", "param": "messages", "code": code, "extra": {"n": 1.0}}
    return Fault(status, json.dumps({"error": error}).encode(), headers)


def anthropic_fault(status: int, kind: str, message: str, *headers: tuple[str, str]) -> Fault:
    """An error in the shape of the Messages API."""
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011scripted"}
    return Fault(status, json.dumps(body).encode(), headers)
