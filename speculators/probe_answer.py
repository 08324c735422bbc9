"""What a probe's stream says: its text with the log-probability of each token, or tool calls; sans-IO."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentspec.calls import JsonCloser, ToolCall, parse_arguments
from agentspec.events import CallComplete, CallFragment, CallNamed, TurnEnd, TurnEvent, Usage
from agentspec.sse import SseDecoder
from agentspec.wire.answers import AnswerStream


@dataclass(frozen=True, slots=True)
class Token:
    """A generated token: its text and its natural log-probability, None where the endpoint tells none."""

    text: str
    logprob: float | None


@dataclass(slots=True)
class RawCall:
    """A tool call as it arrives: name and argument text."""

    name: str = ""
    arguments: str = ""


class Answer(Protocol):
    """Collects what a probe's stream says. Never raises for what an endpoint sends."""

    tokens: list[Token]
    calls: dict[int, RawCall]
    prompt_tokens: int
    completion_tokens: int

    opened: bool
    """Whether the endpoint has taken the probe."""
    ended: bool
    """Whether the token counts are final."""

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes of the stream; whether a call may be complete now."""
        ...

    def finish(self) -> None:
        """The stream is over."""
        ...


@dataclass(slots=True)
class EventAnswer:
    """Collects the calls of a streamed answer of any API."""

    stream: AnswerStream
    tokens: list[Token] = field(default_factory=list)
    calls: dict[int, RawCall] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    opened: bool = False
    ended: bool = False

    def feed(self, chunk: bytes) -> bool:
        events = self.stream.feed(chunk)
        self._take(events)
        return any(isinstance(event, CallComplete) for event in events)

    def finish(self) -> None:
        self._take(self.stream.finish())

    def _take(self, events: list[TurnEvent]) -> None:
        for event in events:
            if isinstance(event, CallNamed):
                self.calls[event.index] = RawCall(event.name)
            elif isinstance(event, CallFragment) and event.index in self.calls:
                self.calls[event.index].arguments += event.text
            elif isinstance(event, CallComplete) and event.call is None:
                del self.calls[event.index]
            elif isinstance(event, TurnEnd):
                self.ended = True
            elif isinstance(event, Usage):
                self.prompt_tokens, self.completion_tokens = event.prompt_tokens, event.completion_tokens


@dataclass(slots=True)
class ProbeAnswer:
    """Collects a streamed chat completion with its log-probabilities."""

    tokens: list[Token] = field(default_factory=list)
    calls: dict[int, RawCall] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    opened: bool = False
    ended: bool = True
    _sse: SseDecoder = field(default_factory=SseDecoder)

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(token.text for token in self.tokens)

    def feed(self, chunk: bytes) -> bool:
        """Take the next bytes of the stream; whether a closing brace came with them, so that a call may be complete."""
        tokens, arguments = len(self.tokens), sum(len(call.arguments) for call in self.calls.values())
        self._take(chunk)
        fresh = "".join(token.text for token in self.tokens[tokens:])
        return "}" in fresh or sum(len(call.arguments) for call in self.calls.values()) > arguments

    def _take(self, chunk: bytes) -> None:
        for event in self._sse.feed(chunk):
            try:
                payload = json.loads(event.data)
            except (ValueError, RecursionError):
                continue
            if isinstance(payload, dict):
                self._payload(payload)

    def finish(self) -> None:
        """The stream is over: flush what had no closing blank line."""
        self._take(b"\n\n")

    def _payload(self, payload: dict[str, Any]) -> None:
        usage = payload.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens")) or self.prompt_tokens
            self.completion_tokens = _count(usage.get("completion_tokens")) or self.completion_tokens
        choices = payload.get("choices")
        for choice in choices if isinstance(choices, list) else []:
            if not isinstance(choice, dict):
                continue
            delta = choice.get("delta")
            if isinstance(delta, dict):
                self._text(delta.get("content"), choice.get("logprobs"))
                self._tool_calls(delta.get("tool_calls"))

    def _text(self, content: Any, logprobs: Any) -> None:
        entries = logprobs.get("content") if isinstance(logprobs, dict) else None
        told = [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []
        text = content if isinstance(content, str) else ""
        if told and "".join(str(e.get("token", "")) for e in told) == text:
            found = [Token(str(e.get("token", "")), _number(e.get("logprob"))) for e in told]
        elif text:
            known = [p for e in told if (p := _number(e.get("logprob"))) is not None]
            found = [Token(text, sum(known) if known else None)]
        else:
            found = []
        self.tokens += found
        self.completion_tokens = max(self.completion_tokens, len(self.tokens))

    def _tool_calls(self, fragments: Any) -> None:
        for position, fragment in enumerate(fragments if isinstance(fragments, list) else []):
            if not isinstance(fragment, dict) or not isinstance(fragment.get("function"), dict):
                continue
            index = fragment.get("index", position)
            call = self.calls.setdefault(index if isinstance(index, int) else position, RawCall())
            name, arguments = fragment["function"].get("name"), fragment["function"].get("arguments")
            call.name += name if isinstance(name, str) else ""
            call.arguments += arguments if isinstance(arguments, str) else ""


def read_call(opening: str, tokens: list[Token]) -> tuple[ToolCall, float, float] | None:
    """The call in a text `opening` + tokens, `{"name": …, "arguments": {…}}`, once it is complete.

    Returns:
        the call, the probability of its name and that of its arguments (product over the tokens of each span);
        None where the text is no complete call.
    """
    closer = JsonCloser()
    closer.feed(opening)
    count = next((number for number, token in enumerate(tokens, start=1) if closer.feed(token.text)), 0)
    if not count:
        return None
    text = (opening + "".join(token.text for token in tokens[:count]))[: closer.end]
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    arguments = parsed.get("arguments", parsed.get("parameters"))
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if not isinstance(parsed.get("name"), str) or not isinstance(arguments, dict):
        return None
    name, rest = _spans(opening, tokens[:count], _end_of_string(text, len(opening)))
    return ToolCall(parsed["name"], arguments), name, rest


def written_call(text: str) -> str:
    """A text that begins with a call, without what follows the call."""
    closer = JsonCloser()
    return text[: closer.end] if closer.feed(text) else text


def _end_of_string(text: str, start: int) -> int:
    """Where the JSON string that is open at `start` has ended: behind its closing quote."""
    position = start
    while position < len(text) and text[position] != '"':
        position += 2 if text[position] == "\\" else 1
    return position + 1


UNTOLD_CONFIDENCE = 0.6
"""Where an endpoint tells no log-probabilities."""


def _spans(opening: str, tokens: list[Token], name_end: int) -> tuple[float, float]:
    """Probabilities of the tokens that begin before and after the end of the name."""
    if all(token.logprob is None for token in tokens):
        return UNTOLD_CONFIDENCE, 1.0
    position, name, rest = len(opening), 0.0, 0.0
    for token in tokens:
        if token.logprob is not None:
            if position < name_end:
                name += token.logprob
            else:
                rest += token.logprob
        position += len(token.text)
    return math.exp(min(0.0, name)), math.exp(min(0.0, rest))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
