"""What the answers of all APIs have in common: calls that arrive in fragments, JSON payloads, token counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from agentspec.calls import JsonCloser, ToolCall, parse_arguments
from agentspec.events import CallComplete, CallFragment, CallNamed, TurnEvent, Usage
from agentspec.sse import SseDecoder

_decoder = msgspec.json.Decoder()


class AnswerStream(Protocol):
    """Turns the bytes of a streamed answer into turn events, incrementally. Never raises for what an endpoint sends."""

    @property
    def held_bytes(self) -> int:
        """Bytes of an event that is not complete yet."""
        ...

    def feed(self, chunk: bytes) -> list[TurnEvent]:
        """Take the next bytes as the endpoint sent them (decompressed) and return what they said."""
        ...

    def finish(self) -> list[TurnEvent]:
        """The stream is over. A call that is still open then was broken off: it is none."""
        ...


class EventStream:
    """What the streamed answers of all APIs share: events in, their payloads read, turn events out."""

    read: frozenset[str] | None = None
    """The types of events that say something here; None for all."""

    def __init__(self) -> None:
        self._sse = SseDecoder()
        self._ended = False

    @property
    def held_bytes(self) -> int:
        """Bytes of an event that is not complete yet."""
        return self._sse.held_bytes

    def feed(self, chunk: bytes) -> list[TurnEvent]:
        """Take the next bytes as the endpoint sent them (decompressed) and return what they said."""
        plain = self._sse.plain_data(chunk) if self.read is None else None
        if plain is not None:
            return [event for data in plain for event in self._said(data)]
        events: list[TurnEvent] = []
        for event in self._sse.feed(chunk):
            if self.read is None or event.event in self.read:
                events += self._said(event.data, event.event)
        return events

    def _said(self, data: str | bytes, kind: str = "message") -> list[TurnEvent]:
        """What one event says."""
        if (plain := self._plain(data)) is not None:
            return plain
        payload = payload_of(data if isinstance(data, str) else data.decode("utf-8", "replace"))  # "[DONE]" is none
        if payload is None:
            return []
        told = payload.get("type")
        return self._payload(payload, told if isinstance(told, str) and told else kind)

    def _plain(self, data: str | bytes) -> list[TurnEvent] | None:
        """What a payload says that carries some text and nothing else, as most do; None: read it whole."""
        return None

    def _payload(self, payload: dict[str, Any], kind: str) -> list[TurnEvent]:
        raise NotImplementedError


def payload_of(text: str | bytes) -> dict[str, Any] | None:
    """An event's JSON object; None where it is none."""
    try:
        payload = _decoder.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return payload if isinstance(payload, dict) else None


@dataclass(slots=True)
class OpenCall:
    """A call that is still arriving. `free_text`: its input is no JSON."""

    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    closer: JsonCloser = field(default_factory=JsonCloser)
    free_text: bool = False
    done: bool = False

    def complete(self, index: int, *, whole: bool = True) -> CallComplete:
        """It has ended. One that was broken off, or whose arguments are no JSON object, is no call."""
        self.done = True
        arguments = None if self.free_text or not whole else parse_arguments("".join(self.arguments))
        call = None if arguments is None else ToolCall(self.name, arguments, self.id)
        return CallComplete(index, self.name, call, broken_off=not whole)

    def more(self, index: int, text: str) -> list[TurnEvent]:
        """More of its arguments; complete as soon as their JSON closes."""
        if not text:
            return []
        self.arguments.append(text)
        events: list[TurnEvent] = [CallFragment(index, text)]
        if self.name and not (self.done or self.free_text) and self.closer.feed(text):
            events.append(self.complete(index))
        return events


class OpenCalls:
    """The calls of an answer whose API says where each begins and ends, by our own numbers for them."""

    def __init__(self) -> None:
        self._calls: list[OpenCall] = []

    @property
    def latest(self) -> int | None:
        """The call that began last."""
        return len(self._calls) - 1 if self._calls else None

    def begin(self, name: str, identity: str | None, *, free_text: bool = False) -> tuple[int, list[TurnEvent]]:
        """A call begins; its name is known."""
        index = len(self._calls)
        self._calls.append(OpenCall(identity, name, free_text=free_text))
        return index, [CallNamed(index, name, identity)]

    def more(self, index: int | None, text: str) -> list[TurnEvent]:
        """More of a call's arguments."""
        return self._calls[index].more(index, text) if index is not None else []

    def close(self, index: int | None, whole: str | None = None) -> list[TurnEvent]:
        """The API says that it is over; `whole`: its arguments once more, for endpoints that send them only here."""
        if index is None or self._calls[index].done:
            return []
        call = self._calls[index]
        events: list[TurnEvent] = []
        if whole and not call.arguments:
            events = call.more(index, whole)
        return events if call.done else [*events, call.complete(index)]

    def end(self, *, whole: bool) -> list[TurnEvent]:
        """The answer is over: what is still open ends with it."""
        still_open = [(index, call) for index, call in enumerate(self._calls) if not call.done]
        return [call.complete(index, whole=whole) for index, call in still_open]


def dicts(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def usage(prompt_tokens: Any, completion_tokens: Any, details: Any = None) -> Usage:
    """Token counts, those that are none as 0. `details`: `completion_tokens_details`, where drafts are counted."""
    drafted, accepted = drafts(details) or (None, None)
    return Usage(count(prompt_tokens), count(completion_tokens), drafted, accepted)


def drafts(details: Any) -> tuple[int, int] | None:
    """Tokens drafted and accepted, as `completion_tokens_details` counts predicted ones; None where it does not."""
    if not isinstance(details, dict):
        return None
    accepted, rejected = (details.get(f"{kind}_prediction_tokens") for kind in ("accepted", "rejected"))
    if not isinstance(accepted, int) or not isinstance(rejected, int):
        return None
    return accepted + rejected, accepted


def count(value: Any) -> int:
    """A whole number, anything else as 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
