"""One cell of the grid in virtual time: the same tasks, played straight to the endpoint and through the real proxy.

Real are the proxy's application with its turn, bets, books and gate, memory, the channel's messages, the runtime with
its claim table and the decorated tools. In memory are the endpoint and the connections; time is the loop's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import msgspec

from agentspec.aside import Aside
from agentspec.config import Engine, Settings
from agentspec.later import Later
from agentspec.memory.recall import Recall
from agentspec.protocols import Speculator
from agentspec.proxy.app import App
from agentspec.proxy.bench.agent.kits import Kit, VirtualTool
from agentspec.proxy.bench.agent.machine import Costs, Machine
from agentspec.proxy.bench.agent.virtual_agent import Played, VirtualAgent, direct, through
from agentspec.proxy.bench.agent.virtual_endpoint import Hostile, Script, VirtualEndpoint, VirtualUpstream
from agentspec.proxy.bench.agent.virtual_loop import run_virtually
from agentspec.proxy.bench.agent.virtual_runtime import (
    VirtualChannel,
    claiming,
    declared,
    plain,
)
from agentspec.proxy.desk import Desk
from agentspec.proxy.endpoints import Endpoint, Endpoints
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.recordings import Library, Recording, message_of
from agentspec.proxy.wiring import Parts, build
from agentspec.recollection import Memories, Past, Recollection
from agentspec.tools_sandbox.runtime import Runtime
from agentspec.tools_sandbox.tiers.registry import Tiers
from agentspec.wire import chat

T = TypeVar("T")

URL = "http://localhost/v1"
_STAGGER_S = 1.0
"""Agents begin within this time, at random."""


class Predicts(Protocol):
    """Says who predicts in an arm."""

    def __call__(self, endpoint: VirtualEndpoint, desk: Desk, usual: Sequence[Speculator]) -> Sequence[Speculator]: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What is played: each agent's tasks, with which tools, on how many cores, and what things cost there."""

    tasks: Sequence[Sequence[Recording]]
    script: Script
    kit: Kit
    cores: int = 2
    costs: Costs = field(default_factory=Costs)
    pace: Pace = field(default_factory=Pace)
    seed: int = 1
    engine: Engine = Engine.OPENAI
    options: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the proxy."""
    probed: Hostile | None = None
    """How the endpoint answers probes; None: it refuses them, as a recording must."""
    parallel_tools: bool = False
    """Whether the direct agent runs the calls of one message side by side."""


@dataclass(slots=True)
class Rows:
    """A ledger in memory."""

    rows: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def record(self, table: str, row: Mapping[str, Any]) -> None:
        self.rows.setdefault(table, []).append({name: Later.of(value) for name, value in row.items()})

    async def close(self) -> None:
        return

    def of(self, table: str) -> list[Mapping[str, Any]]:
        """The rows of a table."""
        return self.rows.get(table, [])


@dataclass(frozen=True, slots=True)
class Seen:
    """A run of one arm: what each task took, and what the proxy wrote down."""

    played: Sequence[Played]
    ledger: Rows

    @property
    def seconds(self) -> float:
        """What all tasks took, one after the other."""
        return sum(one.seconds for one in self.played)


class _Inline(Aside):
    """Does in the loop what is to be done aside, and charges it to the proxy's process: there, too, it takes the
    interpreter away from the relay.
    """

    def __init__(self, machine: Machine, seconds: float) -> None:
        super().__init__("in virtual time")
        self._machine = machine
        self._seconds = seconds

    def do(self, what: Callable[[], T]) -> Future[T] | None:
        future: Future[T] = Future()
        done_s = self._machine.occupied(self._seconds, proxy=True)
        asyncio.get_running_loop().call_at(done_s, _do, future, what)
        return future


def _do(future: Future[T], what: Callable[[], T]) -> None:
    if future.set_running_or_notify_cancel():
        try:
            future.set_result(what())
        except BaseException as error:
            future.set_exception(error)


class OneMemory:
    """Everybody's memory, learnt from at once; implements `Memories`."""

    def __init__(self, pasts: Sequence[Past] = ()) -> None:
        self._memory = Recall()
        for past in pasts:
            self._memory.learn(past)

    def of(self, tenant: str) -> Recollection:
        return self._memory

    def learnt(self, tenant: str, past: Past) -> None:
        self._memory.learn(past)


def past_of(recording: Recording, library: Library) -> Past:
    """A recorded task as memory is told of it."""
    system = library.system(recording)
    opening = [{"role": "system", "content": system}] if system else []
    body = {"model": recording.model, "messages": [*opening, *map(message_of, recording.steps)]}
    request = chat.read_request(msgspec.json.encode(body | {"tools": library.tools_of(recording)}))
    return Past(f"past-{recording.model}", "bench", request.said, request.tools)


