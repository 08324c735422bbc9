"""A write in one process of a tenant makes the reads of all its processes stale, and nobody else's."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract.other_agents import OtherAgent
from tests.contract.redis_servers import REDIS, away
from tests.contract.sandboxed import Scene, longest_pause
from tests.contract.scripted import Gate, eventually

pytestmark = pytest.mark.skipif(away(REDIS), reason=f"no Redis at {REDIS}")


@pytest.fixture
def join(join_and_share):
    """This process shares its writes."""
    return join_and_share


@pytest.fixture(scope="module")
def idle() -> Any:
    """Agents that have parted with their proxies: to start one takes a while."""
    agents: list[OtherAgent] = []
    yield agents
    for agent in agents:
        agent.close()


@pytest.fixture
def other(cleanup, tenant, idle):
    """other(made, tenant, redis): another agent, of the same tenant unless told otherwise."""

    def parted(agent: OtherAgent) -> None:
        if agent.lives:
            agent.say("part", "parted")
            idle.append(agent)
        else:
            agent.close()

    def joined(made: Scene, of: str = tenant, redis: str = REDIS) -> OtherAgent:
        agent = idle.pop() if idle else OtherAgent()
        cleanup.callback(parted, agent)
        agent.join(made.proxy.url, of, redis)
        return agent

    return joined


class Read:
    """A read that counts its runs."""

    def __init__(self, **options: Any) -> None:
        self.runs = 0
        self.may_end = Gate()
        self.may_end.open()

        @speculate(**{"effect": "read", "stable_for": 30.0, "reads": {"orders"}, **options})
        def get(order_id: str) -> int:
            self.runs += 1
            number = self.runs
            self.may_end.wait(5)
            return number

        self.tool = get


ORDERS = frozenset({"orders"})
BY_ORDER = {"reads": lambda order_id: {f"order:{order_id}"}}
OF_ALL = {"reads": set()}


@pytest.mark.parametrize(
    ("options", "writer", "written", "stale"),
    [
        ({}, "write_orders", "A1", True),
        ({}, "write_all", "A1", True),
        ({}, "write_users", "A1", False),
        ({}, "write_order", "A1", False),
        (BY_ORDER, "write_order", "A1", True),
        (BY_ORDER, "write_order", "B2", False),
        (BY_ORDER, "write_orders", "A1", False),
        (BY_ORDER, "write_all", "B2", True),
        (OF_ALL, "write_users", "A1", True),
        (OF_ALL, "write_order", "B2", True),
        (OF_ALL, "write_all", "A1", True),
        ({"effect": "pure", "reads": set()}, "write_all", "A1", False),
        ({"reads": {"orders", "users"}}, "write_users", "A1", True),
    ],
)
def test_a_write_elsewhere_makes_stale_what_it_overlaps_with(scene, other, options, writer, written, stale):
    read = Read(**options)
    made = scene(read.tool)
    agent, calls = made.asked("get", order_id="A1")
    other(made).write(writer, written)
    assert agent.act(calls) == [2 if stale else 1]
    assert made.outcomes == ["stale" if stale else "hit"]


def test_a_write_elsewhere_that_came_before_the_run_makes_nothing_stale(scene, other):
    read = Read()
    made = scene(read.tool)
    other(made).write("write_orders")
    assert made.play("get", order_id="A1") == 1
    assert made.outcomes == ["hit"]


def test_while_a_write_elsewhere_lasts_no_read_of_it_starts_and_afterwards_they_do(scene, other):
    read = Read()
    made = scene(read.tool)
    writer = other(made)
    writer.say("begin write_orders A1", "writing")
    assert made.play("get", order_id="A1") == 1
    assert made.bets()[0]["reason"] == "another process is writing what this call depends on"
    writer.say("end A1", "ended")
    assert made.play("get", order_id="B2") == 2
    assert made.outcomes == ["vetoed", "hit"]


def test_a_read_that_began_before_a_write_elsewhere_is_not_served_while_that_lasts(scene, other):
    read = Read()
    made = scene(read.tool)
    writer = other(made)
    agent, calls = made.asked("get", order_id="A1")
    writer.say("begin write_orders A1", "writing")
    assert agent.act(calls) == [2]
    assert made.outcomes == ["stale"]
    writer.say("end A1", "ended")


def test_two_writes_elsewhere_are_both_waited_for(scene, other):
    read = Read()
    made = scene(read.tool)
    one, two = other(made), other(made)
    one.say("begin write_orders A1", "writing")
    two.say("begin write_orders A1", "writing")
    one.say("end A1", "ended")
    assert made.play("get", order_id="A1") == 1
    two.say("end A1", "ended")
    assert made.play("get", order_id="B2") == 2
    assert made.outcomes == ["vetoed", "hit"]


def test_another_tenants_writes_change_nothing(scene, other, tenant):
    read = Read()
    made = scene(read.tool)
    agent, calls = made.asked("get", order_id="A1")
    stranger = other(made, of=f"{tenant}-neighbour")
    stranger.write("write_all")
    stranger.say("begin write_all B2", "writing")
    assert agent.act(calls) == [1]
    assert made.play("get", order_id="C3") == 2
    assert made.outcomes == ["hit", "hit"]
    stranger.say("end B2", "ended")


def test_a_process_that_shares_nothing_is_on_its_own(scene, other):
    read = Read()
    made = scene(read.tool)
    agent, calls = made.asked("get", order_id="A1")
    other(made, redis="-").write("write_all")
    assert agent.act(calls) == [1]


def test_a_write_here_makes_a_read_here_stale_as_without_sharing(scene):
    @speculate(effect="write", writes={"orders"})
    def close(order_id: str) -> str:
        return "closed"

    read = Read()
    made = scene(read.tool, close)
    agent, calls = made.asked("get", order_id="A1")
    close("A1")
    assert agent.act(calls) == [2]
    assert made.play("get", order_id="B2") == 3, "it is over: reads run ahead again"
    assert made.outcomes == ["stale", "hit"]


def test_a_write_that_raises_has_written_elsewhere_all_the_same_and_is_over(scene):
    @speculate(effect="write", writes={"orders"})
    def half(order_id: str) -> None:
        raise ConnectionError("lost")

    @speculate(effect="write", writes={"orders"})
    async def half_soon(order_id: str) -> None:
        raise ConnectionError("lost")

    read = Read()
    made = scene(read.tool)
    writer = scene(half, half_soon)
    shared = made.runtime._runtime.shared
    for write in (lambda: half("A1"), lambda: asyncio.run(half_soon("A1"))):
        before = shared.stamp(ORDERS)
        with pytest.raises(ConnectionError):
            write()
        assert not shared.unchanged(ORDERS, before)
        assert shared.unchanged(ORDERS, shared.stamp(ORDERS)), "it is over"
    writer.runtime.close()


def test_a_writer_that_dies_in_the_middle_holds_reads_back_and_then_is_taken_to_be_over(scene, other, tenant):
    read = Read()
    made = scene(read.tool)
    dead = SharedDomains(REDIS, tenant, write_limit_s=1.5)
    agent, calls = made.asked("get", order_id="A1")
    dead.begin_write(ORDERS)
    dead.close()
    assert agent.act(calls) == [2]
    assert made.play("get", order_id="B2") == 3
    assert made.outcomes == ["stale", "vetoed"]
    eventually(lambda: settled_down(made), "its limit has passed")
    assert made.play("get", order_id="C3") == 4
    assert made.outcomes[-1] == "hit"


def settled_down(made: Scene) -> bool:
    """Whether no write to the orders is listed."""
    try:
        made.runtime._runtime.shared.stamp(ORDERS)
    except ToolRefused:
        return False
    return True


def test_a_killed_process_holds_reads_back(scene, other):
    read = Read()
    made = scene(read.tool)
    writer = other(made)
    agent, calls = made.asked("get", order_id="A1")
    writer.say("begin write_orders A1", "writing")
    writer.kill()
    assert agent.act(calls) == [2]
    assert made.play("get", order_id="B2") == 3
    assert made.outcomes == ["stale", "vetoed"]


def test_an_async_tool_shares_its_writes_and_does_not_block_the_loop(scene, other, monkeypatch):
    @speculate(effect="write", writes={"orders"})
    async def close_soon(order_id: str) -> str:
        return "closed"

    made = scene(close_soon, Read().tool)
    shared = made.runtime._runtime.shared
    slowly = shared._call

    def call(*args: Any) -> Any:
        time.sleep(0.2)
        return slowly(*args)

    monkeypatch.setattr(shared, "_call", call)
    assert asyncio.run(longest_pause(close_soon("A1"))) < 0.1


def test_an_async_read_asks_without_blocking_the_loop(scene, monkeypatch):
    @speculate(effect="read", stable_for=30.0, reads={"orders"})
    async def get_soon(order_id: str) -> str:
        return order_id

    made = scene(get_soon)
    shared = made.runtime._runtime.shared
    slowly = shared._call

    def call(*args: Any) -> Any:
        time.sleep(0.2)
        return slowly(*args)

    async def two_calls() -> float:
        await get_soon("A1")  # it is known on which loop it runs
        made.guesses = [ToolCall("get_soon", {"order_id": "B2"})]
        agent, calls = await asyncio.to_thread(made.asked, "get_soon", order_id="B2")
        monkeypatch.setattr(shared, "_call", call)
        return await longest_pause(agent.tools["get_soon"](**calls[0].arguments))

    assert asyncio.run(two_calls()) < 0.1
    assert made.outcomes == ["hit"]
