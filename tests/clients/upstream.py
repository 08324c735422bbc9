"""A scripted model endpoint that speaks Chat Completions, Responses and Messages on a real socket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from tests.clients import wire_chat, wire_messages, wire_responses
from tests.clients.script import Fault, Headers, Turn, openai_fault
from tests.clients.serving import Serving

_OWN_TO_A_CONNECTION = frozenset({"host", "accept-encoding", "connection"})
_NO_BODY = ("content-length", "0")
"""Says no more than its absence."""
_WIRES: dict[str, ModuleType] = {
    "/v1/chat/completions": wire_chat,
    "/v1/responses": wire_responses,
    "/v1/messages": wire_messages,
}

Told = tuple[int, Headers, bytes | Iterable[bytes]]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it reached the endpoint; what belongs to the connection is left out."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Upstream:
    """Plays the turns it was given, one per request, and remembers what it was asked."""

    def __init__(self) -> None:
        self.plays()
        self._serving = Serving(self._app)
        self.root = self._serving.root
        self.stop = self._serving.stop

    def plays(self, *turns: Turn, cut: int | None = None) -> None:
        """Start over with these turns; with `cut`, a stream arrives in pieces of so many bytes."""
        self.asked: list[Asked] = []
        self._turns = list(turns)
        self._cut = cut
        self._number = 0

    @property
    def left(self) -> int:
        """Turns that were not asked for."""
        return len(self._turns) - self._number

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        asked = _asked(scope, body)
        self.asked.append(asked)
        status, headers, told = self._answer(asked)
        raw = [(name.encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        try:
            for piece in [told] if isinstance(told, bytes) else told:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except ConnectionError:
            return  # an answer that is not completed closes its connection
        await send({"type": "http.response.body", "body": b""})

    def _answer(self, asked: Asked) -> Told:
        path = asked.path.partition("?")[0]
        if wire := _WIRES.get(path) if asked.method == "POST" else None:
            return self._generate(wire, asked)
        plain = _PLAIN.get((asked.method, path))
        return _fault(openai_fault(404, "not_found", f"no {path}"), 0) if plain is None else _whole(plain(asked), 0)

    def _generate(self, wire: ModuleType, asked: Asked) -> Told:
        number, self._number = self._number, self._number + 1
        if number >= len(self._turns):
            return _fault(openai_fault(400, "script_over", f"request {number} was not expected"), number)
        turn = self._turns[number]
        if isinstance(turn, Fault):
            return _fault(turn, number)
        request = asked.json
        if not request.get("stream"):
            return _whole(wire.whole(turn, number, request), number)
        kind = ("content-type", "text/event-stream; charset=utf-8")
        return (
            200,
            (kind, ("cache-control", "no-cache"), *_usual(number)),
            _recut(wire.events(turn, number, request), self._cut),
        )


def _asked(scope: Any, body: bytes) -> Asked:
    query = f"?{scope['query_string'].decode()}" if scope["query_string"] else ""
    named = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"])
    headers = sorted(field for field in named if field[0] not in _OWN_TO_A_CONNECTION and field != _NO_BODY)
    return Asked(scope["method"], scope["raw_path"].decode() + query, tuple(headers), body)


def _recut(events: Iterator[bytes], size: int | None) -> Iterator[bytes]:
    if size is None:
        return events
    data = b"".join(events)
    return (data[start : start + size] for start in range(0, len(data), size))


def _usual(number: int) -> Headers:
    """What hosted endpoints add to every answer."""
    return (
        ("date", "Thu, 09 Oct 2025 08:53:20 GMT"),
        ("server", "scripted"),
        ("x-request-id", f"req_openai_{number}"),
        ("request-id", f"req_anthropic_{number}"),
        ("openai-processing-ms", "12"),
        ("x-ratelimit-limit-requests", "500"),
        ("x-ratelimit-remaining-tokens", "29981"),
        ("x-ratelimit-reset-tokens", "38ms"),
        ("anthropic-ratelimit-tokens-remaining", "399000"),
        ("set-cookie", "__cf_bm=Zz1; path=/; HttpOnly"),
        ("set-cookie", "_cfuvid=Zz2; path=/; HttpOnly"),
    )


def _whole(body: Any, number: int) -> Told:
    raw = json.dumps(body, ensure_ascii=False, indent=2).encode()
    head = (("content-type", "application/json"), ("content-length", str(len(raw))))
    return 200, (*head, *_usual(number)), raw


def _fault(fault: Fault, number: int) -> Told:
    head = (("content-type", "application/json"), ("content-length", str(len(fault.body))))
    return fault.status, (*head, *_usual(number), *fault.headers), fault.body


def _tokens(asked: Asked) -> Any:
    return {"input_tokens": 100 + len(asked.json["messages"])}


def _models(_: Asked) -> Any:
    return {"object": "list", "data": [{"id": "scripted-1", "object": "model", "created": 1, "owned_by": "tests"}]}


def _stored(asked: Asked) -> Any:
    return wire_responses.whole((), 7, {"metadata": {"asked": asked.path}})


def _deleted(_: Asked) -> Any:
    return {"id": "resp_7", "object": "response", "deleted": True}


_PLAIN: dict[tuple[str, str], Callable[[Asked], Any]] = {
    ("POST", "/v1/messages/count_tokens"): _tokens,
    ("GET", "/v1/models"): _models,
    ("GET", "/v1/responses/resp_7"): _stored,
    ("DELETE", "/v1/responses/resp_7"): _deleted,
}


def bodies(asked: Sequence[Asked]) -> list[Any]:
    """The requests' JSON bodies."""
    return [one.json for one in asked]
