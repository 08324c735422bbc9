"""The way back to the agent's client: what its servers ask of it, and what they tell it."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from pydantic import BaseModel

Context = ServerRequestContext[Any, Any]
ResultT = TypeVar("ResultT", bound=BaseModel)

_HANDSHAKE_LIMIT_S = 5.0
_PROGRESS = "progressToken"
_OF_ONE_REQUEST = frozenset({"traceparent", "tracestate", "baggage", "claudecode/toolUseId"})
"""Keys of `_meta` that name one request and say nothing of its result."""


def connection_of(ctx: Context) -> Connection:
    """The agent's connection, which outlives its requests; the SDK keeps it behind the request's session."""
    return ctx.session._connection


@dataclass(frozen=True, slots=True)
class RealCall:
    """A request of the agent's that is being answered.

    Attributes:
        meta: its `_meta`, as it goes on to the server.
        wants_progress: whether the agent asked to be told how far it is.
    """

    ctx: Context
    meta: Mapping[str, Any]
    wants_progress: bool

    @classmethod
    def of(cls, ctx: Context) -> RealCall:
        given = (ctx.params or {}).get("_meta")
        meta = dict(given) if isinstance(given, Mapping) else {}
        return cls(ctx, meta, meta.pop(_PROGRESS, None) is not None)

    def own_meta(self, of_the_tool: Mapping[str, Any]) -> dict[str, Any]:
        """What of its `_meta` may change its result: two calls that differ here are two calls.

        `of_the_tool`: the listed tool's own `_meta`, which some clients send back with each call.
        """
        echoed = {key for key, value in of_the_tool.items() if self.meta.get(key) == value}
        return {key: value for key, value in self.meta.items() if key not in _OF_ONE_REQUEST | echoed}

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the agent how far the server is."""
        await self.ctx.session.report_progress(progress, total, message)


CURRENT: contextvars.ContextVar[RealCall | None] = contextvars.ContextVar("agentspec_mcp_call", default=None)
"""The agent's request that the code which asks is part of; of a run ahead, the last one that it takes after."""


class AgentSide:
    """One agent's client, for as long as it is connected."""

    def __init__(self, ctx: Context, params: types.InitializeRequestParams) -> None:
        self._session: ServerSession = ctx.session
        self._initialized: anyio.Event = connection_of(ctx).initialized
        self.capabilities = params.capabilities
        self.info = params.client_info

    async def ask(
        self, request: types.ServerRequest, result: type[ResultT], during: RealCall | None
    ) -> ResultT | types.ErrorData:
        """Put a server's question to the agent's client, on the stream of the call that it belongs to."""
        with anyio.move_on_after(_HANDSHAKE_LIMIT_S):  # before its handshake is over a client answers nothing
            await self._initialized.wait()
        session = during.ctx.session if during is not None else self._session
        related = ServerMessageMetadata(related_request_id=during.ctx.request_id) if during is not None else None
        try:
            return await session.send_request(request, result, metadata=related)
        except MCPError as error:
            return error.error

    async def tell(self, notification: types.ServerNotification, during: RealCall | None = None) -> None:
        """Pass a server's notification on."""
        if during is not None:
            await during.ctx.session.send_notification(notification, during.ctx.request_id)
        else:
            await self._session.send_notification(notification)
