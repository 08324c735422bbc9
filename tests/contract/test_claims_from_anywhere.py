"""Claims from threads, loops and frameworks' executors; calls that meet a run that is not over yet."""

from __future__ import annotations

import asyncio
import contextvars
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, eventually
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS

SERVED = ("hit", "joined")


class Get:
    """A tool whose runs block on gates of the test's: `holds[i]` for the i-th run."""

    def __init__(self, *holds: Gate) -> None:
        self.threads: list[str] = []
        self.began = Gate()
        self.ended = Gate()

        @speculate(effect="read", reads={"things"}, stable_for=30.0)
        def get(key: str) -> str:
            number = len(self.threads)
            self.threads.append(threading.current_thread().name)
            self.began.open()
            if number < len(holds):
                holds[number].wait(8.0)
            self.ended.open()
            return f"{key}{number}"

        self.tool = get


def in_bare_thread(function: Callable[..., Any]) -> Any:
    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(function()))
    thread.start()
    thread.join()
    return box[0]


def in_pool(function: Callable[..., Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def in_pool_with_context(function: Callable[..., Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, function).result()


def inside_a_loop(function: Callable[..., Any]) -> Any:
    async def main() -> Any:
        return function()

    return asyncio.run(main())


def to_thread(function: Callable[..., Any]) -> Any:
    return asyncio.run(asyncio.to_thread(function))


@pytest.mark.parametrize(
    "how", [lambda f: f(), in_bare_thread, in_pool, in_pool_with_context, inside_a_loop, to_thread],
    ids=["here", "thread", "pool", "pool with context", "in a loop", "to_thread"],
)  # fmt: skip
def test_a_plain_tool_is_served_wherever_it_is_called(ready, how):
    get = Get()
    proxy, _ = ready(get.tool, get.ended)
    assert how(lambda: get.tool("A")) == "A0"
    assert len(get.threads) == 1
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_call_that_meets_its_run_waits_for_it(ready):
    hold = Gate()
    get = Get(hold)
    proxy, _ = ready(get.tool, get.began)
    threading.Timer(0.1, hold.open).start()
    assert get.tool("A") == "A0"
    assert len(get.threads) == 1
    assert proxy.claimed()[0]["outcome"] == "joined"
    assert [bet["outcome"] for bet in proxy.settled()] == ["joined"]


def test_a_run_that_hangs_is_overtaken_by_a_second_one(ready):
    hold = Gate()
    get = Get(hold)
    proxy, _ = ready(get.tool, get.began)
    began = time.monotonic()
    assert get.tool("A") == "A1"
    assert time.monotonic() - began < 3.0
    assert len(get.threads) == 2
    assert [bet["outcome"] for bet in proxy.settled()] == ["failed"]
    hold.open()


def test_a_hanging_run_that_ends_during_the_second_one_is_used(ready):
    first, second = Gate(), Gate()
    get = Get(first, second)
    ready(get.tool, get.began)
    threading.Timer(0.7, first.open).start()
    assert get.tool("A") == "A0"
    assert len(get.threads) == 2
    second.open()


def test_an_overtaken_run_that_raises_leaves_the_second_one(endpoint, ready):
    hold, began = Gate(), Gate()
    runs: list[int] = []

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        runs.append(1)
        if len(runs) == 1:
            began.open()
            hold.wait()
            raise ConnectionError("late")
        hold.open()
        time.sleep(0.05)  # the first one fails while this runs
        return "second"

    ready(get, began)
    assert get("A") == "second"
    assert len(runs) == 2


def test_a_tool_that_needs_the_agents_own_thread_is_not_broken_by_a_second_run(ready):
    """As sqlite3 connections do: serially it works, so it has to work with us."""
    home = threading.current_thread()
    began, may_go = Gate(), Gate()

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        began.open()
        if threading.current_thread() is not home:
            may_go.wait(0.7)  # slow until it touches what is bound to its thread
            raise RuntimeError("created in another thread")
        return "fine"

    ready(get, began)
    assert get("A") == "fine"


def test_a_tool_known_to_be_fast_is_not_waited_for_longer_than_it_takes(endpoint, start, join, agent_of):
    hold, began, runs = Gate(), Gate(), []

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        runs.append(key)
        if len(runs) == 6:
            began.open()
            hold.wait(8.0)
        return key

    proxy = start(Guesses(ToolCall("get", {"key": "A"})))
    agent = agent_of(join(proxy, get), get)
    for _ in range(5):
        get("warm-up")
    endpoint.answers(asks_for("get", {"key": "A"}, after=began))
    agent.think()
    started = time.monotonic()
    assert get("A") == "A"
    assert time.monotonic() - started < 0.25  # it takes no time; without measurements it would be a quarter second
    hold.open()


def test_what_a_run_does_to_its_arguments_stays_with_it(endpoint, start, join, agent_of):
    ran = Gate()

    @speculate(effect="pure")
    def total(numbers: list[int]) -> int:
        numbers.append(100)
        ran.open()
        return sum(numbers)

    proxy = start(Guesses(ToolCall("total", {"numbers": [1, 2]})))
    agent = agent_of(join(proxy, total), total)
    endpoint.answers(asks_for("total", {"numbers": [1, 2]}, after=ran))
    agent.think()
    mine = [1, 2]
    assert total(mine) == 103
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_a_dozen_threads_with_one_run_ahead_share_nothing(ready):
    get = Get()
    proxy, _ = ready(get.tool, get.ended)
    with ThreadPoolExecutor(12) as pool:
        results = list(pool.map(lambda _: get.tool("A"), range(12)))
    assert len(set(results)) == 12
    assert len(get.threads) == 12
    assert sum(claim["outcome"] in SERVED for claim in proxy.claimed(12)) == 1


def test_a_cancelled_bet_does_not_reach_anyone(endpoint, ready):
    hold = Gate()
    get = Get(hold)
    proxy, agent = ready(get.tool, get.began)
    agent.messages.append({"role": "tool", "tool_call_id": "call_1", "content": "no"})
    agent.think()
    assert [bet["outcome"] for bet in proxy.settled()] == ["unclaimed"]
    hold.open()
    eventually(lambda: get.ended.is_open)
    assert get.tool("A") == "A1"


def test_at_most_eight_runs_go_on_and_the_places_come_back(endpoint, start, join, agent_of):
    hold, more, began = Gate(), Gate(), []

    @speculate(effect="read", stable_for=30.0)
    def get(key: str) -> str:
        began.append(key)
        if len(began) > 8:
            more.open()
        hold.wait()
        return key

    def turn_guesses(turn):
        return [ToolCall("get", {"key": f"{json.loads(turn.body)['messages'][0]['content']}{i}"}) for i in range(6)]

    proxy = start(Guesses(turn_guesses), max_runs_per_turn=6)
    agent = agent_of(join(proxy, get), get, question="first")
    for question in ("first", "second"):
        agent.messages = [{"role": "user", "content": question}]
        agent.think()
    eventually(lambda: len(proxy.bets()) == 12 and len(began) >= 8)
    assert len(began) == 8
    hold.open()
    agent.messages = [{"role": "user", "content": "third"}]
    endpoint.script = lambda exchange, number: asks_for("get", {"key": "third0"}, after=more)
    agent.think()
    assert len(began) > 8  # the places came back
