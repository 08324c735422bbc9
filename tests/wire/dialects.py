"""The three APIs as an endpoint speaks them: an answer written down as a stream's payloads, and as one body."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec.wire.apis import CHAT, MESSAGES, RESPONSES, WireApi
from tests.wire import say_chat, say_messages, say_responses
from tests.wire.answers import Answer

DONE = "[DONE]"


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API: what a client sends, and what an endpoint answers."""

    api: WireApi
    request: Callable[..., bytes]
    """request(*what the user said, **more fields): a body."""
    payloads: Callable[[Answer], list[Any]]
    """A stream's payloads, in order; `[DONE]` is one of them where the API has it."""
    body: Callable[[Answer], dict[str, Any]]
    parts: frozenset[str]
    """Kinds of parts that the API knows."""

    @property
    def path(self) -> str:
        return self.api.path

    def stream(self, answer: Answer, end: str = "\n") -> bytes:
        """The stream's bytes."""
        return b"".join(frame(payload, end) for payload in self.payloads(answer))

    def whole(self, answer: Answer) -> bytes:
        return json.dumps(self.body(answer), ensure_ascii=False).encode()


def frame(payload: Any, end: str = "\n") -> bytes:
    """One event of a stream; APIs that name their events (`type`) get an `event:` line as well."""
    if isinstance(payload, str):
        return f"data: {payload}{end}{end}".encode()
    named = f"event: {payload['type']}{end}" if isinstance(payload.get("type"), str) else ""
    return f"{named}data: {json.dumps(payload, ensure_ascii=False)}{end}{end}".encode()


def frames(payloads: Sequence[Any], end: str = "\n") -> bytes:
    return b"".join(frame(payload, end) for payload in payloads)


chat = Dialect(CHAT, say_chat.request, say_chat.payloads, say_chat.body, say_chat.PARTS)
responses = Dialect(RESPONSES, say_responses.request, say_responses.payloads, say_responses.body, say_responses.PARTS)
messages = Dialect(MESSAGES, say_messages.request, say_messages.payloads, say_messages.body, say_messages.PARTS)
ALL = {"chat": chat, "responses": responses, "messages": messages}
