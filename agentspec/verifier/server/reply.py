"""From engine events to the API's JSON shapes."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from agentspec.verifier.engine.sequence import Token
from agentspec.verifier.server.toolcalls import CallArguments, CallStart, Delta, TextDelta, ToolCallParser
from agentspec.verifier.text import Detokenizer, StopFinder

Json = dict[str, Any]
Piece = Callable[[int], bytes]


class Assembler:
    """Tokens in, deltas out: decodes, looks for stop strings, parses calls.

    `stopped` says that a stop string was reached: nothing more may be fed.
    """

    def __init__(self, piece: Piece, stops: tuple[str, ...], parser: ToolCallParser | None) -> None:
        self._piece = piece
        self._decoder = Detokenizer()
        self._stops = StopFinder(stops)
        self._parser = parser
        self.stopped = False

    @property
    def calls(self) -> int:
        return self._parser.calls if self._parser else 0

    def feed(self, token: int) -> list[Delta]:
        shown, self.stopped = self._stops.feed(self._decoder.feed(self._piece(token)))
        return self._parse(shown)

    def end(self) -> list[Delta]:
        """The rest, once no more tokens come."""
        deltas: list[Delta] = []
        if not self.stopped:
            shown, self.stopped = self._stops.feed(self._decoder.end())
            deltas += self._parse(shown + self._stops.end())
        return deltas + (self._parser.end() if self._parser else [])

    def _parse(self, text: str) -> list[Delta]:
        if self._parser:
            return self._parser.feed(text)
        return [TextDelta(text)] if text else []


@dataclass(slots=True)
class Usage:
    prompt: int = 0
    cached: int = 0
    completion: int = 0

    def body(self) -> Json:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


def chat_logprobs(tokens: list[Token], piece: Piece) -> Json:
    """OpenAI's chat shape."""

    def entry(token: int, logprob: float) -> Json:
        data = piece(token)
        return {"token": data.decode(errors="replace"), "logprob": logprob, "bytes": list(data)}

    content = [
        {**entry(t.id, t.logprobs.logprob), "top_logprobs": [entry(i, p) for i, p in t.logprobs.top]}
        for t in tokens
        if t.logprobs is not None
    ]
    return {"content": content, "refusal": None}


def text_logprobs(tokens: list[Token], piece: Piece, offset: int) -> Json:
    """The legacy shape of `/v1/completions`; `offset` is where in the answer the first token's text begins."""
    shape: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for token in tokens:
        if token.logprobs is None:
            continue
        written = piece(token.id).decode(errors="replace")
        shape["tokens"].append(written)
        shape["token_logprobs"].append(token.logprobs.logprob)
        shape["top_logprobs"].append({piece(i).decode(errors="replace"): p for i, p in token.logprobs.top})
        shape["text_offset"].append(offset)
        offset += len(written)
    return shape


def _new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


@dataclass(slots=True)
class ChatShape:
    """`/v1/chat/completions`: chunks while streaming, or one body at the end."""

    model: str
    piece: Piece
    wants_logprobs: bool
    id: str = field(default_factory=lambda: _new_id("chatcmpl"))
    created: int = field(default_factory=lambda: int(time.time()))
    _text: list[str] = field(default_factory=list)
    _calls: list[Json] = field(default_factory=list)

    def _chunk(self, choices: list[Json], **extra: Any) -> Json:
        head = {"id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.model}
        return {**head, "choices": choices, **extra}

    def first(self) -> Json | None:
        return self._chunk([self._choice({"role": "assistant", "content": ""}, [])])

    def _choice(self, delta: Json, tokens: list[Token], reason: str | None = None) -> Json:
        logprobs = chat_logprobs(tokens, self.piece) if self.wants_logprobs and tokens else None
        return {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def chunks(self, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        """One chunk per delta; the first carries the log-probabilities of `tokens`."""
        chunks = []
        for delta in deltas:
            chunks.append(self._chunk([self._choice(_chat_delta(delta), tokens)]))
            tokens = []
        return chunks

    def last(self, reason: str, tokens: list[Token]) -> Json:
        return self._chunk([self._choice({}, tokens, reason)])

    def usage(self, usage: Usage) -> Json:
        return self._chunk([], usage=usage.body())

    def whole(self, deltas: list[Delta], tokens: list[Token], reason: str, usage: Usage) -> Json:
        """The body of an answer that is not streamed."""
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        calls: list[Json] = []
        for delta in deltas:
            if isinstance(delta, CallStart):
                calls.append({"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}})
            elif isinstance(delta, CallArguments):
                calls[delta.index]["function"]["arguments"] += delta.fragment
        message: Json = {"role": "assistant", "content": text or (None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        logprobs = chat_logprobs(tokens, self.piece) if self.wants_logprobs else None
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": reason}
        return {**self._chunk([choice], usage=usage.body()), "object": "chat.completion"}


def _chat_delta(delta: Delta) -> Json:
    match delta:
        case TextDelta(text):
            return {"content": text}
        case CallStart(index, call_id, name):
            function = {"name": name, "arguments": ""}
            return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}
        case CallArguments(index, fragment):
            return {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


@dataclass(slots=True)
class TextShape:
    """`/v1/completions`: chunks while streaming, or one body at the end."""

    model: str
    piece: Piece
    wants_logprobs: bool
    id: str = field(default_factory=lambda: _new_id("cmpl"))
    created: int = field(default_factory=lambda: int(time.time()))
    _offset: int = 0

    def _body(self, text: str, tokens: list[Token], reason: str | None, **extra: Any) -> Json:
        logprobs = None
        if self.wants_logprobs and tokens:
            logprobs = text_logprobs(tokens, self.piece, self._offset)
            self._offset += sum(map(len, logprobs["tokens"]))
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": reason}
        head = {"id": self.id, "object": "text_completion", "created": self.created, "model": self.model}
        return {**head, "choices": [choice], **extra}

    def first(self) -> Json | None:
        return None

    def chunks(self, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        return [self._body(text, tokens, None)] if text else []

    def last(self, reason: str, tokens: list[Token]) -> Json:
        return self._body("", tokens, reason)

    def usage(self, usage: Usage) -> Json:
        return {**self._body("", [], None), "choices": [], "usage": usage.body()}

    def whole(self, deltas: list[Delta], tokens: list[Token], reason: str, usage: Usage) -> Json:
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        return self._body(text, tokens, reason, usage=usage.body())


Shape = ChatShape | TextShape
