"""An answer as such, in no API's words; and what a reader heard of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentspec.events import (
    CallComplete,
    CallFragment,
    CallNamed,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnEvent,
    Usage,
)

TEXT, REASONING, CALL, CUSTOM, PROVIDER = "text", "reasoning", "call", "custom", "provider"


@dataclass(frozen=True, slots=True)
class Part:
    """One part of an answer, in the pieces in which it is streamed.

    `custom` is a call whose input is free text; `provider` one that the endpoint runs itself: no call of the agent.
    """

    kind: str
    pieces: tuple[str, ...] = ()
    name: str = ""
    id: str = ""

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `order` says which part speaks next while several are streamed side by side."""

    parts: tuple[Part, ...]
    prompt_tokens: int = 12
    completion_tokens: int = 7
    order: tuple[int, ...] = ()

    @property
    def calls(self) -> list[Part]:
        return [part for part in self.parts if part.kind in (CALL, CUSTOM)]


@dataclass(slots=True)
class Heard:
    """What the events of one answer said, however they were cut."""

    text: str = ""
    reasoning: str = ""
    calls: dict[str, tuple[str, dict[str, Any] | None]] = field(default_factory=dict)
    """By the endpoint's id of the call: its name, and its arguments where they are a JSON object."""
    usage: tuple[int, int] | None = None
    reason: str | None = None


def expected(answer: Answer) -> Heard:
    """What must be heard of an answer; the reason's name is the API's own."""
    calls = {part.id: (part.name, json.loads(part.whole) if part.kind == CALL else None) for part in answer.calls}
    return Heard(
        text="".join(part.whole for part in answer.parts if part.kind == TEXT),
        reasoning="".join(part.whole for part in answer.parts if part.kind == REASONING),
        calls=calls,
        usage=(answer.prompt_tokens, answer.completion_tokens),
    )


def heard(events: Sequence[TurnEvent]) -> Heard:
    """Add events up; fails where they contradict each other."""
    told = Heard()
    named: dict[int, CallNamed] = {}
    written: dict[int, str] = {}
    ends = [event for event in events if isinstance(event, TurnEnd)]
    assert len(ends) == 1, f"an answer ends once, not {len(ends)} times"
    told.reason = ends[0].reason
    for event in events:
        if isinstance(event, TextDelta):
            told.text += event.text
        elif isinstance(event, ReasoningDelta):
            told.reasoning += event.text
        elif isinstance(event, CallNamed):
            assert event.index not in named, f"call {event.index} was named twice"
            named[event.index] = event
        elif isinstance(event, CallFragment):
            written[event.index] = written.get(event.index, "") + event.text
        elif isinstance(event, CallComplete):
            _complete(told, event, named, written)
        elif isinstance(event, Usage):
            told.usage = (event.prompt_tokens, event.completion_tokens)
    assert len(told.calls) == len(named), f"named {list(named.values())}, complete {told.calls}"
    return told


def _complete(told: Heard, event: CallComplete, named: dict[int, CallNamed], written: dict[int, str]) -> None:
    begun = named[event.index]
    key = begun.id or str(event.index)
    assert event.name == begun.name
    assert key not in told.calls, f"call {key} was complete twice"
    if event.call is not None:
        assert (event.call.name, event.call.id) == (begun.name, begun.id)
        if text := written.get(event.index):
            assert json.loads(text) == event.call.arguments, "the fragments say something else than the call"
    told.calls[key] = (event.name, event.call.arguments if event.call else None)


def interleaved(answer: Answer, speak: Callable[[Part, int], list[Any]]) -> list[Any]:
    """What each part is streamed as, side by side in the answer's order. Texts follow one another, as they are read."""
    lanes: dict[Any, list[Any]] = {}
    for index, part in enumerate(answer.parts):
        lane = part.kind if part.kind in (TEXT, REASONING) else index
        lanes.setdefault(lane, []).extend(speak(part, index))
    left = list(lanes.values())
    found = []
    for turn in answer.order:
        waiting = [lane for lane in left if lane]
        if not waiting:
            break
        found.append(waiting[turn % len(waiting)].pop(0))
    return found + [item for lane in left for item in lane]
