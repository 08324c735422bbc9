"""Conversations whose turns each ask for a key of their own, and what the ledger says of them."""

from __future__ import annotations

from typing import Any

import httpx

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.trajectory import calls_in
from tests.contract.dialects import Made, Text, Thought
from tests.contract.scripted import Gate, eventually

SERVED = ("hit", "joined")


class Get:
    """A read with a key of its own for every turn."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran: dict[str, Gate] = {}

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            self.runs.append(key)
            self.gate(key).open()
            return f"{key}!"

        self.tool = get

    def gate(self, key: str) -> Gate:
        return self.ran.setdefault(key, Gate())

    def asked(self, number: int) -> list[Any]:
        """An answer that thinks, speaks, and calls get("k…") once that has run ahead."""
        key = f"k{number}"
        return [Thought(), Text(), self.gate(key), Made("get", {"key": key}, f"call_{number}")]


def next_key(turn: Any) -> list[ToolCall]:
    """As many calls as the trajectory holds, so many have been guessed before."""
    return [ToolCall("get", {"key": f"k{len(calls_in(turn.history))}"})]


def trajectories(proxy: Any, *turns: int) -> None:
    """The ledger has trajectories of so many turns."""

    def told() -> list[int]:
        return sorted(trajectory["turns"] for trajectory in proxy._reader.trajectories(100))

    eventually(lambda: sum(told()) >= sum(turns), f"{sum(turns)} turns in the ledger")
    assert told() == sorted(turns)


def all_served(agent: Any, turns: int = 3) -> None:
    """So many turns are one trajectory, and the read that each asks for has run ahead of it."""
    for number in range(turns):
        assert agent.turn() == [f"k{number}!"]
    assert [bet["outcome"] in SERVED for bet in agent.proxy.settled(turns)] == [True] * turns
    trajectories(agent.proxy, turns)


def windows(proxy: Any) -> int:
    """Runtimes in which a relayed write holds reads back right now."""
    httpx.get(f"{proxy.url}/agentspec/status", trust_env=False)  # what has gone out before is read by then
    return sum(link.writing() for link in proxy.deps.runtimes._links.values())
