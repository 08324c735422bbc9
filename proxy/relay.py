"""The relay: the endpoint's bytes to the agent, as they came, each as soon as it arrived.

Nothing here knows of speculation. A watcher on `receive()` notices that the client left, in every phase, and
lets go of the endpoint at once.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from agentspec.errors import UpstreamError
from agentspec.protocols import Headers, Upstream, UpstreamRequest, UpstreamResponse
from agentspec.proxy.asgi import (
    ChunkWriter,
    ClientGone,
    Hangup,
    Message,
    Receive,
    Send,
    end_to_end,
    header,
    send_error,
)
from agentspec.wire.apis import WireApi

log = logging.getLogger("agentspec.relay")


class Observer(Protocol):
    """Sees a copy of what was relayed. Must not block; what it raises is logged and switches it off."""

    def opened(self, status: int, headers: Headers) -> None:
        """Status and headers are known."""
        ...

    def relayed(self, chunk: bytes) -> None:
        """A chunk goes out. Whatever takes time with it has to wait until it has gone."""
        ...


class Silent:
    """An observer that sees nothing."""

    def opened(self, status: int, headers: Headers) -> None: ...

    def relayed(self, chunk: bytes) -> None: ...


class _Guarded:
    """An observer whose faults stay with it."""

    def __init__(self, inner: Observer) -> None:
        self._inner: Observer = inner

    def opened(self, status: int, headers: Headers) -> None:
        try:
            self._inner.opened(status, headers)
        except Exception:
            self._switch_off()

    def relayed(self, chunk: bytes) -> None:
        try:
            self._inner.relayed(chunk)
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


@dataclass(frozen=True, slots=True)
class Client:
    """Who asked: where its messages come from, where ours go, the API that it speaks."""

    receive: Receive
    send: Send
    api: WireApi
    hangup: Hangup | None = None
    """Tells at once that it left; without it `receive` is watched, which takes a task."""
    writer: ChunkWriter | None = None
    """Takes chunks without waiting; without it each is sent."""


class ClientWatch:
    """Inside its block, the client's leaving cancels what is going on; the block then ends quietly, `left` is set."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._over = False
        self.left = False

    async def __aenter__(self) -> ClientWatch:
        self._serving = asyncio.current_task()
        self._hangup = self._client.hangup
        if self._hangup is not None:
            self._hangup.tell(self._leave)
        else:
            self._watcher = asyncio.ensure_future(self._watch())
        return self

    async def _watch(self) -> None:
        while (await self._client.receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if self._serving is not None and not self._over:
            self.left = True
            self._serving.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._over = True
        if self._hangup is not None:
            self._hangup.tell(None)
        else:
            self._watcher.cancel()
        if not (self.left and kind is asyncio.CancelledError and self._serving is not None):
            return False
        return self._serving.uncancel() == 0  # otherwise somebody else cancelled as well: the server is stopping


async def answer(
    upstream: Upstream, request: UpstreamRequest, client: Client, observer: Observer | None = None
) -> Ended:
    """Relay a request. An endpoint that cannot be reached is told to the client in the API's error shape; one that
    breaks off in mid-answer leaves the answer unfinished, which breaks the client's connection off as well.
    """
    relay = _Relay(client, _Guarded(observer) if observer is not None else Silent())
    watch = ClientWatch(client)
    try:
        async with watch:
            await relay.run(upstream, request)
    except ClientGone:
        return Ended(whole=False)
    except UpstreamError as error:
        if not relay.started:
            await send_error(client.send, error, client.api)
        log.warning("%s: %s", error.code, error.message)
        return Ended(whole=False, note=f"{error.code}: {error.message}")
    return Ended(whole=relay.whole)


class _Relay:
    """One request and its answer, on their way."""

    def __init__(self, client: Client, observer: Observer) -> None:
        self._send = client.send
        self._writer = client.writer
        self._observer = observer
        self.started = False
        self.whole = False

    async def run(self, upstream: Upstream, request: UpstreamRequest) -> None:
        response = await upstream.open(request)
        try:
            headers = end_to_end(response.headers)
            self._observer.opened(response.status, headers)
            self.started = True
            await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
            await self._body(response, _announced_bytes(headers))
            self.whole = True
            await asyncio.sleep(0)  # the event loop writes what was sent when its tasks have paused
        finally:
            await response.close()

    async def _body(self, response: UpstreamResponse, awaited_bytes: int | None) -> None:
        """The body. An endpoint that breaks off breaks our answer off as well: an honest end would be a lie."""
        writer = self._writer if awaited_bytes is None else None
        if writer is not None and writer.chunked:
            await self._pour(response, writer)
            return
        async for chunk in response.chunks():
            if awaited_bytes is not None:
                awaited_bytes -= len(chunk)
            self._observer.relayed(chunk)
            await self._send(_body_message(chunk, more=awaited_bytes != 0))
        if awaited_bytes != 0:
            await self._send(_body_message(b"", more=False))

    async def _pour(self, response: UpstreamResponse, writer: ChunkWriter) -> None:
        """A body of unknown length, each chunk in the step in which it came."""

        def take(chunk: bytes) -> bool:
            self._observer.relayed(chunk)
            try:
                return writer.write(chunk)
            except (RuntimeError, OSError) as error:
                raise ClientGone from error

        while not await response.pour(take):
            await self._send(_body_message(b"", more=True))  # waits until the client has read some
        await self._send(_body_message(b"", more=False))


def _body_message(chunk: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": more}


def _announced_bytes(headers: Headers) -> int | None:
    """How long the body will be, where that is told: then its last byte needs no message of its own."""
    told = header(headers, b"content-length")
    return int(told) if told is not None and told.isdigit() and int(told) > 0 else None
