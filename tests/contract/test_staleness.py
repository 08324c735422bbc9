"""No stale result is handed over: writes in this process, and age."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agentspec import speculate
from tests.contract.sandboxed import ran_ahead
from tests.contract.scripted import Gate, asks_for, eventually
from tests.contract.shop import GUESS, SERVED, Shop
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS


def test_a_write_between_run_and_call_makes_the_result_stale(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.close_order("A1")
    assert agent.act(calls) == ["A1 closed"]
    assert {b["tool"]: b["outcome"] for b in agent.proxy.settled(2) if b["tool"] != "add"} == {"get_order": "stale"}


def test_a_write_that_names_no_domain_makes_every_read_stale(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.launch("A1")
    assert agent.act(calls) == ["A1 gone"]


def test_a_write_in_another_domain_changes_nothing(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    eventually(lambda: shop.runs == 2)
    shop.send_mail("A1")
    assert agent.act(calls) == ["A1 open"]
    assert shop.runs == 2
    assert next(c for c in agent.proxy.claimed(2) if c["tool"] == "get_order")["outcome"] in SERVED


def test_a_write_that_still_runs_blocks_the_read(endpoint, agent, shop):
    shop.may_end = Gate()
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.writing))
    writer = threading.Thread(target=shop.close_order, args=("A1",))
    writer.start()
    shop.writing.wait()
    assert agent.turn() == ["A1 open"]  # as it would be without us: the write has not happened yet
    (outcome,) = [bet["outcome"] for bet in agent.proxy.settled(2) if bet["tool"] == "get_order"]
    assert outcome in ("vetoed", "stale", "miss")
    shop.may_end.open()
    writer.join()


def test_a_read_that_began_during_a_write_is_not_served_after_it(endpoint, agent, shop):
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    shop.may_end = Gate()
    calls = agent.think()
    writer = threading.Thread(target=shop.close_order, args=("A1",))
    writer.start()
    shop.writing.wait()
    shop.may_end.open()
    writer.join()
    assert agent.act(calls) == ["A1 closed"]


def test_a_write_that_raises_has_written_all_the_same(endpoint, start, join, agent_of, shop):
    @speculate(effect="write", writes={"orders"})
    def half_write(order_id: str) -> None:
        shop.state = "half"
        raise ConnectionError("lost")

    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order, half_write), shop.get_order, half_write)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    with pytest.raises(ConnectionError):
        half_write("A1")
    assert agent.act(calls) == ["A1 half"]


def test_a_result_older_than_stable_for_is_not_served(endpoint, start, join, agent_of):
    shop = Shop(stable_for=0.3)
    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order), shop.get_order)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.state = "changed behind our back"
    time.sleep(0.35)  # age itself is what is tested
    assert agent.act(calls) == ["A1 changed behind our back"]
    (bet,) = proxy.settled()
    assert bet["outcome"] == "stale"


def test_a_write_that_was_not_handed_to_the_runtime_makes_reads_stale_as_well(endpoint, start, join, agent_of, shop):
    """connect(tools=[the reads]); the write is called by other code of the same process."""
    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order), shop.get_order)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    shop.close_order("A1")
    assert agent.act(calls) == ["A1 closed"]


def test_an_async_write_that_is_cancelled_has_written_all_the_same(endpoint, start, join, agent_of, shop):
    @speculate(effect="write", writes={"orders"})
    async def slow_write(order_id: str) -> None:
        shop.state = "half"
        await asyncio.sleep(60)

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(slow_write("A1"), 0.05)

    proxy = start(Guesses(GUESS))
    agent = agent_of(join(proxy, shop.get_order, slow_write), shop.get_order)
    endpoint.answers(asks_for("get_order", GUESS.arguments, after=shop.ran))
    calls = agent.think()
    asyncio.run(give_up())
    assert agent.act(calls) == ["A1 half"]
    ran = ran_ahead(proxy)
    endpoint.script = lambda exchange, number: asks_for("get_order", GUESS.arguments, after=ran, id="c2")
    assert agent.turn() == ["A1 half"]
    assert proxy.claimed(3)[-1]["outcome"] in SERVED, "a write that was cancelled is over"
