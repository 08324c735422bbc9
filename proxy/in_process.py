"""An ASGI application without a server: HTTP exchanges for a client's transport.

The application runs on its own loop in its own thread; clients block or await elsewhere. Bodies stream, a client that
closes is a client that left, and a slow reader makes the application wait.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

import httpx

from agentspec.proxy.app import App
from agentspec.proxy.asgi import Message, Scope

Running = Callable[[], tuple[App, asyncio.AbstractEventLoop]]

_AHEAD = 16
"""Messages that the application may be ahead of its reader."""


class Exchange:
    """One request and its answer. The methods without `async` are for the client's side, from any thread."""

    def __init__(self, app: App, loop: asyncio.AbstractEventLoop, request: Any, body: bytes) -> None:
        self._app = app
        self._loop = loop
        self._scope = _scope(request)
        self._body: bytes | None = body
        self._answer: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._arrived: Callable[[], None] = lambda: None
        self._ahead = asyncio.Semaphore(_AHEAD)
        self._left = asyncio.Event()

    def start(self, arrived: Callable[[], None] = lambda: None) -> None:
        """Hand the request over; `arrived` is called, in the application's thread, for every message of the answer."""
        self._arrived = arrived
        asyncio.run_coroutine_threadsafe(self._run(), self._loop)

    async def _run(self) -> None:
        try:
            await self._app(self._scope, self._receive, self._send)
        finally:
            self._put(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        await self._ahead.acquire()
        if self._left.is_set():
            raise ConnectionError("the client left")
        self._put(message)

    def _put(self, message: Message | None) -> None:
        self._answer.put(message)
        self._arrived()

    def next(self, timeout_s: float | None = None, *, wait: bool = True) -> Message | None:
        """The answer's next message, None behind its last.

        Raises:
            queue.Empty: none came in time; without `wait`: none is here yet.
        """
        message = self._answer.get(wait, timeout_s)
        if message is not None:
            self._loop.call_soon_threadsafe(self._ahead.release)
        return message

    def leave(self) -> None:
        """The client is not interested any more."""
        self._loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._left.set()
        self._ahead.release()  # whoever waits to send sees that nobody reads


def _scope(request: Any) -> Scope:
    path = request.url.raw_path.partition(b"?")[0]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": request.url.path,
        "raw_path": path,
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": ("localhost", None),
        "client": ("localhost", 0),
    }


def _read_timeout_s(request: Any) -> float | None:
    timeout: float | None = request.extensions.get("timeout", {}).get("read")
    return timeout


class _Body:
    """What both kinds of answer's body share."""

    def __init__(self, http: Any, exchange: Exchange, request: Any) -> None:
        self._http = http
        self._exchange = exchange
        self._request = request
        self._over = False

    def _part(self, message: Message | None) -> bytes:
        """A message's bytes.

        Raises:
            RemoteProtocolError (of the library): the answer was broken off.
        """
        if message is None:
            raise self._http.RemoteProtocolError("the endpoint broke its answer off", request=self._request)
        self._over = not message.get("more_body", False)
        part: bytes = message.get("body", b"")
        return part

    def _too_late(self) -> Exception:
        late: Exception = self._http.ReadTimeout("the endpoint fell silent", request=self._request)
        return late

    def _response(self, head: Message | None, stream: Any) -> Any:
        if head is None:
            raise self._http.RemoteProtocolError("the engine gave no answer", request=self._request)
        return self._http.Response(head["status"], headers=head["headers"], stream=stream, request=self._request)


class _SyncBody(_Body):
    def read(self) -> Message | None:
        try:
            return self._exchange.next(_read_timeout_s(self._request))
        except queue.Empty:
            raise self._too_late() from None

    def __iter__(self) -> Iterator[bytes]:
        while not self._over:
            if part := self._part(self.read()):
                yield part

    def close(self) -> None:
        self._exchange.leave()


class _AsyncBody(_Body):
    """Read on the client's loop, whichever it is; only asyncio's has a wake-up across threads of its own."""

    def __init__(self, http: Any, exchange: Exchange, request: Any) -> None:
        super().__init__(http, exchange, request)
        self._here = asyncio.Event()
        self._client = asyncio.get_running_loop()

    def wake(self) -> None:
        """Called in the engine's thread when a message has arrived."""
        try:
            self._client.call_soon_threadsafe(self._here.set)
        except RuntimeError:  # the client's loop has closed: it has left
            self._exchange.leave()

    async def read(self) -> Message | None:
        while True:
            self._here.clear()
            try:
                return self._exchange.next(wait=False)
            except queue.Empty:
                pass
            try:
                async with asyncio.timeout(_read_timeout_s(self._request)):
                    await self._here.wait()
            except TimeoutError:
                raise self._too_late() from None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while not self._over:
            if part := self._part(await self.read()):
                yield part

    async def aclose(self) -> None:
        self._exchange.leave()


def _engine_of(running: Running, http: Any, request: Any) -> tuple[App, asyncio.AbstractEventLoop]:
    """The engine.

    Raises:
        ConnectError (of the library): it has been closed.
    """
    try:
        return running()
    except ConnectionError as error:
        raise http.ConnectError(str(error), request=request) from error


class SyncEngineWay:
    """A transport to the engine in this process, for clients that block."""

    http: Any = httpx

    def __init__(self, running: Running) -> None:
        self._running = running

    def handle_request(self, request: Any) -> Any:
        """Have the engine answer."""
        exchange = Exchange(*_engine_of(self._running, self.http, request), request, b"".join(request.stream))
        body = _stream(_SyncBody, self.http)(self.http, exchange, request)
        exchange.start()
        try:
            return body._response(body.read(), body)
        except BaseException:
            exchange.leave()
            raise


class AsyncEngineWay:
    """The same for asyncio."""

    http: Any = httpx

    def __init__(self, running: Running) -> None:
        self._running = running

    async def handle_async_request(self, request: Any) -> Any:
        """Have the engine answer."""
        sent = b"".join([part async for part in request.stream])
        exchange = Exchange(*_engine_of(self._running, self.http, request), request, sent)
        body = _stream(_AsyncBody, self.http)(self.http, exchange, request)
        exchange.start(body.wake)
        try:
            return body._response(await body.read(), body)
        except BaseException:
            exchange.leave()
            raise


@cache
def _stream(body: type[_Body], http: Any) -> Any:
    """The body as a stream of this library's."""
    base = http.SyncByteStream if body is _SyncBody else http.AsyncByteStream
    return type(body.__name__, (body, base), {})