def off(setting: Setting) -> Seen:
    """Straight to the endpoint, with plain tools."""
    return run_virtually(_off(setting))


def on(setting: Setting, predicts: Predicts, memories: Memories | None = None) -> Seen:
    """Through the proxy, with declared tools; `memories`: for those who recall."""
    return run_virtually(_on(setting, predicts, memories))


async def _off(setting: Setting) -> Seen:
    machine = Machine(setting.cores)
    endpoint = VirtualEndpoint(setting.script, setting.pace, machine, setting.costs)

    async def play(agent: str, task: Recording, tools: Sequence[VirtualTool]) -> Played:
        by_name = {tool.name: plain(tool) for tool in tools}
        player = VirtualAgent(direct(endpoint), by_name, setting.kit.library, (machine, setting.costs))
        player.parallel_tools = setting.parallel_tools
        return await player.play(task)

    async def agent(name: str, tasks: Sequence[Recording]) -> list[Played]:
        return [await play(name, task, setting.kit.tools(name, task)) for task in tasks]

    return Seen(await _together(setting, agent), Rows())


async def _on(setting: Setting, predicts: Predicts, memories: Memories | None) -> Seen:
    machine, ledger = Machine(setting.cores), Rows()
    endpoint = VirtualEndpoint(setting.script, setting.pace, machine, setting.costs)
    upstream = VirtualUpstream(endpoint, machine, setting.costs, setting.probed)
    parts = Parts(
        Endpoints([Endpoint(URL, setting.engine, ("*",), (), upstream)], keys_are_ours=False),
        ledger,
        memories,
        _Inline(machine, setting.costs.asked_s),
        lambda desk, usual: predicts(endpoint, desk, usual),
    )
    given: dict[str, Any] = {"upstream": URL, "engine": setting.engine, "database": "sqlite://", "memory_database": ""}
    given |= {"engine_metrics": False, "drafts": False}  # asked over sockets, and there are none here
    settings = Settings(memory=memories is not None, holdout_share=0.0, **given, **setting.options)
    app = build(settings, parts=parts)
    await app.start()

    async def agent(name: str, tasks: Sequence[Recording]) -> list[Played]:
        runtime = _AgentsRuntime(app, setting, machine, name)
        try:
            return [await runtime.play(task) for task in tasks]
        finally:
            runtime.close()

    try:
        return Seen(await _together(setting, agent), ledger)
    finally:
        await app.stop()


class _AgentsRuntime:
    """One agent's process: its tools, declared, its channel to the proxy. Other tools make it another runtime."""

    def __init__(self, app: App, setting: Setting, machine: Machine, name: str) -> None:
        self._app = app
        self._setting = setting
        self._work = (machine, setting.costs)
        self._name = name
        self._tools: Sequence[VirtualTool] = ()
        self._channel: VirtualChannel | None = None
        self._count = 0

    async def play(self, task: Recording) -> Played:
        """Play a task through the proxy."""
        tools = self._setting.kit.tools(self._name, task)
        if tools is not self._tools:
            await self._hold(tools)
        return await self._agent.play(task)

    async def _hold(self, tools: Sequence[VirtualTool]) -> None:
        self.close()
        self._tools, made = tools, {tool.name: declared(tool) for tool in tools}
        self._count += 1
        identity = f"runtime-of-virtual-agent-{self._name}-{self._count:04d}"
        self._channel = VirtualChannel(self._app, Runtime(Tiers(), made.values()), identity, self._work)
        await self._channel.open()
        by_name = {name: claiming(tool) for name, tool in made.items()}
        way = through(self._app, identity)
        self._agent = VirtualAgent(way, by_name, self._setting.kit.library, self._work)

    def close(self) -> None:
        """Leave the proxy."""
        if self._channel is not None:
            self._channel.close()


async def _together(setting: Setting, agent: Callable[[str, Sequence[Recording]], Any]) -> list[Played]:
    rng = random.Random(setting.seed)

    async def later(name: str, tasks: Sequence[Recording], after_s: float) -> list[Played]:
        await asyncio.sleep(after_s)
        played: list[Played] = await agent(name, tasks)
        return played

    alone = len(setting.tasks) == 1
    starts = [0.0 if alone else rng.uniform(0.0, _STAGGER_S) for _ in setting.tasks]
    names = [f"{nth:04d}" for nth in range(len(setting.tasks))]
    done = await asyncio.gather(*map(later, names, setting.tasks, starts))
    return [one for tasks in done for one in tasks]
