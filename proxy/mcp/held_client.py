"""The SDK's client of one server, in a task of its own: opened when first needed, and again after it has gone.

It speaks in the era of the handshake, as the agent's client does; to a server that refuses that, in the newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from agentspec.proxy.mcp.dialing import BackOff, dialed
from agentspec.proxy.mcp.servers import Server

log = logging.getLogger("agentspec.mcp")

_CONNECT_LIMIT_S = 30.0
_CLOSE_LIMIT_S = 6.0
_PING_LIMIT_S = 2.0


class HeldClient:
    """Keeps a client open. `greet` is called with each new one before it is used; `options` go to the SDK's client."""

    def __init__(self, server: Server, greet: Callable[[Client], Awaitable[None]], **options: Any) -> None:
        self._server = server
        self._greet = greet
        self._options = options
        self._opening = asyncio.Lock()
        self._back_off = BackOff()
        self._life: asyncio.Task[None] | None = None
        self._leave = asyncio.Event()
        self.now: Client | None = None

    async def connected(self) -> Client:
        """The client; connects where it is not.

        Raises:
            MCPError: the server cannot be reached.
        """
        async with self._opening:
            if self.now is None:
                if self._back_off.left_s:
                    raise self._error(f"is away, and is tried again in {self._back_off.left_s:.1f} s")
                try:
                    client = await self._open("legacy")
                    await self._greet(client)
                except Exception as error:
                    await self._let_go()
                    self._back_off.fault()
                    raise self._error(f"cannot be reached: {shown(error)}") from error
                self.now = client
            return self.now

    @property
    def starting(self) -> bool:
        """Whether it is being connected right now."""
        return self.now is None and self._opening.locked()

    async def close(self) -> None:
        """Disconnect; a server that was started is stopped."""
        async with self._opening:
            await self._let_go()

    def well(self) -> None:
        """It has answered."""
        self._back_off.well()

    async def failed(self, client: Client, error: Exception) -> MCPError:
        """What a failed request means for the agent: the server's own error, or that the server has gone."""
        suspicious = not isinstance(error, MCPError) or error.code in (types.CONNECTION_CLOSED, types.INVALID_REQUEST)
        if suspicious and not await _answers(client):
            async with self._opening:
                if self.now is client:
                    self._back_off.fault()
                    await self._let_go()
            return self._error("has gone; the next call starts it again")
        return error if isinstance(error, MCPError) else MCPError(types.INTERNAL_ERROR, shown(error))

    async def _open(self, mode: str) -> Client:
        self._leave = asyncio.Event()
        opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        opened.add_done_callback(lambda done: done.cancelled() or done.exception())  # whoever waited may have left
        self._life = asyncio.create_task(self._live(mode, opened, self._leave), name=f"mcp-{self._server.name}")
        try:
            async with asyncio.timeout(_CONNECT_LIMIT_S):
                return await asyncio.shield(opened)
        except MCPError as error:
            if mode != "legacy" or error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
        return await self._open("auto")

    async def _live(self, mode: str, opened: asyncio.Future[Client], leave: asyncio.Event) -> None:
        """Enter the client and leave it in one task, as its task groups want it."""
        try:
            async with Client(dialed(self._server.entry), mode=mode, cache=None, **self._options) as client:
                opened.set_result(client)
                await leave.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_first_of(error))
            elif isinstance(error, asyncio.CancelledError):
                raise
            else:
                log.info("%s: its connection ended: %s", self._server.name, shown(error))

    async def _let_go(self) -> None:
        opened, self.now = self.now is not None, None
        life, self._life = self._life, None
        self._leave.set()
        if life is not None and not life.done():
            if not opened:
                life.cancel()
            await asyncio.wait({life}, timeout=_CLOSE_LIMIT_S)
            life.cancel()

    def _error(self, what: str) -> MCPError:
        return MCPError(types.CONNECTION_CLOSED, f"the MCP server {self._server.name!r} {what}")


def is_modern(client: Client) -> bool:
    """Whether it speaks the era without handshake."""
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS


async def _answers(client: Client) -> bool:
    try:
        async with asyncio.timeout(_PING_LIMIT_S):
            await (client.session.list_tools() if is_modern(client) else client.session.send_ping())
    except MCPError as error:
        return error.code == types.METHOD_NOT_FOUND
    except Exception:
        return False
    return True


def _first_of(error: BaseException) -> Exception:
    """The first fault of a task group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, Exception) else ConnectionError("the connection was given up")


def shown(error: BaseException) -> str:
    """A fault in one line."""
    first = _first_of(error)
    return str(first) or type(first).__name__
