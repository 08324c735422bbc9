"""The answers of `/v1/chat/completions` and `/v1/completions`."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from agentspec.errors import ApiError
from agentspec.verifier.engine.interface import Token
from agentspec.verifier.server.answer import Choice, Json, Usage, label
from agentspec.verifier.server.assembler import Piece
from agentspec.verifier.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta
from agentspec.verifier.server.logprobs import text_logprobs, token_logprobs
from agentspec.verifier.server.options import Options


def new_id(prefix: str) -> str:
    """A fresh id of the API's look."""
    return f"{prefix}{uuid.uuid4().hex}"


@dataclass(slots=True)
class ChatShape:
    """`/v1/chat/completions`."""

    model: str
    piece: Piece
    options: Options
    id: str = field(default_factory=lambda: new_id("chatcmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))
    named_events: bool = False

    def _chunk(self, choices: list[Json], **extra: Any) -> Json:
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
        return {**head, "choices": choices, **extra}

    def _choice(self, index: int, delta: Json, tokens: list[Token], reason: str | None = None) -> Json:
        logprobs = self._logprobs(tokens) if tokens else None
        told = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {**told, **_ids(tokens, self.options)}

    def _logprobs(self, tokens: list[Token]) -> Json | None:
        if self.options.params.top_logprobs is None:
            return None
        return {"content": token_logprobs(tokens, self.piece), "refusal": None}

    def opening(self) -> list[Json]:
        first = {"role": "assistant", "content": ""}
        return [self._chunk([self._choice(index, first, [])]) for index in range(self.options.choices)]

    def chunks(self, choice: Choice, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        """One chunk per delta; the first carries the log-probabilities of `tokens`."""
        chunks = []
        for delta in deltas:
            chunks.append(self._chunk([self._choice(choice.index, _chat_delta(delta), tokens)]))
            tokens = []
        return chunks

    def closing(self, choice: Choice, tokens: list[Token]) -> list[Json]:
        told = label(choice.drafts, lossy=self.options.lossy)
        return [self._chunk([self._choice(choice.index, {}, tokens, choice.reason)], **told)]

    def ending(self, choices: list[Choice], usage: Usage) -> list[Json]:
        if not self.options.include_usage:
            return []
        told = label(usage.drafts, lossy=self.options.lossy)
        return [self._chunk([], usage=usage.body(), **told)]

    def failed(self, error: ApiError) -> list[Json]:
        return [dict(error.body())]

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        told = label(usage.drafts, lossy=self.options.lossy)
        bodies = [self._whole_choice(choice) for choice in choices]
        return {**self._chunk(bodies, usage=usage.body(), **told), "object": "chat.completion"}

    def _whole_choice(self, choice: Choice) -> Json:
        message: Json = {"role": "assistant", "content": choice.text or (None if choice.calls else "")}
        if choice.reasoning:
            message |= _reasoning(choice.reasoning)
        if choice.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in choice.calls
            ]
        logprobs = self._logprobs(choice.tokens)
        told = {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": choice.reason}
        return {**told, **_ids(choice.tokens, self.options)}


def _ids(tokens: list[Token], options: Options) -> Json:
    return {"token_ids": [token.id for token in tokens]} if options.token_ids else {}


def _reasoning(text: str) -> Json:
    """Under both names that clients look for."""
    return {"reasoning_content": text, "reasoning": text}


def _chat_delta(delta: Delta) -> Json:
    match delta:
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return _reasoning(text)
        case CallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, fragment):
            return {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


@dataclass(slots=True)
class TextShape:
    """`/v1/completions`."""

    model: str
    piece: Piece
    options: Options
    id: str = field(default_factory=lambda: new_id("cmpl-"))
    created: int = field(default_factory=lambda: int(time.time()))
    named_events: bool = False
    _offsets: dict[int, int] = field(default_factory=dict)
    """Where in each answer's text the next token begins."""

    def _body(self, choices: list[Json], **extra: Any) -> Json:
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return {**head, "choices": choices, **extra}

    def _choice(self, index: int, text: str, tokens: list[Token], reason: str | None) -> Json:
        logprobs = None
        if self.options.params.top_logprobs is not None and tokens:
            offset = self._offsets.get(index, 0)
            logprobs = text_logprobs(tokens, self.piece, offset)
            self._offsets[index] = offset + sum(map(len, logprobs["tokens"]))
        told = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return {**told, **_ids(tokens, self.options)}

    def opening(self) -> list[Json]:
        return []

    def chunks(self, choice: Choice, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        text = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
        return [self._body([self._choice(choice.index, text, tokens, None)])] if text else []

    def closing(self, choice: Choice, tokens: list[Token]) -> list[Json]:
        told = label(choice.drafts, lossy=self.options.lossy)
        return [self._body([self._choice(choice.index, "", tokens, choice.reason)], **told)]

    def ending(self, choices: list[Choice], usage: Usage) -> list[Json]:
        if not self.options.include_usage:
            return []
        return [self._body([], usage=usage.body(), **label(usage.drafts, lossy=self.options.lossy))]

    def failed(self, error: ApiError) -> list[Json]:
        return [dict(error.body())]

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        bodies = [self._choice(choice.index, choice.text, choice.tokens, choice.reason) for choice in choices]
        return self._body(bodies, usage=usage.body(), **label(usage.drafts, lossy=self.options.lossy))
