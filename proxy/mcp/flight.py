"""What is going on between a session and one of its servers, and what the server says meanwhile.

A run ahead asks nobody anything. A server does not say for which of its calls it asks:

1. While only runs ahead are going on, it is refused; none is handed over, and their tools never run ahead again.
2. While a call of the agent's is going on too, it is that call's question; the runs ahead are given up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext

from agentspec.errors import ToolRefused
from agentspec.proxy.mcp.agent_side import AgentSide, RealCall, ResultT

Answer = types.CreateMessageResult | types.CreateMessageResultWithTools | types.ErrorData
_OWN_BUSINESS = (Exception, types.ProgressNotification, types.SubscriptionsAcknowledgedNotification)


@dataclass(slots=True, eq=False)
class Ahead:
    """A run ahead that is going on."""

    tool: str
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)
    asked: bool = False


class Flight:
    """The calls under way to one server, and the ends of what it sends of its own accord."""

    def __init__(self, agent: AgentSide, tools_changed: Callable[[], Awaitable[None]]) -> None:
        self.agent = agent
        self._tools_changed = tools_changed
        self._real: list[RealCall] = []
        self._ahead: set[Ahead] = set()
        self._never_ahead: set[str] = set()

    @contextlib.contextmanager
    def of_agent(self, real: RealCall | None) -> Iterator[None]:
        """Around a request of the agent's."""
        if real is None:
            yield
            return
        self._real.append(real)
        try:
            yield
        finally:
            self._real.remove(real)

    @contextlib.contextmanager
    def ahead(self, tool: str) -> Iterator[Ahead]:
        """Around a run ahead.

        Raises:
            ToolRefused: this tool asked for input when it ran ahead.
        """
        if tool in self._never_ahead:
            raise ToolRefused(f"{tool} asked for input while it ran ahead, and does not run ahead any more")
        run = Ahead(tool)
        self._ahead.add(run)
        try:
            yield run
        finally:
            self._ahead.discard(run)

    def bar(self, tool: str) -> None:
        """This tool does not run ahead any more."""
        self._never_ahead.add(tool)

    def ends(self) -> dict[str, Any]:
        """What the SDK's client calls when the server asks or tells: as much as the agent's client can answer."""
        can = self.agent.capabilities
        return {
            "sampling_callback": self._sampling if can.sampling else None,
            "sampling_capabilities": can.sampling,
            "elicitation_callback": self._elicitation if can.elicitation else None,
            "list_roots_callback": self._roots if can.roots else None,
            "message_handler": self._heard,
        }

    async def _heard(self, message: types.ServerNotification | Exception) -> None:
        if isinstance(message, _OWN_BUSINESS):
            return
        if isinstance(message, types.ToolListChangedNotification):
            await self._tools_changed()
        during = self._real[-1] if self._real else None
        if not isinstance(message, types.LoggingMessageNotification):
            await self.agent.tell(message)
        elif during is not None or not self._ahead:  # of a run ahead the agent knows nothing
            await self.agent.tell(message, during)

    async def _asked(self, request: types.ServerRequest, result: type[ResultT]) -> ResultT | types.ErrorData:
        for run in self._ahead:
            run.asked = True
            if not self._real:
                self.bar(run.tool)
            elif run.task is not None:
                run.task.cancel()
        if self._ahead and not self._real:
            return types.ErrorData(code=types.INVALID_REQUEST, message="nobody can be asked during a run ahead")
        return await self.agent.ask(request, result, self._real[-1] if self._real else None)

    async def _sampling(self, context: ClientRequestContext, params: types.CreateMessageRequestParams) -> Answer:
        request = types.CreateMessageRequest(params=params)
        if params.tools is not None:
            return await self._asked(request, types.CreateMessageResultWithTools)
        return await self._asked(request, types.CreateMessageResult)

    async def _elicitation(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult | types.ErrorData:
        return await self._asked(types.ElicitRequest(params=params), types.ElicitResult)

    async def _roots(self, context: ClientRequestContext) -> types.ListRootsResult | types.ErrorData:
        return await self._asked(types.ListRootsRequest(), types.ListRootsResult)
