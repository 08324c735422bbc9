"""A scripted engine on a real socket, a turn that the test drives, and a probe log that says yes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentspec.config import Engine as Kind
from agentspec.protocols import LiveTurn, ProbeRecord
from agentspec.proxy.live import Live
from agentspec.proxy.upstream import HttpUpstream
from agentspec.wire.apis import CHAT, WireApi

PROBE_TEXT = ["get", "_order", '", "arguments": {"order_id": ', '"A1"', "}}"]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@dataclass
class Asked:
    """A probe as the engine sees it, and the means to answer."""

    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, status: int = 200) -> None:
        self.writer.write(
            f"HTTP/1.1 {status} x\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n".encode()
        )
        await self.writer.drain()

    async def say(self, *payloads: Any) -> None:
        """Events, all in one write."""
        self.writer.write(b"".join(b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads))
        await self.writer.drain()

    async def tell(self, *tokens: str, logprob: float | None = -0.1) -> None:
        told = [
            {"content": [{"token": token, "logprob": logprob}]} if logprob is not None else None for token in tokens
        ]
        choices = [{"index": 0, "delta": {"content": t}, "logprobs": lp} for t, lp in zip(tokens, told, strict=True)]
        await self.say(*({"choices": [choice]} for choice in choices))


Script = Callable[[Asked], Awaitable[None]]


async def predict(asked: Asked) -> None:
    await asked.start()
    await asked.tell(*PROBE_TEXT)


@dataclass
class Engine:
    """The engine; `script` is what it does with each probe."""

    script: Script = predict
    probes: list[Asked] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").splitlines()[1:-1]
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head)}
            body = await reader.readexactly(int(headers["content-length"]))
            asked = Asked(headers, json.loads(body), writer)
            self.probes.append(asked)
            self.came.set()
            script = asyncio.create_task(self._run(asked))
            await reader.read()
            asked.gone.set()
            script.cancel()
        writer.close()

    async def _run(self, asked: Asked) -> None:
        with contextlib.suppress(ConnectionError):
            await self.script(asked)
            asked.writer.close()


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    yield made
    server.close()


@pytest.fixture
async def upstream(engine: Engine) -> AsyncIterator[HttpUpstream]:
    made = HttpUpstream(engine.url, 20.0)
    yield made
    await made.close()


@dataclass
class Log:
    """The gate's side: counts probes, says yes `budget` times."""

    budget: int = 100
    closed: list[ProbeRecord] = field(default_factory=list)
    opened: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, count: int, task: asyncio.Task[None], within_s: float = 2.0) -> None:
        """Until so many probes are closed, or the speculator has stopped."""

        async def closed() -> None:
            while len(self.closed) < count:
                self.changed.clear()
                await self.changed.wait()

        waiting = asyncio.ensure_future(closed())
        done, _ = await asyncio.wait({waiting, task}, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        assert done, "nothing happened"

    def worth_probing(self, turn: LiveTurn) -> bool:
        return self.opened < self.budget

    def open_probe(self, turn: LiveTurn) -> ProbeRecord:
        self.opened += 1
        return ProbeRecord(started_s=turn.elapsed_s())

    def close_probe(self, turn: LiveTurn, probe: ProbeRecord) -> None:
        self.closed.append(probe)
        self.changed.set()


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def make_turn(upstream: HttpUpstream) -> Callable[..., Live]:
    """A turn of a request; the test feeds its events."""

    def make(headers: list[tuple[bytes, bytes]] | None = None, api: WireApi = CHAT, **more: Any) -> Live:
        tool = {"type": "function", "function": {"name": "get_order", "parameters": {"type": "object"}}}
        messages = [{"role": "user", "content": "Where is A1\u2028?"}]
        request = {"model": "m", "messages": messages, "tools": [tool], "stream": True, **more}
        body = json.dumps(request, ensure_ascii=False).encode()
        read = api.read_request(body)
        return Live(
            request=read,
            history=read.said,
            api=api,
            engine=Kind.VLLM,
            upstream=upstream,
            headers=headers or [(b"content-type", b"application/json")],
            path=api.path.removeprefix("/v1"),
            body=body,
            id="turn",
            trajectory="t",
            scope="s",
            tenant="n",
        )

    return make
