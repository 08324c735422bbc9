"""The proxy's end of the channel: one WebSocket for each runtime, raw ASGI."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from agentspec import channel
from agentspec.errors import RequestError
from agentspec.protocols import Headers
from agentspec.proxy.asgi import Receive, Scope, Send
from agentspec.proxy.runtimes import RuntimeLink
from agentspec.proxy.turn import Deps

log = logging.getLogger("agentspec.channel")

_MIN_ID_LENGTH = 24


async def serve_channel(scope: Scope, receive: Receive, send: Send, deps: Deps) -> None:
    """A runtime's whole life: hello, messages, gone."""
    await receive()  # websocket.connect
    headers: Headers = scope["headers"]
    try:
        reason = deps.doors.browser_or_stranger(headers)
        tenant = deps.doors.tenant(headers)
    except RequestError as error:
        reason, tenant = error.message, ""
    if reason is not None:
        log.warning("a channel was refused: %s", reason)
        await send({"type": "websocket.close", "code": 4403, "reason": reason})
        return
    await send({"type": "websocket.accept"})
    outbox: asyncio.Queue[channel.FromProxy] = asyncio.Queue()
    sender = asyncio.create_task(_send_all(outbox, send))
    harmless = frozenset(deps.settings.harmless_tools)
    link = RuntimeLink("", tenant, outbox.put_nowait, harmless)
    try:
        while (message := await receive())["type"] == "websocket.receive":
            frame = message.get("text") or message.get("bytes") or ""
            _hear(frame, link, deps)
    finally:
        sender.cancel()
        deps.runtimes.remove(link)
        deps.desk.books.link_lost(link)
        log.info("runtime %s left", link.label)


def _hear(frame: str | bytes, link: RuntimeLink, deps: Deps) -> None:
    try:
        message = channel.decode_from_runtime(frame)
        if isinstance(message, channel.Hello):
            _welcome(message, link, deps)
        elif link.id:
            deps.desk.rounds.catch_up()  # an agent acts on what went out
            deps.desk.books.hear(link, message)
    except msgspec.DecodeError as error:
        log.warning("runtime %s sent what this version does not understand: %s", link.label, error)
    except Exception:  # whatever a message does to the books, the channel goes on
        log.exception("a message of runtime %s could not be handled", link.label)


def _welcome(hello: channel.Hello, link: RuntimeLink, deps: Deps) -> None:
    if len(hello.runtime) < _MIN_ID_LENGTH or (link.id and link.id != hello.runtime):
        log.warning("a runtime with a guessable or changing id is not served")
        return
    if hello.protocol != channel.PROTOCOL:
        log.warning(
            "a runtime of protocol %d is not served, ours is %d: update the older", hello.protocol, channel.PROTOCOL
        )
        return
    first = not link.id
    link.id = hello.runtime
    link.offer(hello.tools, prefixed=hello.prefixed)
    link.tells = hello.tells
    deps.runtimes.add(link)
    if first:
        log.info("runtime %s is here with %d tools", link.label, len(link.tools))
        link.send(channel.Welcome(deps.endpoints.direct_url))


async def _send_all(outbox: asyncio.Queue[channel.FromProxy], send: Send) -> None:
    while True:
        message = await outbox.get()
        try:
            frame = channel.encode(message)
        except (TypeError, ValueError) as error:
            log.warning("a message to a runtime cannot be written down: %s", error)
            continue
        try:
            await send({"type": "websocket.send", "text": frame})
        except Exception:  # the socket closed; the receiver notices as well
            return
