"""User B never gets user A's result: context variables, bound instances, context arguments, `identity=`."""

from __future__ import annotations

import contextvars
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from agents import RunContextWrapper

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for
from tests.contract.support import Guesses

user: contextvars.ContextVar[str] = contextvars.ContextVar("user")
SERVED = ("hit", "joined")
MINE = Guesses(ToolCall("my_orders", {}))


def as_user(name: str, function: Any, *args: Any) -> Any:
    """Call a function in a context of its own where `user` is set."""

    def inside() -> Any:
        user.set(name)
        return function(*args)

    return contextvars.copy_context().run(inside)


class Runs:
    def __init__(self) -> None:
        self.of: list[str] = []
        self.ran = Gate()

    def note(self, whose: str) -> str:
        self.of.append(whose)
        self.ran.open()
        return f"orders of {whose}"


@pytest.fixture
def runs() -> Runs:
    return Runs()


@pytest.fixture
def tool(runs):
    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders() -> str:
        return runs.note(user.get("nobody"))

    return my_orders


def test_a_run_without_the_users_variable_is_not_served_to_a_user(endpoint, start, join, agent_of, runs, tool):
    proxy = start(MINE)
    agent = agent_of(join(proxy, tool), tool)
    endpoint.answers(asks_for("my_orders", after=runs.ran))
    assert agent.think()
    assert as_user("A", tool) == "orders of A"
    assert runs.of == ["nobody", "A"]


def test_a_users_run_is_served_to_that_user_only(endpoint, start, join, agent_of, runs, tool):
    """After the first call of a session its context is known; the run ahead is made in it."""
    proxy = start(Guesses(lambda turn: [ToolCall("my_orders", {})] if len(turn.history) > 1 else []))
    agent = agent_of(join(proxy, tool), tool)
    endpoint.answers(asks_for("my_orders", id="c0"), asks_for("my_orders", after=Gate(), id="c1"))
    (made,) = agent.think()
    agent.told(made, as_user("A", tool))
    runs.ran = Gate()
    endpoint.script = lambda exchange, number: asks_for("my_orders", after=runs.ran, id="c1")
    proxy.claimed()
    assert agent.think()
    assert runs.of == ["A", "A"]
    assert as_user("B", tool) == "orders of B"
    assert as_user("A", tool) == "orders of A"
    assert runs.of == ["A", "A", "B"]


def test_two_users_with_equal_conversations_get_their_own(endpoint, start, join, agent_of, runs, tool):
    proxy = start(MINE)
    runtime = join(proxy, tool)
    endpoint.script = lambda exchange, number: asks_for("my_orders", id=f"c{number}")
    agents = [agent_of(runtime, tool, question="show my orders") for _ in "AB"]
    for turn in range(3):
        for name, agent in zip("AB", agents, strict=True):
            assert as_user(name, agent.turn) == [f"orders of {name}"], turn


def test_a_session_id_shared_by_two_users_shares_no_results(endpoint, start, join, agent_of, runs, tool):
    proxy = start(MINE)
    runtime = join(proxy, tool)
    endpoint.script = lambda exchange, number: asks_for("my_orders", id=f"c{number}")
    agents = [agent_of(runtime, tool, **{"x-agentspec-session": "default"}) for _ in "AB"]
    for _ in range(3):
        for name, agent in zip("AB", agents, strict=True):
            assert as_user(name, agent.turn) == [f"orders of {name}"]


class Account:
    """A method as a tool: the instance is the user."""

    def __init__(self, owner: str, runs: Runs) -> None:
        self.owner, self.runs = owner, runs

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Account)  # a careless one

    __hash__ = object.__hash__

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders(self) -> str:
        return self.runs.note(self.owner)


def test_a_method_runs_ahead_only_for_its_own_instance(endpoint, start, join, agent_of, runs):
    proxy = start(MINE)
    a, b = Account("A", runs), Account("B", runs)
    agent = agent_of(join(proxy, Account.my_orders), Account.my_orders)
    agent.tools["my_orders"] = a.my_orders
    endpoint.answers(asks_for("my_orders", id="c0"))
    assert agent.turn() == ["orders of A"]
    assert runs.of == ["A"]  # before its first call nobody knows the instance
    proxy.claimed()
    runs.ran = Gate()
    endpoint.script = lambda exchange, number: asks_for("my_orders", after=runs.ran, id="c1")
    assert agent.think()
    assert b.my_orders() == "orders of B"
    assert a.my_orders() == "orders of A"
    assert runs.of == ["A", "A", "B"]


@dataclass
class Login:
    """What a user hands to openai-agents as context: equal for all who look equal."""

    name: str


def context_tool(runs: Runs) -> Any:
    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders(wrapper: RunContextWrapper[Login]) -> str:
        return runs.note(wrapper.context.name)

    return my_orders


