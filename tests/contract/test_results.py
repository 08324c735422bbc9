"""A result is handed over only for exactly the call that was made; whatever else happens, the tool runs plainly."""

from __future__ import annotations

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.scripted import Gate, asks_for, speaks
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS

SERVED = {"hit", "joined"}


class Orders:
    """A read tool with a memory of its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.ran = Gate()

        @speculate(effect="read", reads={"orders"}, stable_for=30.0)
        def get_order(order_id: str, verbose: bool = False) -> str:
            self.runs.append(order_id)
            self.ran.open()
            return f"order {order_id} is shipped{' today' if verbose else ''}"

        self.tool = get_order


@pytest.fixture
def orders() -> Orders:
    return Orders()


def test_a_right_guess_is_handed_over_and_the_tool_runs_once(endpoint, start, join, agent_of, orders):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"})))
    endpoint.answers(asks_for("get_order", {"order_id": "A1"}, after=orders.ran))
    agent = agent_of(join(proxy, orders.tool), orders.tool)
    assert agent.turn() == ["order A1 is shipped"]
    assert orders.runs == ["A1"]
    (bet,) = proxy.settled()
    assert bet["outcome"] in SERVED


def test_a_wrong_guess_is_a_miss_and_the_tool_runs_once_for_the_real_call(endpoint, start, join, agent_of, orders):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "B2"})))
    endpoint.answers(asks_for("get_order", {"order_id": "A1"}, after=orders.ran))
    agent = agent_of(join(proxy, orders.tool), orders.tool)
    assert agent.turn() == ["order A1 is shipped"]
    assert orders.runs == ["B2", "A1"]
    (bet,) = proxy.settled()
    assert bet["outcome"] == "miss"


def test_a_turn_without_a_call_books_its_bet_as_a_miss(endpoint, start, join, agent_of, orders):
    proxy = start(Guesses(ToolCall("get_order", {"order_id": "A1"})))
    endpoint.answers([orders.ran, *speaks()])
    agent = agent_of(join(proxy, orders.tool), orders.tool)
    assert agent.turn() == []
    (bet,) = proxy.settled()
    assert bet["outcome"] == "miss"
    assert not proxy.deps.desk.books._open
