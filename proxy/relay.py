"""The relay: the endpoint's bytes to the agent, as they came, each as soon as it arrived.

Nothing here knows of speculation. A watcher on `receive()` notices that the client left, in every phase, and
lets go of the endpoint at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Protocol

from agentspec.errors import UpstreamError
from agentspec.protocols import Headers, Upstream, UpstreamRequest, UpstreamResponse
from agentspec.proxy.asgi import Message, Receive, Send, end_to_end, send_error

log = logging.getLogger("agentspec.relay")


class Observer(Protocol):
    """Sees a copy of what was relayed. Must not block; what it raises is logged and switches it off."""

    def opened(self, status: int, headers: Headers) -> None:
        """Status and headers are known."""
        ...

    def sending(self) -> None:
        """A chunk is about to go out and has not been seen yet."""
        ...

    def sent(self, chunk: bytes) -> None:
        """That chunk went out."""
        ...


class Silent:
    """An observer that sees nothing."""

    def opened(self, status: int, headers: Headers) -> None: ...

    def sending(self) -> None: ...

    def sent(self, chunk: bytes) -> None: ...


class _Guarded:
    """An observer whose faults stay with it."""

    def __init__(self, inner: Observer) -> None:
        self._inner: Observer = inner

    def opened(self, status: int, headers: Headers) -> None:
        try:
            self._inner.opened(status, headers)
        except Exception:
            self._switch_off()

    def sending(self) -> None:
        try:
            self._inner.sending()
        except Exception:
            self._switch_off()

    def sent(self, chunk: bytes) -> None:
        try:
            self._inner.sent(chunk)
        except Exception:
            self._switch_off()

    def _switch_off(self) -> None:
        log.exception("the observer of a turn failed; the turn goes on without it")
        self._inner = Silent()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a relayed request ended: the whole answer went out, or what went wrong (nothing: the client left)."""

    whole: bool
    note: str = ""


async def answer(
    upstream: Upstream, request: UpstreamRequest, receive: Receive, send: Send, observer: Observer | None = None
) -> Ended:
    """Relay a request. An endpoint that cannot be reached is told to the client in the API's error shape; one that
    breaks off in mid-answer leaves the answer unfinished, which breaks the client's connection off as well.
    """
    started = False

    async def noting(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    try:
        return Ended(whole=await relay(upstream, request, receive, noting, observer))
    except UpstreamError as error:
        if not started:
            await send_error(send, error)
        log.warning("%s: %s", error.code, error.message)
        return Ended(whole=False, note=f"{error.code}: {error.message}")


async def relay(
    upstream: Upstream, request: UpstreamRequest, receive: Receive, send: Send, observer: Observer | None = None
) -> bool:
    """Relay one request and its answer.

    Returns:
        False when the client left before the end.

    Raises:
        UpstreamError: the endpoint could not be reached; nothing has been sent to the client yet.
    """
    watcher = asyncio.ensure_future(_client_left(receive))
    pump = asyncio.ensure_future(_pump(upstream, request, send, _Guarded(observer or Silent())))
    try:
        await asyncio.wait({watcher, pump}, return_when=asyncio.FIRST_COMPLETED)
        if not pump.done():
            return False
        pump.result()
        return True
    finally:
        for task in (watcher, pump):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _pump(upstream: Upstream, request: UpstreamRequest, send: Send, observer: Observer) -> None:
    response = await upstream.open(request)
    try:
        headers = end_to_end(response.headers)
        observer.opened(response.status, headers)
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await _body(response, send, observer)
    finally:
        await response.close()


async def _body(response: UpstreamResponse, send: Send, observer: Observer) -> None:
    """The body. An endpoint that breaks off breaks our answer off as well: an honest end would be a lie."""
    async for chunk in response.chunks():
        observer.sending()
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        observer.sent(chunk)
    await send({"type": "http.response.body", "body": b""})
