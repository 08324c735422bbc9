"""A scene for tools that run ahead in other processes: conversations of one call each, guessed or not."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentspec.calls import ToolCall
from agentspec.proxy.live import Live
from agentspec.tools_sandbox.declare import declared
from tests.contract.scripted import Gate, Step, asks_for, eventually, speaks
from tests.contract.support import Guesses

SERVED = ("hit", "joined")
PATIENCE_S = 8.0


class When(Gate):
    """Open as soon as a condition holds, which is looked at again and again."""

    def __init__(self, condition: Callable[[], Any]) -> None:
        super().__init__()
        self._condition = condition

    async def passed(self, timeout_s: float = PATIENCE_S) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._condition() and time.monotonic() < deadline:  # noqa: ASYNC110  (nothing tells)
            await asyncio.sleep(0.005)
        return bool(self._condition())


def ran_ahead(proxy: Any) -> Gate:
    """Open once a read that is guessed from now on has run; one that was guessed before may still be about to."""
    books = proxy.deps.desk.books
    eventually(lambda: not books._open, "what was guessed before is settled")
    return When(lambda: any(bet.latency_s is not None for bet in list(books._open.values())))


class Scene:
    """A proxy, a runtime, and agents that each have a conversation of their own."""

    def __init__(self, endpoint: Any, start: Any, join: Any, agent_of: Any, *tools: Any, **settings: Any) -> None:
        self.endpoint = endpoint
        self.guesses: list[ToolCall] = []
        self.proxy = start(Guesses(lambda turn: self.guesses), **settings)
        self.runtime = join(self.proxy, *tools)
        self.tools = {declared(tool).name: tool for tool in tools}
        self.placed: list[Any] = []
        """The bets, in the order in which they were offered."""
        books = self.proxy.deps.desk.books
        self._books_place, books.place = books.place, self._place
        self._agent_of = agent_of

    @property
    def waiting(self) -> int:
        """Runs ahead that no claim has taken."""
        return len(self.runtime._runtime.table)

    def _place(self, bet: Any) -> None:
        self.placed.append(bet)
        self._books_place(bet)

    def _run(self, bet: Any) -> Any:
        return self.runtime._runtime.table._runs.get(bet.id)

    def _over(self, bet: Any) -> bool:
        run = self._run(bet)
        return not bet.open or (run is not None and run.done)

    def over(self, count: int = 1) -> When:
        """So many more bets have come to their end: run, or settled."""
        before = len(self.placed)
        return When(lambda: sum(self._over(bet) for bet in self.placed[before:]) >= count)

    def started(self) -> When:
        """One more bet is on its way, in a process of its own where it has one."""
        before = len(self.placed)
        return When(lambda: any((run := self._run(bet)) and self._lives(run) for bet in self.placed[before:]))

    def connected(self) -> When:
        """One more bet has reached its worker."""
        before = len(self.placed)
        return When(lambda: any((run := self._run(bet)) and self._reaches(run) for bet in self.placed[before:]))

    @staticmethod
    def _reaches(run: Any) -> bool:
        return getattr(run.run, "_connection", None) is not None

    @staticmethod
    def _lives(run: Any) -> bool:
        child = getattr(run.run, "child", None)
        return bool(child is not None and child.pid)

    def new_agent(self) -> Any:
        return self._agent_of(self.runtime, *self.tools.values())

    def think(self, *steps: Step, agent: Any = None) -> tuple[Any, list[ToolCall]]:
        """A new conversation (or this agent's), answered with these steps; the agent and its calls."""
        agent = agent or self.new_agent()
        self.endpoint.script = lambda exchange, number: list(steps)
        return agent, agent.think()

    def asked(
        self, name: str, /, *, after: Gate | None = None, guesses: Sequence[ToolCall] | None = None, **given: Any
    ):
        """A conversation that guesses a call, runs it ahead and makes it; the agent and its calls, not acted on yet."""
        self.guesses = [ToolCall(name, given)] if guesses is None else list(guesses)
        return self.think(*asks_for(name, given, after=after or self.over(len(self.guesses))))

    def play(self, name: str, /, **given: Any) -> Any:
        """The same to its end: the agent's result, which has been told to the model."""
        agent, calls = self.asked(name, **given)
        (result,) = agent.act(calls)
        self.tell(agent)
        return result

    def tell(self, agent: Any) -> None:
        """The agent's next request, with the results of its calls; it is answered without a call."""
        self.guesses = []
        self.think(*speaks(), agent=agent)
        turns = self.proxy.deps.index._order.values()  # until it is over, the next guess might be made in this turn
        eventually(lambda: not any(isinstance(turn.answer, Live) for turn in list(turns)), "all turns are over")

    def bets(self, count: int = 1) -> list[dict[str, Any]]:
        """The ledger's bets as soon as there are so many, in the order in which they were offered."""
        order = [bet.id for bet in self.placed]
        return sorted(self.proxy.settled(count), key=lambda bet: order.index(bet["id"]))

    @property
    def outcomes(self) -> list[str | None]:
        """What became of the bets, served ones all called hits."""
        eventually(lambda: not any(bet.open for bet in self.placed), "all bets are settled")
        return ["hit" if bet.outcome in SERVED else bet.outcome for bet in self.placed]


def proven(tool: Any, checks: int = 1) -> None:
    """Wait until so many results of a tool were seen to be equal."""
    fidelity = declared(tool).fidelity
    eventually(
        lambda: fidelity.equal >= checks or fidelity.barred, f"{checks} equal results, {fidelity.equal} are there"
    )
    assert fidelity.barred is None


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """Living processes that this one started, and theirs."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(number) for number in task.read_text().split()]
        except OSError:
            continue
        found.update(child for child in children if alive(child))
        for child in children:
            found |= descendants(child)
    return found


def zygotes(pid: int | None = None) -> set[int]:
    """Descendants of a process (of this one) that are zygotes or came of one."""
    return {child for child in descendants(pid or os.getpid()) if "zygote" in _command(child)}


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


async def longest_pause(work: Any) -> float:
    """The longest time for which the loop did nothing else while the work went on."""
    task, longest = asyncio.ensure_future(work), 0.0
    while not task.done():
        began = time.monotonic()
        await asyncio.sleep(0.005)
        longest = max(longest, time.monotonic() - began)
    await task
    return longest