def test_a_context_argument_keeps_users_apart(endpoint, start, join, agent_of, runs):
    tool = context_tool(runs)
    proxy = start(MINE)
    agent = agent_of(join(proxy, tool), tool)
    login = Login("A")
    agent.tools["my_orders"] = lambda: tool(RunContextWrapper(login))
    endpoint.answers(asks_for("my_orders", id="c0"))
    assert agent.turn() == ["orders of A"]
    proxy.claimed()
    runs.ran = Gate()
    endpoint.script = lambda exchange, number: asks_for("my_orders", after=runs.ran, id="c1")
    assert agent.think()
    assert runs.of == ["A", "A"]
    assert tool(RunContextWrapper(Login("B"))) == "orders of B"
    assert tool(RunContextWrapper(login)) == "orders of A"  # another wrapper, the same user
    assert runs.of == ["A", "A", "B"]


def test_identity_decides_whose_call_it_is(endpoint, start, join, agent_of, runs):
    @speculate(effect="read", reads={"orders"}, stable_for=30.0, identity=lambda: user.get("nobody"))
    def my_orders() -> str:
        return runs.note(user.get("nobody"))

    proxy = start(MINE)
    runtime = join(proxy, my_orders)
    agent = agent_of(runtime, my_orders)
    endpoint.answers(asks_for("my_orders", after=runs.ran))
    agent.think()
    assert as_user("A", my_orders) == "orders of A"
    assert my_orders() == "orders of nobody"
    assert runs.of == ["nobody", "A"]


def test_identity_from_an_argument_allows_other_variables_to_differ(endpoint, start, join, agent_of, runs):
    noise: contextvars.ContextVar[object] = contextvars.ContextVar("noise")

    @speculate(effect="read", reads={"orders"}, stable_for=30.0, identity=lambda key: key.lower())
    def my_orders(key: str) -> str:
        return runs.note(key)

    proxy = start(Guesses(ToolCall("my_orders", {"key": "A"})))
    agent = agent_of(join(proxy, my_orders), my_orders)
    endpoint.answers(asks_for("my_orders", {"key": "A"}, after=runs.ran))
    agent.think()

    def elsewhere() -> str:
        noise.set(object())
        return my_orders("A")

    assert contextvars.copy_context().run(elsewhere) == "orders of A"
    assert runs.of == ["A"]


def test_an_identity_that_raises_means_plain_calls(endpoint, start, join, agent_of, runs):
    @speculate(effect="read", reads={"orders"}, stable_for=30.0, identity=lambda: 1 / 0)
    def my_orders() -> str:
        return runs.note("A")

    proxy = start(MINE)
    agent = agent_of(join(proxy, my_orders), my_orders)
    endpoint.answers(asks_for("my_orders"))
    assert agent.turn() == ["orders of A"]
    assert runs.of == ["A"]
    (bet,) = proxy.settled()
    assert bet["outcome"] == "vetoed"


def test_two_trajectories_with_equal_calls_get_a_run_each(endpoint, start, join, agent_of):
    lock, made = threading.Lock(), []
    both = Gate()

    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders() -> list[int]:
        with lock:
            made.append(len(made))
            if len(made) == 2:
                both.open()
            return [made[-1]]

    proxy = start(MINE)
    runtime = join(proxy, my_orders)
    agents = [agent_of(runtime, my_orders) for _ in range(2)]
    endpoint.script = lambda exchange, number: asks_for("my_orders", after=both)
    calls: list[Any] = [None, None]
    threads = [threading.Thread(target=lambda i=i: calls.__setitem__(i, agents[i].think())) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    results = [agent.act(made)[0] for agent, made in zip(agents, calls, strict=True)]
    assert sorted(result[0] for result in results) == [0, 1]
    assert results[0] is not results[1]
    assert [bet["outcome"] in SERVED for bet in proxy.settled(2)] == [True, True]


def tool_of(runs: Runs, whose: str) -> Any:
    @speculate(effect="read", reads={"orders"}, stable_for=30.0)
    def my_orders() -> str:
        return runs.note(whose)

    return my_orders


def test_two_runtimes_with_equal_calls_get_a_run_each(endpoint, start, join, agent_of):
    proxy = start(MINE)
    results = []
    for whose in "AB":
        runs = Runs()
        my_orders = tool_of(runs, whose)
        agent = agent_of(join(proxy, my_orders), my_orders, question="the same question")
        endpoint.answers(asks_for("my_orders", after=runs.ran))
        endpoint.exchanges.clear()
        results.append((agent.turn(), runs.of))
    assert results == [(["orders of A"], ["A"]), (["orders of B"], ["B"])]
    assert [bet["outcome"] in SERVED for bet in proxy.settled(2)] == [True, True]
