"""The MCP server that the agent's client sees. It has no tools of its own: all that it lists and does is its servers'.

It speaks the era of the handshake, in which a connection is a session: a session is what tells two agents apart.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import mcp_types as types
from mcp.server import Server as McpServer
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel

from agentspec import __version__
from agentspec.proxy.mcp import listings
from agentspec.proxy.mcp.agent_side import AgentSide, Context, RealCall, connection_of
from agentspec.proxy.mcp.servers import Server
from agentspec.proxy.mcp.sessions import AgentSession, ProxyAt, runtime_id_of

_SESSION = "agentspec.session"

ParamsT = TypeVar("ParamsT", bound=BaseModel)
Handler = Callable[["Gateway", AgentSession, Context, ParamsT], Awaitable[HandlerResult]]


class Gateway:
    """All sessions of one gateway."""

    def __init__(self, servers: Sequence[Server], proxy: ProxyAt) -> None:
        self._servers = servers
        self._proxy = proxy
        self._sessions: set[AgentSession] = set()
        self.server: McpServer[Any] = McpServer("agentspec", version=__version__)
        self.server.middleware = [self._opens_a_session]
        for method, (params, handler) in _HANDLERS.items():
            self.server.add_request_handler(method, params, functools.partial(self._handle, handler))
        changed = "notifications/roots/list_changed"
        self.server.add_notification_handler(changed, types.NotificationParams, self._roots_changed)

    async def close(self) -> None:
        """End all sessions."""
        for session in list(self._sessions):
            await self._end(session)

    async def _end(self, session: AgentSession) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            await session.close()

    async def _opens_a_session(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Around every message: the handshake connects the servers, and answers with what they can do."""
        if ctx.method != "initialize":
            return await call_next(ctx)
        result = await call_next(ctx)  # refuses what is no handshake
        connection = connection_of(ctx)
        if _SESSION in connection.state:
            raise MCPError(types.INVALID_REQUEST, "this session is open already")
        agent = AgentSide(ctx, types.InitializeRequestParams.model_validate(ctx.params or {}, by_name=False))
        session = AgentSession(self._servers, self._proxy, agent, runtime_id_of(ctx))
        self._sessions.add(session)
        connection.state[_SESSION] = session
        connection.exit_stack.push_async_callback(self._end, session)
        await session.open()
        return {**dict(result if isinstance(result, dict) else {}), **_introduction(session)}

    async def _handle(self, handler: Handler[Any], ctx: Context, params: Any) -> HandlerResult:
        session: AgentSession = connection_of(ctx).state[_SESSION]
        return await handler(self, session, ctx, params)

    async def _roots_changed(self, ctx: Context, params: types.NotificationParams) -> None:
        session: AgentSession = connection_of(ctx).state[_SESSION]
        for upstream in session.upstreams:
            await upstream.roots_changed()


def _introduction(session: AgentSession) -> dict[str, Any]:
    """What the servers can do together, and how they want to be used. Of one that is away everything is expected."""
    clients = [one.client for one in session.upstreams]
    known = [client.server_capabilities for client in clients if client is not None]
    everything = len(known) < len(clients)

    def some(name: str) -> bool:
        return everything or any(getattr(can, name) is not None for can in known)

    subscribe = any(can.resources is not None and can.resources.subscribe for can in known)
    can = types.ServerCapabilities(
        tools=types.ToolsCapability(list_changed=True) if some("tools") else None,
        prompts=types.PromptsCapability(list_changed=True) if some("prompts") else None,
        resources=types.ResourcesCapability(subscribe=subscribe, list_changed=True) if some("resources") else None,
        logging=types.LoggingCapability() if some("logging") else None,
        completions=types.CompletionsCapability() if some("completions") else None,
    )
    told = {"capabilities": can.model_dump(by_alias=True, mode="json", exclude_none=True)}
    texts = [
        client.instructions if len(clients) == 1 else f"{upstream.name}: {client.instructions}"
        for upstream, client in zip(session.upstreams, clients, strict=True)
        if client is not None and client.instructions
    ]
    return told | ({"instructions": "\n\n".join(texts)} if texts else {})


async def _list_tools(_: Gateway, session: AgentSession, ctx: Context, params: types.PaginatedRequestParams) -> Any:
    return await listings.tools(session, params.cursor)


async def _list_prompts(_: Gateway, session: AgentSession, ctx: Context, params: types.PaginatedRequestParams) -> Any:
    return await listings.prompts(session, params.cursor)


async def _list_resources(_: Gateway, session: AgentSession, ctx: Context, params: types.PaginatedRequestParams) -> Any:
    return await listings.resources(session, params.cursor)


async def _list_templates(_: Gateway, session: AgentSession, ctx: Context, params: types.PaginatedRequestParams) -> Any:
    return await listings.templates(session, params.cursor)


async def _call_tool(_: Gateway, session: AgentSession, ctx: Context, params: types.CallToolRequestParams) -> Any:
    return await session.call(ctx, params)


async def _get_prompt(_: Gateway, session: AgentSession, ctx: Context, params: types.GetPromptRequestParams) -> Any:
    upstream, name = session.meant(params.name)
    return await upstream.request(lambda client: client.get_prompt(name, params.arguments), RealCall.of(ctx))


async def _read(_: Gateway, session: AgentSession, ctx: Context, params: types.ReadResourceRequestParams) -> Any:
    upstream = await listings.home_of(session, params.uri)
    return await upstream.request(lambda client: client.read_resource(params.uri), RealCall.of(ctx))


async def _subscribe(_: Gateway, session: AgentSession, ctx: Context, params: types.SubscribeRequestParams) -> Any:
    await (await listings.home_of(session, params.uri)).subscribe(params.uri, True)
    return types.EmptyResult()


async def _unsubscribe(_: Gateway, session: AgentSession, ctx: Context, params: types.UnsubscribeRequestParams) -> Any:
    await (await listings.home_of(session, params.uri)).subscribe(params.uri, False)
    return types.EmptyResult()


async def _complete(_: Gateway, session: AgentSession, ctx: Context, params: types.CompleteRequestParams) -> Any:
    ref = params.ref
    if isinstance(ref, types.PromptReference):
        upstream, name = session.meant(ref.name)
        ref = ref.model_copy(update={"name": name})
    else:
        upstream = await listings.home_of(session, ref.uri)
    sent = types.CompleteRequest(params=params.model_copy(update={"ref": ref, "meta": None}))
    return await upstream.request(lambda client: client.session.send_request(sent, types.CompleteResult))


async def _set_level(_: Gateway, session: AgentSession, ctx: Context, params: types.SetLevelRequestParams) -> Any:
    for upstream in session.upstreams:
        await upstream.set_level(params.level)
    return types.EmptyResult()


_HANDLERS: dict[str, tuple[type[BaseModel], Handler[Any]]] = {
    "tools/list": (types.PaginatedRequestParams, _list_tools),
    "tools/call": (types.CallToolRequestParams, _call_tool),
    "prompts/list": (types.PaginatedRequestParams, _list_prompts),
    "prompts/get": (types.GetPromptRequestParams, _get_prompt),
    "resources/list": (types.PaginatedRequestParams, _list_resources),
    "resources/templates/list": (types.PaginatedRequestParams, _list_templates),
    "resources/read": (types.ReadResourceRequestParams, _read),
    "resources/subscribe": (types.SubscribeRequestParams, _subscribe),
    "resources/unsubscribe": (types.UnsubscribeRequestParams, _unsubscribe),
    "completion/complete": (types.CompleteRequestParams, _complete),
    "logging/setLevel": (types.SetLevelRequestParams, _set_level),
}
