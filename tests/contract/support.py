"""What the contract's tests run against: the proxy in a thread, guessing speculators, a plain agent."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import httpx
import openai
import pytest

import agentspec
from agentspec.calls import ToolCall
from agentspec.config import Settings
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.protocols import LiveTurn, Offer, Prediction
from agentspec.proxy.embedded import Embedded, Engine
from agentspec.proxy.wiring import build
from agentspec.tools_sandbox.connect import Connection
from agentspec.tools_sandbox.declare import declared
from tests.contract.scripted import Serving, eventually

_numbers = itertools.count(1)


class Guesses:
    """Offers calls, or what a function of the turn gives. The gate cannot learn to distrust it.

    With `calibrated` it is believed from the start, also where it says the same again.
    """

    def __init__(
        self,
        *guesses: ToolCall | Callable[[LiveTurn], Iterable[ToolCall]],
        name: str = "oracle",
        calibrated: bool = False,
    ) -> None:
        self.name = name
        self._guesses = guesses
        self._calibrated = calibrated

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        for guess in self._guesses:
            for found in [guess] if isinstance(guess, ToolCall) else guess(turn):
                name = f"{self.name}-{next(_numbers)}"
                offer(Prediction(found, name, 0.99, 0.99, calibrated=self._calibrated))


BOTH_WAYS = pytest.mark.parametrize("way", ["served", "embedded"], indirect=True)
"""For modules whose tests hold with a proxy as well as with the engine in the agent's process."""


class Proxy:
    """The real proxy on loopback, with speculators of the test's own and a ledger to read."""

    def __init__(
        self, endpoint: str, database: str, speculators: Iterable[Any], port: int = 0, **settings: Any
    ) -> None:
        values = {"memory": False, "probe": False, "keep_arguments": True} | settings
        self._open(Settings(upstream=endpoint, database=database, **values), list(speculators), port)
        self._reader = LedgerReader(database)

    def _open(self, settings: Settings, speculators: list[Any], port: int) -> None:
        app = build(settings, extra_speculators=speculators)
        self.deps = app._deps
        self._serving = Serving(app, port)
        self.port = self._serving.port
        self.url = f"http://127.0.0.1:{self.port}"
        self.stop = self._serving.stop

    def join(self, tools: Iterable[Any]) -> Connection:
        """This process as a runtime with these tools."""
        return agentspec.connect(self.url, tools=tools, api_key="k", wait_s=5.0)

    @property
    def outcomes(self) -> dict[str, int]:
        """Bets by outcome, as the ledger has them."""
        return self._reader.outcomes()

    def bets(self) -> list[dict[str, Any]]:
        return self._reader.bets()

    def claims(self) -> list[dict[str, Any]]:
        return self._reader.claims()

    def settled(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many bets are in the ledger; they, oldest first."""
        eventually(lambda: len(self.bets()) >= count, f"{count} bets in the ledger, there are {self.outcomes}")
        return sorted(self.bets(), key=lambda bet: bet["settled_s"])

    def claimed(self, count: int = 1) -> list[dict[str, Any]]:
        """Wait until so many claims are in the ledger, and those that are still on their way; they, in order."""
        eventually(lambda: len(self.claims()) >= count, f"{count} claims in the ledger", 5.0)
        known, before = len(self.claims()), -1
        while known != before:
            time.sleep(0.25)  # the ledger gathers rows for 0.1 s
            before, known = known, len(self.claims())
        return sorted(self.claims(), key=lambda claim: claim["id"])


class EmbeddedProxy(Proxy):
    """The same engine in this process, without a server."""

    def _open(self, settings: Settings, speculators: list[Any], port: int) -> None:
        self._engine = Engine(settings, speculators)
        self.deps = self._engine.running()[0]._deps
        self.stop = self._engine.stop

    def join(self, tools: Iterable[Any]) -> Connection:
        runtime = Embedded(self._engine, tools)
        runtime.wait(5.0)
        return runtime


def plain_client(runtime: Connection) -> httpx.Client:
    """A client that reaches the engine and knows no way round it."""
    return runtime.http_client("httpx") if isinstance(runtime, Embedded) else httpx.Client(trust_env=False, timeout=20)


class Agent:
    """A plain agent over the openai SDK, streaming. Each turn has a model of its own: nothing is learnt of its pace."""

    def __init__(self, client: openai.OpenAI, tools: Sequence[Any], question: str = "", **headers: str) -> None:
        self.client = client
        self.tools = {declared(tool).name: tool for tool in tools}
        self.schemas = [_schema(name, declared(tool).spec.parameters) for name, tool in self.tools.items()]
        self.messages: list[Any] = [{"role": "user", "content": question or f"question {next(_numbers)}"}]
        self.headers = headers

    def think(self) -> list[ToolCall]:
        """One model request; the calls it made, and the answer is added to the conversation."""
        calls: dict[int, dict[str, str]] = {}
        text = ""
        with self.client.chat.completions.create(
            model=f"m-{uuid.uuid4().hex[:8]}",
            messages=self.messages,
            tools=self.schemas or openai.NOT_GIVEN,
            stream=True,
            extra_headers=self.headers,
        ) as stream:
            for chunk in stream:
                delta = chunk.choices[0].delta
                text += delta.content or ""
                for part in delta.tool_calls or []:
                    known = calls.setdefault(part.index, {"id": part.id or "", "name": "", "arguments": ""})
                    known["name"] += (part.function.name or "") if part.function else ""
                    known["arguments"] += (part.function.arguments or "") if part.function else ""
        self.messages.append(assistant(text, calls.values()))
        return [ToolCall(c["name"], json.loads(c["arguments"] or "{}"), c["id"]) for c in calls.values()]

    def act(self, calls: Iterable[ToolCall]) -> list[Any]:
        """Make the calls one after the other; their results, which are added to the conversation."""
        return [self.told(made, self.tools[made.name](**made.arguments)) for made in calls]

    def told(self, made: ToolCall, result: Any) -> Any:
        """Add a call's result to the conversation."""
        self.messages.append({"role": "tool", "tool_call_id": made.id, "content": str(result)})
        return result

    def turn(self) -> list[Any]:
        """Think and act."""
        return self.act(self.think())


def assistant(text: str, calls: Iterable[dict[str, str]]) -> dict[str, Any]:
    made = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
    ]
    return {"role": "assistant", "content": text, **({"tool_calls": made} if made else {})}


def _schema(name: str, parameters: Any) -> Any:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def undeclared(agent: Agent, name: str, tool: Callable[..., Any]) -> None:
    """Give an agent a tool that nobody declared."""
    agent.tools[name] = tool
    agent.schemas.append(_schema(name, {"type": "object", "properties": {"order_id": {"type": "string"}}}))
