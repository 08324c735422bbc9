"""One agent's session with the gateway: its servers, its tools, and its channel to the proxy.

Every session is a runtime of its own: what was run ahead for one agent is never handed to another.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

from agentspec.effects import EVERYTHING
from agentspec.proxy.mcp.agent_side import CURRENT, AgentSide, Context, RealCall
from agentspec.proxy.mcp.gateway_tools import declared_tool
from agentspec.proxy.mcp.servers import Server
from agentspec.proxy.mcp.upstream import Upstream
from agentspec.tools_sandbox.channel_client import ChannelClient, dial_proxy
from agentspec.tools_sandbox.claiming import call_async
from agentspec.tools_sandbox.connect import RUNTIME_HEADER
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.shared import SharedDomains
from agentspec.tools_sandbox.tiers.registry import Tiers
from agentspec.tools_sandbox.tool import DeclaredTool
from agentspec.tools_sandbox.writing import Writing

log = logging.getLogger("agentspec.mcp")

RUNTIME_VARIABLE = "AGENTSPEC_RUNTIME"
_SECRET = re.compile(r"[A-Za-z0-9_-]{22,}")
_PATIENCE_S = 15.0
"""Longest time that the agent's handshake waits for servers to start."""


@dataclass(frozen=True, slots=True)
class ProxyAt:
    """Where the proxy is, under which key the agent's requests reach it, and where writes are shared."""

    url: str
    api_key: str | None = None
    shared: SharedDomains | None = None


class SessionRuntime(Runtime):
    """A runtime whose tools are those that its servers list right now. Redis is the gateway's, not its own."""

    prefixed = True

    def __init__(self, shared: SharedDomains | None) -> None:
        super().__init__(Tiers(), [], shared)

    def close(self) -> None:
        self.shared = None
        super().close()


@dataclass(frozen=True, slots=True)
class Exposed:
    """A tool as the agent sees it, and as the runtime holds it."""

    upstream: Upstream
    tool: types.Tool
    declared: DeclaredTool


class AgentSession:
    """An agent's client and the servers that are connected for it."""

    def __init__(self, servers: Sequence[Server], proxy: ProxyAt, agent: AgentSide, runtime_id: str | None) -> None:
        self.upstreams = [Upstream(server, agent, self._listed) for server in servers]
        self._agent = agent
        self._opened = False
        self._late: set[asyncio.Task[None]] = set()
        self._exposed: dict[str, Exposed] = {}
        self._runtime = SessionRuntime(proxy.shared)
        identity = runtime_id or secrets.token_urlsafe(24)
        self._channel = ChannelClient(dial_proxy(proxy.url, proxy.api_key), identity, self._runtime)

    async def open(self) -> None:
        """Connect the servers, side by side. One that takes too long comes later; one that fails, when it is needed."""
        self._late = {asyncio.create_task(_connect(one)) for one in self.upstreams}
        await asyncio.wait(self._late, timeout=_PATIENCE_S)
        self._opened = True

    async def close(self) -> None:
        """Disconnect everything."""
        for task in self._late:
            task.cancel()
        await asyncio.gather(*(one.close() for one in self.upstreams), return_exceptions=True)
        await asyncio.to_thread(self._channel.close)
        self._runtime.offer([])
        self._runtime.close()

    # Tools

    def shown_name(self, upstream: Upstream, name: str) -> str:
        """A name of a server's as the agent sees it: as it is, or behind the server's where there are several."""
        return name if len(self.upstreams) == 1 else f"{upstream.name}_{name}"

    def meant(self, shown: str) -> tuple[Upstream, str]:
        """The other way round.

        Raises:
            MCPError: no server has such a name.
        """
        if len(self.upstreams) == 1:
            return self.upstreams[0], shown
        fitting = [one for one in self.upstreams if shown.startswith(f"{one.name}_")]
        if not fitting:
            raise MCPError(types.INVALID_PARAMS, f"there is no {shown!r} here")
        upstream = max(fitting, key=lambda one: len(one.name))
        return upstream, shown.removeprefix(f"{upstream.name}_")

    def _listed(self, upstream: Upstream, fresh: bool) -> None:
        """A server has told its tools. A tool that is as it was keeps its results, unless the server has just come."""
        before = {name: one for name, one in self._exposed.items() if one.upstream is upstream and not fresh}
        found = {name: one for name, one in self._exposed.items() if one.upstream is not upstream}
        for tool in upstream.tools:
            name = self.shown_name(upstream, tool.name)
            if name in found:
                log.warning("%s is the name of two tools here; the first one listed is called", name)
                continue
            known = before.get(name)
            same = known is not None and known.tool == tool
            found[name] = known if known and same else Exposed(upstream, tool, declared_tool(upstream, tool, name))
        self._exposed = found
        for unknown in upstream.server.declared.keys() - {tool.name for tool in upstream.tools} if fresh else ():
            log.warning("%s has no tool %s, which the file declares", upstream.name, unknown)
        self._runtime.offer([one.declared for one in found.values()])
        if fresh and self._opened:
            self._late.add(asyncio.create_task(self._agent.tell(types.ToolListChangedNotification())))

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """A real call: a claim where the tool is known, else a write of everything."""
        real = RealCall.of(ctx)
        exposed = self._exposed.get(params.name)
        if exposed is not None:
            CURRENT.set(real)
            result: types.CallToolResult = await call_async(exposed.declared, (), params.arguments or {})
            return result
        upstream, name = self.meant(params.name)
        async with Writing(frozenset({EVERYTHING})):
            return await upstream.call(name, params.arguments, real)


async def _connect(upstream: Upstream) -> None:
    try:
        await upstream.connect()
    except MCPError as error:
        log.warning("%s", error)


def runtime_id_of(ctx: Context) -> str | None:
    """The runtime's id that the agent's side chose, so that its base URL can name it: by header or by environment.

    Raises:
        MCPError: it could be guessed.
    """
    headers: Any = getattr(ctx.request, "headers", {})
    given = headers.get(RUNTIME_HEADER) if ctx.request is not None else os.environ.get(RUNTIME_VARIABLE)
    if given and not _SECRET.fullmatch(given):
        told = "the runtime's id is a secret: 22 letters, digits, - and _ at least"
        raise MCPError(types.INVALID_REQUEST, f"{told} ({RUNTIME_VARIABLE}, or the header {RUNTIME_HEADER})")
    return given or None
