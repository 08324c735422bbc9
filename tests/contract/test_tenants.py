"""Tenants with keys of the proxy's own never meet: not in a runtime, not in a trajectory, not in the ledger."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import agentspec
from agentspec.proxy.doors import hash_of, new_key
from agentspec.tools_sandbox.connect import Connection
from tests.contract.api_agents import ResponsesAgent
from tests.contract.dialects import Made
from tests.contract.support import Guesses
from tests.contract.turns import SERVED, Get, next_key, trajectories

EAST, WEST, ALSO_EAST = new_key(), new_key(), new_key()
KEYS = [
    {"tenant": tenant, "sha256": hash_of(key).hex()}
    for tenant, key in (("acme-east", EAST), ("acme-west", WEST), ("acme-east", ALSO_EAST))
]


@pytest.fixture
def get() -> Get:
    return Get()


@pytest.fixture
def proxy(start: Any) -> Any:
    return start(Guesses(next_key), keys=KEYS)


@pytest.fixture
def enter(proxy: Any, cleanup: Any) -> Callable[..., Connection]:
    """enter(key, tool): this process as a runtime under that key."""

    def entered(key: str, *tools: Any) -> Connection:
        runtime = agentspec.connect(proxy.url, tools=tools, api_key=key, wait_s=5.0)
        cleanup.callback(runtime.close)
        return runtime

    return entered


def ask(endpoint: Any, agent: Any, get: Get, *, wait: bool = True) -> list[Any]:
    """One turn; without `wait` the answer does not wait for a run ahead."""
    made = get.asked(0) if wait else [Made("get", {"key": "k0"}, "c_0")]
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, made)
    return agent.turn()


def test_a_runtime_serves_its_own_tenant(endpoint: Any, proxy: Any, enter: Any, get: Get) -> None:
    runtime = enter(EAST, get.tool)
    assert ask(endpoint, ResponsesAgent(runtime.base_url, [get.tool], key=EAST), get) == ["k0!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_the_runtime_is_found_by_its_tools_under_any_key_of_its_tenant(
    endpoint: Any, proxy: Any, enter: Any, get: Get
) -> None:
    enter(EAST, get.tool)
    assert ask(endpoint, ResponsesAgent(f"{proxy.url}/v1", [get.tool], key=ALSO_EAST), get) == ["k0!"]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_the_runtime_of_another_tenant_is_not_found_by_its_tools(
    endpoint: Any, proxy: Any, enter: Any, get: Get
) -> None:
    enter(EAST, get.tool)
    assert ask(endpoint, ResponsesAgent(f"{proxy.url}/v1", [get.tool], key=WEST), get, wait=False) == ["k0!"]
    assert proxy.bets() == []
    assert proxy.claimed()[0]["outcome"] == "miss"


@pytest.mark.parametrize("way", ["path", "header"])
def test_nothing_runs_ahead_in_another_tenants_process_even_if_its_id_is_known(
    endpoint: Any, proxy: Any, enter: Any, get: Get, way: str
) -> None:
    runtime = enter(EAST, get.tool)
    agent = ResponsesAgent(runtime.base_url if way == "path" else f"{proxy.url}/v1", [], key=WEST)
    agent.schemas = ResponsesAgent("", [get.tool]).schemas
    agent.headers |= runtime.headers if way == "header" else {}
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, [Made("get", {"key": "k0"}, "c_0")])
    agent.think()
    trajectories(proxy, 1)
    assert get.runs == []
    assert [bet for bet in proxy.bets() if bet["outcome"] != "vetoed"] == []


def test_a_write_under_another_tenants_key_in_the_same_process_still_holds_its_reads_back(
    endpoint: Any, proxy: Any, enter: Any, get: Get
) -> None:
    """Nobody declared `cancel`: that it is called in this process can be seen in the relay alone."""
    runtime = enter(EAST, get.tool)
    agent = ResponsesAgent(runtime.base_url, [get.tool], key=EAST)
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, get.asked(0))
    calls = agent.think()
    other = ResponsesAgent(runtime.base_url, [get.tool], key=WEST)
    endpoint.script = lambda exchange, number: agent.reply(exchange, number, [Made("cancel", {}, "c_w")])
    other.think()
    assert agent.act(calls) == ["k0!"]
    assert get.runs == ["k0", "k0"], "read anew, after the write"


@pytest.mark.parametrize("session", [{}, {"x-agentspec-session": "s-1"}], ids=["by messages", "by session"])
def test_two_tenants_with_one_conversation_are_two_trajectories(
    endpoint: Any, proxy: Any, get: Get, session: dict[str, str]
) -> None:
    agents = [ResponsesAgent(f"{proxy.url}/v1", [get.tool], key=key) for key in (EAST, WEST)]
    agents[1].items = list(agents[0].items)
    for agent in agents:
        agent.headers |= session
        ask(endpoint, agent, get, wait=False)
    agents[1].items = list(agents[0].items)
    for agent in agents:
        agent.script(endpoint)
        agent.think()
    trajectories(proxy, 2, 2)


@pytest.mark.parametrize("key", ["", "k", "ask-wrong"])
def test_a_runtime_without_a_key_of_ours_is_not_let_in(
    proxy: Any, cleanup: Any, get: Get, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    runtime = agentspec.connect(proxy.url, tools=[get.tool], api_key=key, wait_s=0.3)
    cleanup.callback(runtime.close)
    assert not runtime.connected
    assert len(proxy.deps.runtimes) == 0
    assert get.tool("k0") == "k0!", "its tools run plainly"
    assert "ask-wrong" not in caplog.text


@pytest.mark.parametrize("gone", [True, False])
def test_our_key_does_not_reach_the_endpoint_even_when_the_proxy_is_gone(
    endpoint: Any, proxy: Any, enter: Any, get: Get, gone: bool
) -> None:
    runtime = enter(EAST, get.tool)
    if gone:
        proxy.stop()
    with runtime.http_client() as client:
        ask = {"json": ResponsesAgent("", [get.tool]).body(), "headers": {"authorization": f"Bearer {EAST}"}}
        expected: Any = pytest.raises(Exception, match="refused") if gone else contextlib.nullcontext()
        with expected:
            client.post(f"{runtime.base_url}/responses", **ask)
    assert len(endpoint.exchanges) == (0 if gone else 1)
    assert [text for exchange in endpoint.exchanges for text in exchange.headers.values() if EAST in text] == []
