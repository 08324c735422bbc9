"""The recorded endpoint: an OpenAI-compatible server whose model is a recording, as a raw ASGI application.

What it will not do is answer a probe: a probe asks what the model would say from here, and a recording knows only what
was said in the end. Anything that forces or bends the answer is refused with `cannot_probe_a_recording`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.errors import RequestError
from agentspec.proxy.replay.deltas import (
    Delta,
    completion,
    completion_tokens,
    deltas,
    envelope,
    finish_reason,
    usage,
)
from agentspec.proxy.replay.matching import Index, Point
from agentspec.proxy.replay.recordings import Recording

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class Pace:
    """How fast the recorded model speaks.

    Args:
        tokens_per_s: tokens (of four characters) per second; `inf` sends all at once.
        ttft_ms: time to the first token.
    """

    tokens_per_s: float = 200.0
    ttft_ms: float = 200.0

    def due(self, tokens: int) -> float:
        """Seconds from the request until so many tokens have been made."""
        return self.ttft_ms / 1000 + tokens / self.tokens_per_s


class StreamOptions(msgspec.Struct, frozen=True):
    """`stream_options` of a request."""

    include_usage: bool = False


class ChatRequest(msgspec.Struct, frozen=True):
    """The part of a chat-completions request that a recording can heed."""

    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tool_choice: Any = None
    logprobs: bool | None = False
    continue_final_message: bool | None = False
    add_generation_prompt: bool | None = True

    @property
    def probes(self) -> bool:
        """Whether this asks for more than what was said in the end."""
        bent = self.continue_final_message or self.add_generation_prompt is False
        forced = self.tool_choice not in (None, "auto")
        return bool(bent or forced or self.logprobs or (self.n or 1) > 1)


class RecordedEndpoint:
    """The ASGI application; keeps nothing between requests."""

    def __init__(self, recordings: Iterable[Recording], pace: Pace | None = None) -> None:
        self._index = Index(recordings)
        self._pace = pace or Pace()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "http":
            try:
                await self._route(scope, receive, send)
            except RequestError as error:
                await _send_json(send, error.body(), error.status)

    async def _route(self, scope: Message, receive: Receive, send: Send) -> None:
        match scope["method"], scope["path"].removeprefix("/v1"):
            case "POST", "/chat/completions":
                await self._chat(receive, send)
            case "GET", "/models":
                await _send_json(send, self._models())
            case "POST", "/completions":
                raise _cannot_probe()
            case method, _:
                raise RequestError(
                    f"a recording has no {method} {scope['path']}; it has POST /v1/chat/completions and GET /v1/models",
                    code="not_found",
                    status=404,
                )

    def _models(self) -> Message:
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "agentspec"} for name in self._index.models]
        return {"object": "list", "data": listed}

    async def _chat(self, receive: Receive, send: Send) -> None:
        started = asyncio.get_running_loop().time()
        request = _decoded(await _body(receive))
        if request.probes:
            raise _cannot_probe()
        point = self._index.find(request.model, request.messages)
        clock = _Clock(started, self._pace, receive)
        try:
            if request.stream:
                await _stream(point, request, clock, send)
            elif await clock.reached(completion_tokens(point.answer)):
                await _send_json(send, completion(point, request.messages))
        finally:
            clock.stop()


class _Clock:
    """Waits until tokens are due, and no longer than the client stays."""

    def __init__(self, started: float, pace: Pace, receive: Receive) -> None:
        self._started = started
        self._pace = pace
        self._gone = asyncio.ensure_future(_disconnected(receive))

    async def reached(self, tokens: int) -> bool:
        """Wait until that many tokens have been made; False when the client left."""
        wait = self._started + self._pace.due(tokens) - asyncio.get_running_loop().time()
        if wait > 0:
            await asyncio.wait({self._gone}, timeout=wait)
        return not self._gone.done()

    def stop(self) -> None:
        self._gone.cancel()


async def _stream(point: Point, request: ChatRequest, clock: _Clock, send: Send) -> None:
    chunk = envelope(point, "chat.completion.chunk")
    opened = False
    for delta in (*deltas(point.answer), Delta(completion_tokens(point.answer), {})):
        if not await clock.reached(delta.after_tokens):
            return
        if not opened:
            opened = True
            await _send_head(send, 200, b"text/event-stream; charset=utf-8")
        reason = None if delta.body else finish_reason(point.answer)
        choice = {"index": 0, "delta": delta.body, "logprobs": None, "finish_reason": reason}
        await _send_event(send, {**chunk, "choices": [choice]})
    if request.stream_options and request.stream_options.include_usage:
        await _send_event(send, {**chunk, "choices": [], "usage": usage(point.answer, request.messages)})
    await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})


def _decoded(body: bytes) -> ChatRequest:
    try:
        return msgspec.json.decode(body, type=ChatRequest)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request has no known shape: {error}") from error
    except msgspec.DecodeError as error:
        raise RequestError(f"the body is no JSON: {error}", code="invalid_json") from error


def _cannot_probe() -> RequestError:
    return RequestError(
        "a recording cannot answer a probe (continue_final_message, a forced tool_choice, logprobs, n > 1 or "
        "/completions): it knows only what the model said in the end",
        code="cannot_probe_a_recording",
    )


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_event(send: Send, data: Message) -> None:
    event = b"data: " + msgspec.json.encode(data) + b"\n\n"
    await send({"type": "http.response.body", "body": event, "more_body": True})


async def _send_json(send: Send, data: Message, status: int = 200) -> None:
    await _send_head(send, status, b"application/json")
    await send({"type": "http.response.body", "body": msgspec.json.encode(data)})


async def _send_head(send: Send, status: int, content_type: bytes) -> None:
    headers = [(b"content-type", content_type), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": status, "headers": headers})


async def _lifespan(receive: Receive, send: Send) -> None:
    for phase in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{phase}.complete"})
