"""A scripted OpenAI-compatible endpoint on a real socket, and what its answers are made of."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn

PATIENCE_S = 10.0


def eventually(condition: Callable[[], Any], what: str = "", timeout_s: float = PATIENCE_S) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {timeout_s} s: {what or condition}")
        time.sleep(0.005)
    return value


class Gate:
    """An event that threads and event loops can both wait for."""

    def __init__(self) -> None:
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._lock = threading.Lock()

    def open(self) -> None:
        with self._lock:
            if not self._opened.done():
                self._opened.set_result(None)

    @property
    def is_open(self) -> bool:
        return self._opened.done()

    def wait(self, timeout_s: float = PATIENCE_S) -> bool:
        try:
            self._opened.result(timeout_s)
        except concurrent.futures.TimeoutError:
            return False
        return True

    async def passed(self, timeout_s: float = 3.0) -> bool:
        waiter = asyncio.shield(asyncio.wrap_future(self._opened))
        return bool((await asyncio.wait({waiter}, timeout=timeout_s))[0])


# The endpoint's answers: a list of byte chunks, gates to wait for, and pauses in seconds

Step = bytes | Gate | float


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(body | more).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def say(text: str) -> bytes:
    return event({"role": "assistant", "content": text})


def call(name: str, arguments: Any = None, id: str = "call_1", index: int = 0, pieces: int = 2) -> list[bytes]:
    """A tool call as it streams: its name, then its arguments in pieces. A str is sent as it is."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    size = max(1, -(-len(text) // pieces))
    head = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    parts = [{"index": index, "function": {"arguments": text[i : i + size]}} for i in range(0, len(text), size)]
    return [event({"tool_calls": [part]}) for part in [head, *parts]]


def calls_end() -> list[bytes]:
    return [event({}, "tool_calls"), DONE]


def speaks(text: str = "All is well.") -> list[Step]:
    """An answer that ends without a call."""
    return [say(text), event({}, "stop"), DONE]


def asks_for(name: str, arguments: Any = None, *, after: Gate | None = None, id: str = "call_1") -> list[Step]:
    """An answer that speaks, waits for a gate, and calls one tool."""
    return [say("Let me look."), *([after] if after else []), *call(name, arguments, id), *calls_end()]


@dataclass
class Reply:
    """A whole answer; `steps` may also be produced one by one."""

    steps: Iterable[Step]
    status: int = 200
    headers: Sequence[tuple[bytes, bytes]] = ((b"content-type", b"text/event-stream"),)


@dataclass
class Exchange:
    """One request that the endpoint got, and what became of it."""

    path: str
    headers: dict[str, str]
    raw: bytes
    sent: list[bytes] = field(default_factory=list)
    answering: Gate = field(default_factory=Gate)
    finished: Gate = field(default_factory=Gate)
    cancelled: Gate = field(default_factory=Gate)

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


Script = Callable[[Exchange, int], Reply | Iterable[Step]]


class Serving:
    """An ASGI application on a loopback socket, in a thread."""

    def __init__(self, app: Any, port: int = 0) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._socket.listen(256)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(app, log_level="critical", interface="asgi3", timeout_graceful_shutdown=1)
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: self.server.run([self._socket]), daemon=True)
        self._thread.start()
        eventually(lambda: self.server.started, "the server is up")

    def stop(self) -> None:
        self.server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._socket.close()


class Endpoint:
    """A scripted OpenAI-compatible endpoint; `script` gets each request and its number and gives the answer."""

    def __init__(self) -> None:
        self.reset()
        self._serving = Serving(self._app)
        self.url = f"http://127.0.0.1:{self._serving.port}/v1"
        self.stop = self._serving.stop

    def reset(self) -> None:
        self.exchanges: list[Exchange] = []
        self.script: Script = lambda exchange, number: speaks()

    def answers(self, *replies: Reply | Iterable[Step]) -> None:
        """Give these answers in turn, then just speak."""
        self.script = lambda exchange, number: replies[number] if number < len(replies) else speaks()

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        raw, more = b"", True
        while more:
            message = await receive()
            raw, more = raw + message.get("body", b""), message.get("more_body", False)
        exchange = Exchange(scope["path"], {k.decode(): v.decode() for k, v in scope["headers"]}, raw)
        self.exchanges.append(exchange)
        reply = self.script(exchange, len(self.exchanges) - 1)
        answer = asyncio.ensure_future(self._answer(reply, exchange, send))
        gone = asyncio.ensure_future(_gone(receive))
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        (exchange.finished if answer.done() else exchange.cancelled).open()
        for task in (answer, gone):
            task.cancel()

    async def _answer(self, reply: Reply | Iterable[Step], exchange: Exchange, send: Any) -> None:
        reply = reply if isinstance(reply, Reply) else Reply(reply)
        await send({"type": "http.response.start", "status": reply.status, "headers": list(reply.headers)})
        for step in reply.steps:
            if isinstance(step, Gate):
                await step.passed()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                await send({"type": "http.response.body", "body": step, "more_body": True})
                exchange.sent.append(step)
            exchange.answering.open()
        await send({"type": "http.response.body", "body": b""})


async def _gone(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
