"""An agent in virtual time: asks, reads the stream, runs the tool that was called, asks again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from agentspec import clock
from agentspec.proxy.app import App
from agentspec.proxy.asgi import HANGUP, Hangup, Message
from agentspec.proxy.bench.agent.machine import Costs, Machine
from agentspec.proxy.bench.agent.virtual_endpoint import VirtualEndpoint
from agentspec.proxy.replay.agent import is_greeting
from agentspec.proxy.replay.deltas import CHARS_PER_TOKEN
from agentspec.proxy.replay.recordings import Call, Library, Recording, Step, message_of

AsyncTool = Callable[..., Awaitable[str]]
Way = Callable[[str, bytes], AsyncIterator[bytes]]
"""Sends a session's request and gives the answer's bytes as they arrive."""


@dataclass(frozen=True, slots=True)
class Called:
    """A call that the agent made: how long after its request, and how long the agent waited for the result."""

    tool: str
    runway_s: float
    waited_s: float


@dataclass(slots=True)
class Played:
    """A task as it was played. `differences`: answers and results that are not the recorded ones."""

    task: str
    seconds: float = 0.0
    turns: int = 0
    differences: int = 0
    calls: list[Called] = field(default_factory=list)


def direct(endpoint: VirtualEndpoint) -> Way:
    """Straight to the endpoint."""

    async def send(session: str, body: bytes) -> AsyncIterator[bytes]:
        async for piece in endpoint.pieces(body, proxy=False):
            yield piece.data

    return send


def through(app: App, runtime: str) -> Way:
    """Through the proxy, as its own server hands it a request."""

    async def send(session: str, body: bytes) -> AsyncIterator[bytes]:
        arrived: asyncio.Queue[Message | None] = asyncio.Queue()
        asked = _Asked(body, arrived)
        serving = asyncio.ensure_future(app(_scope(runtime, session), asked.receive, arrived.put))
        serving.add_done_callback(lambda _: arrived.put_nowait(None))
        while (message := await arrived.get()) is not None:
            if data := message.get("body"):
                yield data
        await serving

    return send


class _Asked:
    """The client's end of one request."""

    def __init__(self, body: bytes, arrived: asyncio.Queue[Message | None]) -> None:
        self._body = body
        self._arrived = arrived

    async def receive(self) -> Message:
        return {"type": "http.request", "body": self._body, "more_body": False}


def _scope(runtime: str, session: str) -> dict[str, Any]:
    headers = [(b"host", b"localhost"), (b"x-agentspec-session", session.encode()), (b"x-agentspec-scope", b"bench")]
    path = f"/r/{runtime}/v1/chat/completions"
    shape = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b""}
    return {**shape, "headers": headers, "extensions": {HANGUP: Hangup()}}


class VirtualAgent:
    """One agent; what reading an answer costs it is charged, whichever way the answer came."""

    parallel_tools = False
    """Whether the calls of one message run side by side."""

    def __init__(self, way: Way, tools: Mapping[str, AsyncTool], library: Library, work: tuple[Machine, Costs]) -> None:
        self._way = way
        self._tools = tools
        self._library = library
        self._machine, self._costs = work

    async def play(self, recording: Recording) -> Played:
        """Play a task to its end."""
        played = Played(recording.task_id)
        messages: list[dict[str, Any]] = []
        if (system := self._library.system(recording)) is not None:
            messages.append({"role": "system", "content": system})
        began_s = clock.monotonic()
        results: dict[str, str] = {}
        for at, step in enumerate(recording.steps):
            if step.role == "assistant" and not is_greeting(recording, at):
                results = await self._turn(step, recording, messages, played)
            elif step.role == "tool":
                played.differences += results.get(step.tool_call_id or "") != step.tool_result
            messages.append(message_of(step))
        played.seconds = clock.monotonic() - began_s
        return played

    async def _turn(
        self, step: Step, recording: Recording, messages: Sequence[Mapping[str, Any]], played: Played
    ) -> dict[str, str]:
        asked_s = clock.monotonic()
        tools = self._library.tools_of(recording)
        body = {"model": recording.model, "stream": True, "messages": messages, "tools": tools}
        await self._machine.work(self._costs.agent_turn_s)
        calls = await self._read(self._way(recording.model, msgspec.json.encode(body)))
        played.turns += 1
        played.differences += [(call.name, call.arguments) for call in calls] != [
            (call.name, call.arguments) for call in step.calls
        ]
        running = [self._run(call, asked_s, played) for call in calls]
        if self.parallel_tools:
            return dict(await asyncio.gather(*running))
        return dict([await one for one in running])

    async def _run(self, call: Call, asked_s: float, played: Played) -> tuple[str, str]:
        called_s = clock.monotonic()
        tool = self._tools.get(call.name)
        try:
            result = f"Error: Tool '{call.name}' not found." if tool is None else await tool(**call.arguments)
        except Exception as error:  # the agent's own rule: a tool's error is told to the model
            result = f"Error: {error}"
        played.calls.append(Called(call.name, called_s - asked_s, clock.monotonic() - called_s))
        return call.id, result

    async def _read(self, answer: AsyncIterator[bytes]) -> list[Call]:
        """The answer's calls; an SDK reads on until the answer's end."""
        names: dict[int, tuple[str, str]] = {}
        arguments: dict[int, str] = {}
        async for data in answer:
            for event in data.split(b"\n\n")[:-1]:
                text = event.removeprefix(b"data: ")
                delta = {} if text == b"[DONE]" else msgspec.json.decode(text)["choices"][0]["delta"]
                if len(delta.get("reasoning_content", "")) <= CHARS_PER_TOKEN:  # of more it is the machine's load
                    await self._machine.work(self._costs.agent_piece_s)
                for part in delta.get("tool_calls", ()):
                    at, said = part["index"], part["function"]
                    if "id" in part:
                        names[at] = (part["id"], said["name"])
                    arguments[at] = arguments.get(at, "") + said["arguments"]
        return [Call(name, json.loads(arguments[at]), identity) for at, (identity, name) in sorted(names.items())]
