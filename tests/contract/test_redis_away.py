"""Without the Redis that tells of other processes' writes, tools run plainly, at once, and it is said once."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import agentspec
from agentspec import speculate
from agentspec.errors import ConfigError, ToolRefused
from agentspec.tools_sandbox import shared as shared_module
from agentspec.tools_sandbox.shared import SharedDomains
from tests.contract.redis_servers import BINARY, RedisServer
from tests.contract.sandboxed import Scene
from tests.contract.scripted import eventually

pytestmark = pytest.mark.skipif(BINARY is None, reason="the program redis-server is not installed")

ORDERS = frozenset({"orders"})
LIMIT_S = 0.5


@pytest.fixture
def server(tmp_path) -> Iterator[RedisServer]:
    running = RedisServer(tmp_path)
    yield running
    running.close()


@pytest.fixture(autouse=True)
def _short_avoidance(monkeypatch):
    monkeypatch.setattr(shared_module, "_AVOID_S", 0.3)


class Shop:
    """A read and writes of the same state, in this process."""

    def __init__(self) -> None:
        self.runs = 0

        @speculate(effect="read", stable_for=30.0, reads={"orders"})
        def get(order_id: str) -> int:
            self.runs += 1
            return self.runs

        @speculate(effect="write", writes={"orders"})
        def close(order_id: str) -> str:
            return "closed"

        @speculate(effect="write", writes={"orders"})
        async def close_soon(order_id: str) -> str:
            return "closed"

        @speculate(effect="pure")
        def double(number: int) -> int:
            return 2 * number

        self.tools = (get, close, close_soon, double)
        self.get, self.close, self.close_soon, self.double = self.tools


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def made(endpoint, start, agent_of, cleanup, server, shop) -> Scene:
    """A scene whose process shares its writes by the server."""

    def join(proxy: Any, *tools: Any) -> Any:
        runtime = agentspec.connect(proxy.url, tools=tools, api_key="k", redis=server.url, wait_s=5.0)
        cleanup.callback(runtime.close)
        return runtime

    return partial(Scene, endpoint, start, join, agent_of)(*shop.tools)


@pytest.fixture
def elsewhere(server, cleanup) -> SharedDomains:
    """Another process of the tenant."""
    other = SharedDomains(server.url, "k")
    cleanup.callback(other.close)
    return other


def quickly(act: Any) -> Any:
    began = time.monotonic()
    result = act()
    assert time.monotonic() - began < LIMIT_S
    return result


@pytest.fixture(params=["stopped", "hanging"])
def gone(request, server):
    """gone(): from now on Redis is away, in one of two ways."""
    return server.stop if request.param == "stopped" else server.hang


def test_without_redis_a_read_that_waits_is_not_served(made, shop, gone):
    agent, calls = made.asked("get", order_id="A1")
    gone()
    assert quickly(lambda: agent.act(calls)) == [2]
    assert made.outcomes == ["stale"]
    assert "cannot be asked" in made.bets()[0]["reason"]


def test_without_redis_no_read_runs_ahead(made, shop, gone):
    gone()
    assert quickly(lambda: made.play("get", order_id="A1")) == 1
    assert made.outcomes == ["vetoed"]
    assert "Redis" in made.bets()[0]["reason"]


def test_without_redis_what_depends_on_nothing_runs_ahead(made, shop, gone):
    gone()
    made.play("get", order_id="A1")
    assert made.play("double", number=4) == 8
    assert made.outcomes[-1] == "hit"


def test_without_redis_writes_go_on_and_take_no_time(made, shop, gone):
    gone()
    assert quickly(lambda: shop.close("A1")) == "closed"
    assert quickly(lambda: asyncio.run(shop.close_soon("A1"))) == "closed"
    began = time.monotonic()
    for _ in range(100):
        shop.close("A1")
    assert time.monotonic() - began < 1.5, "it is avoided for a moment, and not asked each time"


def test_that_redis_is_away_is_said_once(made, shop, gone, caplog):
    with caplog.at_level(logging.INFO, "agentspec.shared"):
        gone()
        deadline = time.monotonic() + 1.2  # several times as long as it is avoided
        while time.monotonic() < deadline:
            shop.close("A1")
            time.sleep(0.02)
    said = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(said) == 1
    assert "nothing runs ahead until it is back" in said[0].getMessage()


def test_when_redis_is_back_reads_run_ahead_again_and_what_was_written_meanwhile_is_told(
    made, shop, server, elsewhere, gone
):
    before = elsewhere.stamp(ORDERS)
    gone()
    shop.close("A1")
    assert made.play("get", order_id="A1") == 1
    server.go_on()
    if server.ended:
        server.start()
    eventually(lambda: not elsewhere.unchanged(ORDERS, before) and unlisted(elsewhere), "the write was told")
    assert made.play("get", order_id="B2") == 2
    assert made.outcomes == ["vetoed", "hit"]


def unlisted(shared: SharedDomains) -> bool:
    try:
        shared.stamp(ORDERS)
    except ToolRefused:
        return False
    return True


def test_a_write_that_is_owed_is_told_though_the_process_does_nothing_more(made, shop, server, elsewhere):
    before = elsewhere.stamp(ORDERS)
    server.stop()
    shop.close("A1")
    server.start()
    eventually(lambda: unlisted(elsewhere) and not elsewhere.unchanged(ORDERS, before), "the write was told", 5.0)


def test_a_write_that_is_owed_is_told_though_the_process_has_other_things_to_do(made, shop, server, elsewhere):
    """Its channel is never quiet."""
    before = elsewhere.stamp(ORDERS)
    server.stop()
    shop.close("A1")
    server.start()
    deadline = time.monotonic() + 4
    while time.monotonic() < deadline and not (unlisted(elsewhere) and not elsewhere.unchanged(ORDERS, before)):
        made.play("double", number=4)
    assert not elsewhere.unchanged(ORDERS, before)


def test_a_redis_that_has_lost_its_data_tells_no_old_version_twice(elsewhere, server, cleanup):
    """A read of before it is not served, though the counters have come to the same numbers again."""
    writer = SharedDomains(server.url, "k")
    cleanup.callback(writer.close)
    before = elsewhere.stamp(ORDERS)
    writer.end_write(writer.begin_write(ORDERS), ORDERS)
    server.lose_everything()
    assert not elsewhere.unchanged(ORDERS, before)


def test_what_is_no_url_is_refused_with_an_example():
    for bad in ("127.0.0.1:6379", "http://127.0.0.1", "redis://127.0.0.1:port", ""):
        with pytest.raises(ConfigError, match="redis://"):
            SharedDomains(bad, "k")


def test_a_redis_that_was_never_there_costs_nothing_but_the_bets(endpoint, start, agent_of, cleanup, shop):
    def join(proxy: Any, *tools: Any) -> Any:
        runtime = agentspec.connect(proxy.url, tools=tools, api_key="k", redis="redis://127.0.0.1:1/0", wait_s=5.0)
        cleanup.callback(runtime.close)
        return runtime

    made = Scene(endpoint, start, join, agent_of, *shop.tools)
    assert quickly(lambda: made.play("get", order_id="A1")) == 1
    assert quickly(lambda: shop.close("A1")) == "closed"
    assert made.outcomes == ["vetoed"]


def test_a_runtime_that_is_closed_is_asked_and_told_nothing_more(made, shop, server, monkeypatch):
    shared, told = made.runtime._runtime.shared, []
    made.runtime.close()
    monkeypatch.setattr(shared, "_call", lambda *args: told.append(args))
    assert shop.close("A1") == "closed"
    assert asyncio.run(shop.close_soon("A1")) == "closed"
    assert shop.get("A1") == 1
    assert told == []
