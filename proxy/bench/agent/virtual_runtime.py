"""An agent's runtime in virtual time: the real one, its tools async, its channel to the proxy in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agentspec import channel
from agentspec.effects import Effect
from agentspec.keys import SchemaKeys
from agentspec.proxy.app import App
from agentspec.proxy.asgi import Message
from agentspec.proxy.bench.agent.kits import VirtualTool
from agentspec.proxy.bench.agent.machine import Costs, Machine
from agentspec.proxy.bench.agent.virtual_agent import AsyncTool
from agentspec.tools_sandbox.claiming import call_async
from agentspec.tools_sandbox.declare import Options, declaration
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.tool import DeclaredTool

STABLE_FOR_S = 60.0


def plain(tool: VirtualTool) -> AsyncTool:
    """A tool as an agent has it without us: a coroutine function."""

    async def call(**arguments: Any) -> str:
        await asyncio.sleep(tool.seconds(arguments))
        return tool.answer(arguments)

    return call


def declared(tool: VirtualTool) -> DeclaredTool:
    """The same, declared, and known to run on this loop; what an async tool otherwise shows by its first call."""
    options: Options = {"effect": tool.effect}
    if tool.effect is Effect.READ:
        options["reads"], options["stable_for"] = {tool.domain}, STABLE_FOR_S
    elif tool.effect is not Effect.PURE:
        options["writes"] = {tool.domain}
    spec, word = declaration(options, tool.name, dict(tool.parameters))
    made = DeclaredTool(plain(tool), spec, word, SchemaKeys(tool.name))
    made.seen_running()
    return made


def claiming(tool: DeclaredTool) -> AsyncTool:
    """A declared tool as the agent calls it."""

    def call(**arguments: Any) -> Awaitable[str]:
        return call_async(tool, (), arguments)

    return call


class VirtualChannel:
    """Both directions between one runtime and the proxy. A message takes what it costs either side; none overtakes."""

    def __init__(self, app: App, runtime: Runtime, identity: str, work: tuple[Machine, Costs]) -> None:
        self._runtime = runtime
        self._identity = identity
        self._machine, self._costs = work
        self._to_proxy: asyncio.Queue[Message] = asyncio.Queue()
        self._arrives_s = 0.0
        self._welcomed = asyncio.Event()
        self._to_proxy.put_nowait({"type": "websocket.connect"})
        scope = {"type": "websocket", "path": channel.PATH, "headers": [(b"host", b"localhost")]}
        self._serving = asyncio.ensure_future(app(scope, self._to_proxy.get, self._from_proxy))
        runtime.attach(self)

    async def open(self) -> None:
        """Introduce the runtime, and wait for the proxy's welcome."""
        self._hand_over(self._runtime.hello(self._identity))
        await self._welcomed.wait()

    def close(self) -> None:
        """Leave."""
        self._serving.cancel()
        self._runtime.close()

    @property
    def connected(self) -> bool:
        return self._welcomed.is_set()

    def introduce(self) -> None:
        """The tools do not change here."""

    def send(self, message: channel.FromRuntime) -> None:
        if self.connected:
            self._hand_over(message)

    def _hand_over(self, message: channel.FromRuntime) -> None:
        frame: Message = {"type": "websocket.receive", "text": channel.encode(message)}
        self._deliver(lambda: self._to_proxy.put_nowait(frame), proxy=True)

    async def _from_proxy(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            heard = channel.decode_from_proxy(message["text"])
            self._deliver(lambda: self._hear(heard), proxy=False)

    def _deliver(self, what: Callable[[], Any], *, proxy: bool) -> None:
        loop = asyncio.get_running_loop()
        at_s = self._machine.occupied(self._costs.message_s, proxy=proxy)
        self._arrives_s = max(self._arrives_s, at_s)
        loop.call_at(self._arrives_s, what)

    def _hear(self, message: channel.FromProxy) -> None:
        if isinstance(message, channel.Welcome):
            self._welcomed.set()
            return
        if isinstance(message, channel.RunAhead):
            self._machine.occupied(self._costs.bet_s, proxy=True)
            self._machine.occupied(self._costs.ahead_s)
        self._runtime.receive(message)
