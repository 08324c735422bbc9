"""One MCP server as one agent's session uses it: real calls, runs ahead, and whatever else the agent asks of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

import mcp_types as types
from mcp import Client
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from agentspec.errors import ToolRefused
from agentspec.proxy.mcp.agent_side import AgentSide, RealCall
from agentspec.proxy.mcp.flight import Flight
from agentspec.proxy.mcp.held_client import HeldClient, is_modern, shown
from agentspec.proxy.mcp.servers import Server

log = logging.getLogger("agentspec.mcp")

MOST_PAGES = 100
_FAULTS = (MCPError, ValidationError, RuntimeError, OSError)

T = TypeVar("T")


class Upstream:
    """A server, connected for one session. `listed(upstream, fresh)` hears of its tools; `fresh`: it has just come."""

    def __init__(self, server: Server, agent: AgentSide, listed: Callable[[Upstream, bool], None]) -> None:
        self.server = server
        self.name = server.name
        self.tools: list[types.Tool] = []
        self._listed = listed
        self._flight = Flight(agent, self._tools_changed)
        self._held = HeldClient(server, self._greet, client_info=agent.info, **self._flight.ends())
        self._log_level: types.LoggingLevel | None = None
        self._subscribed: set[str] = set()
        self._listening: asyncio.Task[None] | None = None

    @property
    def client(self) -> Client | None:
        """Its client, where it is connected."""
        return self._held.now

    @property
    def starting(self) -> bool:
        """Whether it is being connected right now."""
        return self._held.starting

    async def connect(self) -> None:
        """Connect, where it is not connected.

        Raises:
            MCPError: it cannot be reached.
        """
        await self._held.connected()

    async def close(self) -> None:
        """Disconnect; a server that was started is stopped."""
        if self._listening is not None:
            self._listening.cancel()
        await self._held.close()

    async def request(self, send: Callable[[Client], Awaitable[T]], real: RealCall | None = None) -> T:
        """Send it one of the agent's requests.

        Raises:
            MCPError: its error, or that it has gone.
        """
        client = await self._held.connected()
        try:
            with self._flight.of_agent(real):
                answer = await send(client)
        except _FAULTS as error:
            raise await self._held.failed(client, error) from error
        self._held.well()
        return answer

    async def call(self, tool: str, arguments: dict[str, Any] | None, real: RealCall | None) -> types.CallToolResult:
        """A call of the agent's."""
        meta = real.meta if real is not None else {}
        progress = real.progress if real is not None and real.wants_progress else None
        return await self.request(
            lambda client: client.call_tool(tool, arguments, progress_callback=progress, meta=self._meta(client, meta)),
            real,
        )

    async def run_ahead(self, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> types.CallToolResult:
        """A call that the agent has not made yet. Nobody is asked, told or waited for.

        Raises:
            ToolRefused: there is no result that could be handed over.
        """
        client = self._held.now
        if client is None:
            raise ToolRefused(f"{self.name} is not connected")
        with self._flight.ahead(tool) as run:
            try:
                sent = self._meta(client, meta)
                result = await client.session.call_tool(tool, arguments, meta=sent, allow_input_required=True)
            except _FAULTS as error:
                raise ToolRefused(f"{tool}: {shown(error)}") from error
        if isinstance(result, types.InputRequiredResult):
            self._flight.bar(tool)
        if run.asked or isinstance(result, types.InputRequiredResult):
            raise ToolRefused(f"{tool} asks for input")
        if result.is_error:
            raise ToolRefused(f"{tool} answered with an error")
        return result

    def _meta(self, client: Client, given: Mapping[str, Any]) -> types.RequestParamsMeta | None:
        meta = dict(given)
        if self._log_level is not None and is_modern(client):
            meta.setdefault(types.LOG_LEVEL_META_KEY, self._log_level)
        return cast(types.RequestParamsMeta, meta) if meta else None

    async def set_level(self, level: types.LoggingLevel) -> None:
        """How much it logs; in the newer era each request says so."""
        self._log_level = level
        client = self._held.now
        if client is not None and not is_modern(client) and client.server_capabilities.logging is not None:
            await self.request(lambda client: client.session.send_request(_level(level), types.EmptyResult))

    async def subscribe(self, uri: str, wanted: bool) -> None:
        """Have it tell of changes of a resource, or no longer."""
        (self._subscribed.add if wanted else self._subscribed.discard)(uri)
        client = await self._held.connected()
        if is_modern(client):
            self._listen_to(client)
        else:
            request = _subscription(uri) if wanted else _end_of_subscription(uri)
            await self.request(lambda client: client.session.send_request(request, types.EmptyResult))

    async def roots_changed(self) -> None:
        """The agent's roots are others now; in the newer era servers ask for them when they need them."""
        client = self._held.now
        if client is not None and not is_modern(client):
            await client.session.send_notification(types.RootsListChangedNotification())

    async def _greet(self, client: Client) -> None:
        """A new connection: list its tools, and ask (again) for what the agent had asked for."""
        await self._relist(client, True)
        if is_modern(client):
            self._listen_to(client)
            return
        with contextlib.suppress(MCPError):
            for uri in self._subscribed:
                await client.session.send_request(_subscription(uri), types.EmptyResult)
            if self._log_level is not None and client.server_capabilities.logging is not None:
                await client.session.send_request(_level(self._log_level), types.EmptyResult)

    async def _tools_changed(self) -> None:
        if self._held.now is not None:
            await self._relist(self._held.now, False)

    async def _relist(self, client: Client, fresh: bool) -> None:
        if client.server_capabilities.tools is None:
            return
        tools: list[types.Tool] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            cursor = page.next_cursor
            if cursor is None:
                break
        self.tools = tools
        self._listed(self, fresh)

    def _listen_to(self, client: Client) -> None:
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(self._listen(client, sorted(self._subscribed)))

    async def _listen(self, client: Client, uris: list[str]) -> None:
        """Newer servers tell of changes only to who listens; what is heard comes to the message handler as well."""
        try:
            async with client.listen(
                tools_list_changed=True,
                prompts_list_changed=True,
                resources_list_changed=True,
                resource_subscriptions=uris,
            ) as changes:
                async for _ in changes:
                    pass
        except Exception as error:
            log.info("%s tells of no changes: %s", self.name, shown(error))


def _subscription(uri: str) -> types.SubscribeRequest:
    return types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))


def _end_of_subscription(uri: str) -> types.UnsubscribeRequest:
    return types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))


def _level(level: types.LoggingLevel) -> types.SetLevelRequest:
    return types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
