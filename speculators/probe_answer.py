"""What a probe's stream says: its text with the log-probability of each token, or tool calls; sans-IO."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any

from agentspec.calls import JsonCloser, ToolCall, parse_arguments
from agentspec.sse import SseDecoder


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


@dataclass(slots=True)
class ProbeAnswer:
    """Collects a streamed chat completion. Never raises for what an endpoint sends."""

    tokens: list[Token] = field(default_factory=list)
    calls: dict[int, RawCall] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    _sse: SseDecoder = field(default_factory=SseDecoder)
    _closer: JsonCloser = field(default_factory=JsonCloser)

    @property
    def text(self) -> str:
        """The visible text so far."""
        return "".join(token.text for token in self.tokens)

    def has_call(self) -> bool:
        """Whether there may be something to read: a closing brace has come."""
        return any("}" in token.text for token in self.tokens[-1:]) or any(
            "}" in c.arguments for c in self.calls.values()
        )

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        for event in self._sse.feed(chunk):
            try:
                payload = json.loads(event.data)
            except ValueError:
                continue
            if isinstance(payload, dict):
                self._payload(payload)

    def finish(self) -> None:
        """The stream is over: flush what had no closing blank line."""
        self.feed(b"\n\n")

    def _payload(self, payload: dict[str, Any]) -> None:
        usage = payload.get("usage")
        if isinstance(usage, dict):
            self.prompt_tokens = _count(usage.get("prompt_tokens")) or self.prompt_tokens
            self.completion_tokens = _count(usage.get("completion_tokens")) or self.completion_tokens
        for choice in payload.get("choices") or []:
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
        if "".join(str(e.get("token", "")) for e in told) == text and told:
            found = [Token(str(e["token"]), _number(e.get("logprob"))) for e in told]
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
            call.name += fragment["function"].get("name") or ""
            call.arguments += fragment["function"].get("arguments") or ""


def read_call(opening: str, tokens: list[Token]) -> tuple[ToolCall, float, float] | None:
    """The call in a text `opening` + tokens, `{"name": …, "arguments": {…}}`, once it is complete.

    Returns:
        the call, the probability of its name and that of its arguments (product over the tokens of each span);
        None where the text is no complete call.
    """
    closer, end = JsonCloser(), 0
    closer.feed(opening)
    for position, token in enumerate(tokens):
        if closer.feed(token.text):
            end = position + 1
            break
    if not end:
        return None
    text = opening + "".join(token.text for token in tokens[:end])
    text = text[: text.rindex("}") + 1]
    try:
        parsed = json.loads(text)
    except ValueError:
        return None
    arguments = parsed.get("arguments", parsed.get("parameters"))
    if isinstance(arguments, str):
        arguments = parse_arguments(arguments)
    if not isinstance(parsed.get("name"), str) or not isinstance(arguments, dict):
        return None
    name, rest = _spans(opening, tokens[:end], text.index('"', text.index(parsed["name"], len(opening) - 1)) + 1)
    return ToolCall(parsed["name"], arguments), name, rest


def _spans(opening: str, tokens: list[Token], name_end: int) -> tuple[float, float]:
    """Probabilities of the tokens that begin before and after the end of the name."""
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
    return float(value) if isinstance(value, (int, float)) and not math.isnan(value) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and value > 0 else 0
