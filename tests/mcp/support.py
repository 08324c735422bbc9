"""What the gateway's tests run against: a shop's server, `agentspec mcp` before it, a guessing proxy, clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_types import CallToolResult

from agentspec.calls import ToolCall
from tests.contract.scripted import Endpoint, Gate, asks_for, eventually
from tests.contract.support import Guesses, Proxy

SCRIPT = str(Path(__file__).with_name("orders.py"))
AGENTSPEC = [sys.executable, "-m", "agentspec.proxy"]
DEAD_PROXY = "http://127.0.0.1:9"
LOOKED_UP = {"get_order": {"effect": "read", "reads": ["order:{order_id}"]}}


async def soon(condition: Callable[[], Any], what: str, timeout_s: float = 10.0) -> Any:
    """Wait until the condition holds; its value."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"did not come true within {timeout_s} s: {what}")
        await asyncio.sleep(0.005)
    return value


def said(result: CallToolResult) -> str:
    return result.content[0].text  # type: ignore[union-attr]


class Shop:
    """The shop's server: how it is started, and what it has executed."""

    def __init__(self, folder: Path, name: str = "orders", *flags: str) -> None:
        self.log = folder / f"{name}.log"
        self.log.touch()
        self.command, self.args = sys.executable, [SCRIPT, str(self.log), *flags]

    def entry(self, **word: Any) -> dict[str, Any]:
        return {"command": self.command, "args": self.args, "agentspec": {"stable_for": 30, **word}}

    def ran(self, beginning: str) -> int:
        """How many lines of its log begin so."""
        return sum(line.startswith(beginning) for line in self.log.read_text().splitlines())

    def direct(self, **options: Any) -> Client:
        return Client(StdioServerParameters(command=self.command, args=self.args), mode="legacy", cache=None, **options)


def written(folder: Path, **entries: Any) -> Path:
    """A file of servers."""
    path = folder / "servers.json"
    path.write_text(json.dumps({"mcpServers": entries}))
    return path


class Stage:
    """A proxy that runs ahead what `guess` says, and the agent's end of it."""

    def __init__(self, endpoint: Endpoint, folder: Path) -> None:
        self.endpoint = endpoint
        self.folder = folder
        self.guess: list[ToolCall] = []
        self._known: dict[str, int] = {}
        self.proxy = Proxy(
            endpoint.url, f"sqlite:///{folder / 'ledger.sqlite3'}", [Guesses(lambda turn: list(self.guess))]
        )
        self.runtime = secrets.token_urlsafe(24)

    def close(self) -> None:
        self.proxy.stop()

    @contextlib.asynccontextmanager
    async def agent(self, *flags: str, proxy: str | None = None, **entries: Any) -> AsyncIterator[Client]:
        """A client of a gateway of its own, over its standard input and output."""
        options = {
            key: entries.pop(key) for key in list(entries) if key.endswith("callback") or key == "message_handler"
        }
        environment = {"AGENTSPEC_RUNTIME": self.runtime, "OPENAI_API_KEY": "k"}
        args = [*AGENTSPEC[1:], "mcp", "--config", str(written(self.folder, **entries))]
        started = StdioServerParameters(
            command=AGENTSPEC[0], args=[*args, "--proxy", proxy or self.proxy.url, *flags], env=environment
        )
        with (self.folder / "stderr").open("a") as errors:
            async with Client(stdio_client(started, errors), cache=None, **options) as client:
                if proxy is None:
                    await self.joined(self.runtime)
                yield client

    async def joined(self, runtime: str) -> Any:
        return await soon(lambda: self.proxy.deps.runtimes.named(runtime), "the gateway has said hello")

    async def thinks(
        self, call: ToolCall, *guesses: ToolCall, wait: bool | None = True, runtime: str | None = None, **headers: str
    ) -> None:
        """The model asks for a call, when what was guessed (this very call, if nothing is told) has run ahead.

        `wait`: False goes on as soon as it has started, None does not wait for anything.
        """
        gate = Gate()
        self.guess = list(guesses or [call])
        self.endpoint.answers(*[asks_for(call.name, call.arguments, after=gate)] * (len(self.endpoint.exchanges) + 1))
        path = f"/r/{runtime or self.runtime}/v1" if runtime != "" else "/v1"
        books = self.proxy.deps.desk.books
        settled, before = sum(books.counts.values()), set(books._open)

        def new() -> list[Any]:
            return [bet for number, bet in books._open.items() if number not in before]

        turn = asyncio.create_task(asyncio.to_thread(self._ask, path, [call, *guesses], headers))
        if wait:
            await soon(
                lambda: (
                    ((bets := new()) and all(bet.latency_s is not None for bet in bets))
                    or sum(books.counts.values()) > settled
                ),
                "the guesses have run ahead, or will not",
            )
        elif wait is not None:
            await soon(new, "the guess has been dispatched")
        gate.open()
        await turn
        self.guess = []

    def _ask(self, path: str, calls: list[ToolCall], headers: dict[str, str]) -> None:
        body = {
            "model": secrets.token_hex(4),
            "stream": True,
            "messages": [{"role": "user", "content": secrets.token_hex(8)}],
            "tools": [{"type": "function", "function": offered} for offered in map(_offered, calls)],
        }
        url = f"{self.proxy.url}{path}/chat/completions"
        sent = {"authorization": "Bearer k", **headers}
        with httpx.stream("POST", url, json=body, headers=sent, trust_env=False, timeout=20) as answer:
            for _ in answer.iter_bytes():
                pass

    async def settled(self) -> dict[str, int]:
        """The outcomes of all bets since the last time, once none is open."""
        books = self.proxy.deps.desk.books
        await soon(lambda: not books._open, "every bet has its outcome")
        new = {name: count - self._known.get(name, 0) for name, count in books.counts.items()}
        self._known = dict(books.counts)
        return {name: count for name, count in new.items() if count}


def _offered(call: ToolCall) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in call.arguments}
    return {"name": call.name, "parameters": {"type": "object", "properties": properties}}


class Served:
    """A process that serves MCP over HTTP until the block ends."""

    def __init__(self, command: list[str], errors: Path, **environment: str) -> None:
        self._command = command
        self._errors = errors
        self._environment = environment

    def __enter__(self) -> Served:
        with self._errors.open("w") as errors:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stderr=errors, env=os.environ | self._environment
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(10)

    def url(self) -> str:
        """Where it listens, as it says itself."""
        told = eventually(lambda: [line for line in self._errors.read_text().splitlines() if "http://" in line], "url")
        return told[0][told[0].index("http://") :].strip()
