"""What may be declared, what is refused and why, and what never runs ahead."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agents import function_tool
from langchain_core.tools import tool as langchain_tool

import agentspec
from agentspec import speculate
from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from tests.contract.scripted import Gate, asks_for
from tests.contract.support import Guesses, undeclared

READ = {"effect": "read", "stable_for": 30.0}


def plain(key: str) -> str:
    return key


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"effect": "read"}, "stable_for"),
        ({"effect": "read", "stable_for": 0}, "more than 0"),
        ({"effect": "read", "stable_for": -1.0}, "more than 0"),
        ({"effect": "read", "stable_for": float("nan")}, "stable_for"),
        ({"effect": "read", "stable_for": 3.0, "writes": {"x"}}, "write"),
        ({"effect": "pure", "reads": {"x"}}, "pure"),
        ({"effect": "pure", "writes": {"x"}}, "pure"),
        ({"effect": "reads", "stable_for": 3.0}, "pure, read, write, irreversible"),
        ({"effect": "read", "stable_for": 3.0, "reads": "orders"}, "{'orders'}"),
        ({"effect": "write", "writes": "orders"}, "{'orders'}"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_with_a_reason(options, says):
    with pytest.raises(ConfigError) as refused:
        speculate(**options)(plain)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


def generator(key: str) -> Iterator[str]:
    yield key


async def stream(key: str) -> AsyncIterator[str]:
    yield key


class Holder:
    @staticmethod
    def static(key: str) -> str:
        return key

    @classmethod
    def on_class(cls, key: str) -> str:
        return key

    @property
    def prop(self) -> str:
        return ""

    def method(self, key: str) -> str:
        return key


class Callable_:
    def __call__(self, key: str) -> str:
        return key


@pytest.mark.parametrize(
    "target",
    [
        generator,
        stream,
        Holder.__dict__["static"],
        Holder.__dict__["on_class"],
        Holder.__dict__["prop"],
        Holder().method,
        Callable_(),
        Holder,
        functools.partial(plain, "A"),
        print,
        len,
        None.__init__,
    ],
    ids=lambda target: type(target).__name__,
)
def test_what_cannot_be_handed_over_is_refused(target):
    with pytest.raises(ConfigError) as refused:
        speculate(**READ)(target)
    assert "\n" not in str(refused.value)


def test_over_a_frameworks_tool_it_is_refused_and_says_where_to_put_it():
    for made in (function_tool(plain), langchain_tool("plain", description="x")(plain)):
        with pytest.raises(ConfigError, match="under the framework's decorator"):
            speculate(**READ)(made)


def test_twice_is_refused():
    with pytest.raises(ConfigError, match="already"):
        speculate(**READ)(speculate(**READ)(plain))


def var_args(*keys: str) -> str:
    return ""


def takes_function(callback: type[asyncio.Future]) -> str:  # type: ignore[type-arg]
    return ""


def unresolved(key: NoSuchName) -> str:  # type: ignore[name-defined]  # noqa: F821
    return ""


@pytest.mark.parametrize("target", [var_args, unresolved])
def test_arguments_that_cannot_be_keyed_are_refused(target):
    with pytest.raises(ConfigError, match=target.__name__):
        speculate(**READ)(target)


def test_connect_refuses_what_is_not_declared_or_no_url():
    with pytest.raises(ConfigError, match="not declared"):
        agentspec.connect("http://127.0.0.1:9", tools=[plain])
    with pytest.raises(ConfigError, match="no URL"):
        agentspec.connect("127.0.0.1:8787")


def test_a_declared_function_still_looks_like_itself():
    def lookup(key: str, limit: int = 3) -> str:
        """Looks up."""
        return key * limit

    made = speculate(**READ)(lookup)
    assert (made.__name__, made.__doc__, made.__wrapped__) == ("lookup", "Looks up.", lookup)
    assert made("a") == "aaa"
    assert function_tool(made).params_json_schema["properties"].keys() == {"key", "limit"}


def test_static_and_class_methods_work_with_the_decorator_below():
    class Good:
        @staticmethod
        @speculate(**READ)
        def static(key: str) -> str:
            return key

        @classmethod
        @speculate(**READ)
        def on_class(cls, key: str) -> str:
            return f"{cls.__name__} {key}"

    assert (Good.static("a"), Good.on_class("a"), Good().on_class(key="b")) == ("a", "Good a", "Good b")


@pytest.mark.parametrize("effect", ["write", "irreversible"])
def test_a_tool_that_writes_is_never_run_ahead(endpoint, start, join, agent_of, effect):
    runs: list[str] = []

    @speculate(effect=effect, writes={"orders"})
    def cancel(order_id: str) -> str:
        runs.append(order_id)
        return "cancelled"

    proxy = start(Guesses(ToolCall("cancel", {"order_id": "A1"})))
    agent = agent_of(join(proxy, cancel), cancel)
    endpoint.answers([0.1, *asks_for("cancel", {"order_id": "A1"})])
    calls = agent.think()
    assert runs == []
    assert agent.act(calls) == ["cancelled"]
    assert runs == ["A1"]


def test_a_tool_that_nobody_declared_is_never_run_ahead(endpoint, start, join, agent_of):
    runs: list[str] = []

    @speculate(**READ)
    def other(key: str) -> str:
        return key

    proxy = start(Guesses(ToolCall("cancel", {"order_id": "A1"})))
    agent = agent_of(join(proxy, other), other)
    undeclared(agent, "cancel", runs.append)
    endpoint.answers([0.1, *asks_for("cancel", {"order_id": "A1"})])
    agent.think()
    assert runs == []
    (bet,) = proxy.settled()
    assert (bet["outcome"], bet["reason"]) == ("vetoed", "cancel is not declared as one that may run ahead")


def test_a_declared_tool_that_the_request_does_not_offer_is_never_run_ahead(endpoint, start, join, agent_of):
    runs: list[str] = []

    @speculate(**READ)
    def secret(key: str) -> str:
        runs.append(key)
        return key

    @speculate(**READ)
    def other(key: str) -> str:
        return key

    proxy = start(Guesses(ToolCall("secret", {"key": "A"})))
    agent = agent_of(join(proxy, secret, other), other)
    endpoint.answers([0.1])
    agent.think()
    assert runs == []


def test_a_tool_that_was_not_handed_to_this_runtime_stays_out_of_it(endpoint, start, join, agent_of):
    runs: list[str] = []

    @speculate(**READ)
    def mine(key: str) -> str:
        return key

    @speculate(**READ)
    def not_mine(key: str) -> str:
        runs.append(key)
        return key

    proxy = start(Guesses(ToolCall("not_mine", {"key": "A"})))
    agent = agent_of(join(proxy, mine), mine, not_mine)
    endpoint.answers([0.1, *asks_for("not_mine", {"key": "A"})])
    assert agent.turn() == ["A"]
    assert runs == ["A"]


def test_a_name_that_two_tools_share_runs_ahead_for_neither(endpoint, start, join, agent_of):
    runs: list[Any] = []

    def made(whose: str) -> Any:
        @speculate(**READ)
        def lookup(key: str) -> str:
            runs.append(whose)
            return whose

        return lookup

    one, two = made("one"), made("two")
    proxy = start(Guesses(ToolCall("lookup", {"key": "A"})))
    agent = agent_of(join(proxy, one, two), one)
    endpoint.answers([0.1, *asks_for("lookup", {"key": "A"})])
    assert agent.turn() == ["one"]
    assert runs == ["one"]


def test_a_tool_declared_after_connecting_is_offered_as_well(endpoint, start, agent_of, cleanup):
    proxy = start(Guesses(ToolCall("newcomer_tool", {"key": "A"})))
    runtime = agentspec.connect(proxy.url, api_key="k", wait_s=5.0)
    cleanup.callback(runtime.close)
    ran = Gate()

    @speculate(**READ)
    def newcomer_tool(key: str) -> str:
        ran.open()
        return key

    agent = agent_of(runtime, newcomer_tool)
    endpoint.answers(asks_for("newcomer_tool", {"key": "A"}, after=ran))
    assert agent.turn() == ["A"]
    assert proxy.claimed()[0]["outcome"] in ("hit", "joined")


def test_the_loaded_module_again_or_a_tool_for_each_user_is_offered_again(endpoint, start, agent_of, cleanup):
    """As notebooks, reloading servers and factories of tools do: the old one is gone, the new one counts."""

    def made(ran: Gate) -> Any:
        @speculate(**READ)
        def reloaded_tool(key: str) -> str:
            ran.open()
            return key

        return reloaded_tool

    proxy = start(Guesses(ToolCall("reloaded_tool", {"key": "A"})))
    runtime = agentspec.connect(proxy.url, api_key="k", wait_s=5.0)
    cleanup.callback(runtime.close)
    tool = made(Gate())
    del tool
    ran = Gate()
    tool = made(ran)
    agent = agent_of(runtime, tool)
    endpoint.answers(asks_for("reloaded_tool", {"key": "A"}, after=ran))
    assert agent.turn() == ["A"]
    assert proxy.claimed()[0]["outcome"] in ("hit", "joined")
