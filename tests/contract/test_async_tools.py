"""Async tools run ahead only on the loop where they were last seen running, and end with their claims."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, eventually
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS

SERVED = ("hit", "joined")


class Get:
    """An async tool; the runs whose number is in `hold` wait for its gate."""

    def __init__(self, **hold: Gate) -> None:
        self.runs: list[Any] = []
        self.cancelled: list[int] = []
        self.began: dict[int, Gate] = {n: Gate() for n in range(9)}
        self.ended: dict[int, Gate] = {n: Gate() for n in range(9)}

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        async def get(key: str) -> str:
            number = len(self.runs)
            self.runs.append(asyncio.get_running_loop())
            self.began[number].open()
            try:
                if gate := hold.get(f"run{number}"):
                    await gate.passed(8.0)
            except asyncio.CancelledError:
                self.cancelled.append(number)
                raise
            self.ended[number].open()
            return f"{key}{number}"

        self.tool = get


@pytest.fixture
def loops():
    """loops(): an event loop that runs in a thread of its own."""
    running: list[tuple[asyncio.AbstractEventLoop, threading.Thread]] = []

    def made() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()
        running.append((loop, thread))
        return loop

    yield made
    for loop, thread in running:
        if not loop.is_closed():
            loop.call_soon_threadsafe(loop.stop)
            thread.join(5)
            loop.close()


def on(loop: asyncio.AbstractEventLoop, coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(10)


@pytest.fixture
def second(endpoint, start, join, agent_of):
    """second(get, loop, gate): get was called once on the loop; then its next call was guessed and asked for."""

    def made(get: Get, loop: asyncio.AbstractEventLoop, gate: Gate) -> Any:
        proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": "A"})] if len(turn.history) == 3 else []))
        agent = agent_of(join(proxy, get.tool), get.tool)
        endpoint.answers(asks_for("get", {"key": "A"}, id="c0"), asks_for("get", {"key": "A"}, after=gate, id="c1"))
        (first,) = agent.think()
        agent.told(first, on(loop, get.tool("A")))
        proxy.claimed()
        agent.think()
        return proxy

    return made


def test_a_first_call_is_never_run_ahead(endpoint, start, join, agent_of, loops):
    get = Get()
    proxy = start(Guesses(ToolCall("get", {"key": "A"})))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}))
    agent.think()
    assert on(loops(), get.tool("A")) == "A0"
    assert len(get.runs) == 1
    (bet,) = proxy.settled()
    assert bet["outcome"] == "vetoed"


def test_a_later_call_is_served_from_the_loop_it_was_seen_on(second, loops):
    get, loop = Get(), loops()
    proxy = second(get, loop, get.ended[1])
    assert on(loop, get.tool("A")) == "A1"
    assert get.runs == [loop, loop]
    assert proxy.claimed(2)[1]["outcome"] in SERVED


def test_a_claim_from_another_loop_gets_the_result_of_the_first(second, loops):
    get, loop = Get(), loops()
    proxy = second(get, loop, get.ended[1])
    assert on(loops(), get.tool("A")) == "A1"
    assert proxy.claimed(2)[1]["outcome"] in SERVED


def test_a_call_that_meets_its_run_waits_without_blocking_its_loop(second, loops):
    hold = Gate()
    get, loop = Get(run1=hold), loops()
    proxy = second(get, loop, get.began[1])

    async def claim() -> str:
        task = asyncio.ensure_future(get.tool("A"))
        await asyncio.sleep(0)
        hold.open()
        return await task

    assert on(loop, claim()) == "A1"
    assert proxy.claimed(2)[1]["outcome"] in SERVED


def test_a_run_that_hangs_is_overtaken_by_a_second_one(second, loops):
    get, loop = Get(run1=Gate()), loops()
    proxy = second(get, loop, get.began[1])
    began = time.monotonic()
    assert on(loop, get.tool("A")) == "A2"
    assert time.monotonic() - began < 3.0
    assert len(get.runs) == 3
    assert [bet["outcome"] for bet in proxy.settled()] == ["failed"]
    eventually(lambda: get.cancelled == [1], "the hanging run is cancelled")


def test_a_cancelled_claim_cancels_its_run(second, loops):
    get, loop = Get(run1=Gate(), run2=Gate()), loops()
    proxy = second(get, loop, get.began[1])

    async def claim() -> None:
        task = asyncio.ensure_future(get.tool("A"))
        await asyncio.sleep(0.02)  # let it find its run
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on(loop, claim())
    eventually(lambda: 1 in get.cancelled, "the run ahead is cancelled")
    assert len(proxy.settled()) == 1
    assert not proxy.deps.desk.books._open


def test_a_claim_with_a_deadline_ends_at_its_deadline(second, loops):
    get, loop = Get(run1=Gate(), run2=Gate()), loops()
    second(get, loop, get.began[1])

    async def claim() -> None:
        async with asyncio.timeout(0.5):
            await get.tool("A")

    with pytest.raises(TimeoutError):
        on(loop, claim())
    eventually(lambda: sorted(get.cancelled) == [1] or sorted(get.cancelled) == [1, 2], "all runs are cancelled")
    eventually(lambda: len(get.cancelled) == len(get.runs) - 1)


def test_a_dropped_bet_cancels_its_task(endpoint, start, join, agent_of, loops):
    get, loop = Get(run1=Gate()), loops()
    proxy = start(Guesses(lambda turn: [ToolCall("get", {"key": "A"})] if len(turn.history) == 3 else []))
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.answers(asks_for("get", {"key": "A"}), [get.began[1]])
    (first,) = agent.think()
    agent.told(first, on(loop, get.tool("A")))
    proxy.claimed()
    agent.think()
    eventually(lambda: get.cancelled == [1])
    assert [bet["outcome"] for bet in proxy.settled()] == ["miss"]


def test_nothing_runs_ahead_on_a_loop_that_has_ended(endpoint, start, join, agent_of):
    get = Get()
    proxy = start(Guesses(ToolCall("get", {"key": "A"})), chain_depth=0)  # a chain may run while the agent's loop does
    agent = agent_of(join(proxy, get.tool), get.tool)
    endpoint.script = lambda exchange, number: asks_for("get", {"key": "A"}, id=f"c{number}")
    for number in range(3):
        (made,) = agent.think()
        assert agent.told(made, asyncio.run(get.tool("A"))) == f"A{number}"
    assert len(get.runs) == 3
    outcomes = {bet["outcome"] for bet in proxy.settled(3)}
    assert outcomes <= {"vetoed", "unclaimed"}, "unclaimed: the answer ended before the agent's process had said no"


def test_loops_that_end_in_mid_run_leave_no_run_behind(endpoint, start, join, agent_of):
    """asyncio.run for each turn, twelve times, a run ahead under way at each end."""
    get = Get(**{f"run{n}": Gate() for n in range(1, 99)})
    get.began = {n: Gate() for n in range(99)}
    get.ended = {n: Gate() for n in range(99)}
    proxy = start(Guesses(ToolCall("get", {"key": "A"})))
    runtime = join(proxy, get.tool)

    async def turns(agent: Any) -> None:
        started = len(get.runs)
        endpoint.script = lambda exchange, number: [get.began[started + 1]]
        task = asyncio.ensure_future(get.tool("first"))  # seen on this loop
        await asyncio.sleep(0.01)
        await asyncio.to_thread(agent.think)
        task.cancel()

    for _ in range(12):
        asyncio.run(turns(agent_of(runtime, get.tool)))
    loop_runs = [loop for loop in get.runs if not loop.is_closed()]
    assert loop_runs == []
    refused = [bet for bet in proxy.settled(12) if "runs ahead are going on" in (bet["reason"] or "")]
    assert refused == []


def test_an_exception_of_an_async_tool_reaches_the_agent_once(endpoint, start, join, agent_of, loops):
    runs: list[int] = []

    @speculate(effect="read", stable_for=30.0)
    async def get(key: str) -> str:
        runs.append(1)
        raise LookupError(key)

    proxy = start()
    join(proxy, get)
    with pytest.raises(LookupError):
        on(loops(), get("A"))
    assert len(runs) == 1


def test_each_user_of_an_async_tool_gets_its_own(endpoint, start, join, agent_of, loops):
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
    runs: list[str] = []
    ran = Gate()

    @speculate(effect="read", stable_for=30.0)
    async def mine() -> str:
        runs.append(user.get())
        if len(runs) == 2:
            ran.open()
        return f"orders of {user.get()}"

    async def as_user(name: str) -> str:
        user.set(name)
        return await mine()

    proxy = start(Guesses(lambda turn: [ToolCall("mine", {})] if len(turn.history) == 3 else []))
    agent = agent_of(join(proxy, mine), mine)
    endpoint.answers(asks_for("mine", id="c0"), asks_for("mine", after=ran, id="c1"))
    loop = loops()
    (first,) = agent.think()
    agent.told(first, on(loop, as_user("A")))
    proxy.claimed()
    agent.think()
    assert on(loop, as_user("B")) == "orders of B"
    assert on(loop, as_user("A")) == "orders of A"
    assert runs == ["A", "A", "B"]
