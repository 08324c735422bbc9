"""The pieces of an answer, whatever API they go out through."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.events import ReasoningDelta, TextDelta

__all__ = ["CallArguments", "CallStart", "Delta", "ReasoningDelta", "TextDelta"]


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call's name is known; `id` is fresh, `index` counts the calls of the answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments."""

    index: int
    fragment: str


Delta = TextDelta | ReasoningDelta | CallStart | CallArguments
