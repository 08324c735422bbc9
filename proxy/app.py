"""The ASGI application: who serves what.

/v1/chat/completions   a turn (also under /r/RUNTIME/v1)
/v1/*                  passed through
/agentspec/channel     a runtime's WebSocket
/agentspec/status      counters, as JSON
/healthz               alive
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from agentspec import channel
from agentspec.errors import ApiError, RequestError
from agentspec.proxy.asgi import (
    ClientGone,
    Receive,
    Scope,
    Send,
    foreign_host,
    header,
    read_body,
    send_error,
    send_json,
)
from agentspec.proxy.channel_server import serve_channel
from agentspec.proxy.relay import answer
from agentspec.proxy.turn import Deps, hold_reads, serve_turn, upstream_request

log = logging.getLogger("agentspec.app")

_RUNTIME_PREFIX = "/r/"
_SWEEP_S = 5.0
_MAY_HOLD_CALLS = frozenset({"/v1/responses", "/v1/messages"})
"""APIs whose answers hold tool calls that this version does not read."""


class App:
    """The proxy as an ASGI application; `close` is awaited at shutdown."""

    def __init__(self, deps: Deps, close: Callable[[], Awaitable[None]]) -> None:
        self._deps = deps
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._route(scope, receive, send)
        except ApiError as error:
            await send_error(send, error)
        except ClientGone:
            pass

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime, path = _split(scope["path"])
        self._guard_our_key(scope)
        if path == "/v1/chat/completions" and scope["method"] == "POST":
            await serve_turn(scope, receive, send, self._deps, runtime)
        elif path.startswith("/v1/"):
            if path in _MAY_HOLD_CALLS and scope["method"] == "POST":
                hold_reads(self._deps, runtime or header(scope["headers"], b"x-agentspec-runtime"))
            await self._pass_through(scope, receive, send)
        elif path in ("/healthz", "/health"):
            await send_json(send, 200, {"status": "ok"})
        elif path == "/agentspec/status":
            await send_json(send, 200, self._status())
        else:
            raise RequestError(
                f"there is no {path}; the API is under /v1 (set base_url to http://HOST:PORT/v1)",
                code="not_found",
                status=404,
            )

    def _guard_our_key(self, scope: Scope) -> None:
        """With a key of ours for the endpoint, no web page may spend it.

        Raises:
            RequestError: the request comes from a browser page, or under a borrowed name.
        """
        if self._deps.settings.upstream_key is None:
            return
        if header(scope["headers"], b"origin") is not None or foreign_host(scope["headers"]) is not None:
            message = (
                "with upstream_key set, requests of browser pages and under other names than localhost are refused"
            )
            raise RequestError(message, code="forbidden", status=403)

    async def _pass_through(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive, self._deps.settings.max_body_bytes)
        request = upstream_request(scope, scope["headers"], body, self._deps.settings)
        await answer(self._deps.upstream, request, receive, send)

    def _status(self) -> dict[str, object]:
        books = self._deps.desk.books
        return {"outcomes": books.counts, "faults": books.faults, "runtimes": len(self._deps.runtimes)}

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == channel.PATH:
            await serve_channel(scope, receive, send, self._deps)
            return
        await receive()
        await send({"type": "websocket.close", "code": 4404, "reason": "use HTTP"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        sweeper: asyncio.Task[None] | None = None
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                sweeper = asyncio.create_task(self._sweep())
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                if sweeper is not None:
                    sweeper.cancel()
                await self._close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            with contextlib.suppress(Exception):
                self._deps.desk.books.expire()


def _split(path: str) -> tuple[str | None, str]:
    """The runtime id in a path `/r/ID/v1/…`, if any, and the rest of the path."""
    if not path.startswith(_RUNTIME_PREFIX):
        return None, path
    runtime, _, rest = path.removeprefix(_RUNTIME_PREFIX).partition("/")
    return runtime, f"/{rest}"
