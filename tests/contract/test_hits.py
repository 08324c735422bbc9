"""The same rules end to end: what the model writes, what was guessed, and what the framework passes to the tool."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from agentspec import speculate
from agentspec.calls import ToolCall
from tests.contract.bookings import Address, Color, Order
from tests.contract.scripted import Gate, asks_for
from tests.contract.support import BOTH_WAYS, Guesses

pytestmark = BOTH_WAYS

SERVED = ("hit", "joined")


class Tools:
    """Three read tools and their runs."""

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.ran = Gate()

        def note(*what: Any) -> str:
            self.runs.append(what)
            self.ran.open()
            return f"result {len(self.runs)}"

        @speculate(effect="read", stable_for=30.0)
        def weigh(item: str, factor: float = 1.0, unit: str = "kg", deep: bool = False) -> str:
            return note(item, factor, unit, deep)

        @speculate(effect="read", stable_for=30.0)
        def ship(order: Order, day: dt.date, color: Color = Color.RED, to: Address | None = None) -> str:
            assert isinstance(order, Order) and isinstance(color, Color)
            return note(order.id, day, color, to)

        @speculate(effect="read", stable_for=30.0)
        def find(filter: dict[str, Any], limit: int = 10, **more: int) -> str:
            return note(filter, limit, more)

        self.weigh, self.ship, self.find = weigh, ship, find


@pytest.fixture
def tools() -> Tools:
    return Tools()


@pytest.fixture
def outcome(endpoint, start, join, agent_of, tools):
    """outcome(name, guessed, written, claim): what became of a claim, by (outcome, runs of the tool)."""

    def of(name: str, guessed: Any, written: Any, claim: Any) -> tuple[bool, int]:
        tool = getattr(tools, name)
        proxy = start(Guesses(ToolCall(name, guessed)))
        agent = agent_of(join(proxy, tool), tool)
        endpoint.answers(asks_for(name, written, after=tools.ran))
        agent.think()
        claim(tool)
        return proxy.claimed()[0]["outcome"] in SERVED, len(tools.runs)

    return of


HIT, MISS = (True, 1), (False, 2)
ORDER = {"id": 7, "price": 3, "color": "blue", "due": "2024-05-06T07:08:09Z", "to": {"street": "s"}}
MODEL = Order(
    id=7, price=3.0, color=Color.BLUE, due=dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC), to=Address(street="s")
)
DAY = dt.date(2024, 2, 29)

CASES = {
    "as guessed": ("weigh", {"item": "A"}, {"item": "A"}, lambda t: t("A"), HIT),
    "default left out of the guess": (
        "weigh",
        {"item": "A"},
        {"item": "A", "unit": "kg"},
        lambda t: t("A", 1.0, "kg"),
        HIT,
    ),
    "default given in the guess": (
        "weigh",
        {"item": "A", "deep": False, "factor": 1.0},
        {"item": "A"},
        lambda t: t("A"),
        HIT,
    ),
    "int for float": ("weigh", {"item": "A", "factor": 3}, {"item": "A", "factor": 3.0}, lambda t: t("A", 3.0), HIT),
    "float for int": (
        "weigh",
        {"item": "A", "factor": 3.0},
        {"item": "A", "factor": 3},
        lambda t: t("A", factor=3),
        HIT,
    ),
    "int default": ("weigh", {"item": "A", "factor": 1}, {"item": "A"}, lambda t: t("A"), HIT),
    "order": ("weigh", {"unit": "g", "item": "A"}, {"item": "A", "unit": "g"}, lambda t: t(unit="g", item="A"), HIT),
    "trailing space": ("weigh", {"item": "A"}, {"item": "A "}, lambda t: t("A "), MISS),
    "capital": ("weigh", {"item": "A"}, {"item": "a"}, lambda t: t("a"), MISS),
    "another default": ("weigh", {"item": "A"}, {"item": "A", "deep": True}, lambda t: t("A", deep=True), MISS),
    "null is not the default": ("find", {"filter": {"a": None}}, {"filter": {}}, lambda t: t({}), MISS),
    "models by position": (
        "ship",
        {"order": ORDER, "day": "2024-02-29"},
        {"order": ORDER, "day": "2024-02-29"},
        lambda t: t(MODEL, DAY),
        HIT,
    ),
    "models by name": (
        "ship",
        {"day": "2024-02-29", "order": ORDER, "color": "red"},
        {"order": ORDER, "day": "2024-02-29"},
        lambda t: t(day=DAY, order=MODEL, to=None),
        HIT,
    ),
    "another model": (
        "ship",
        {"order": ORDER, "day": "2024-02-29"},
        {"order": ORDER | {"id": 8}, "day": "2024-02-29"},
        lambda t: t(MODEL.model_copy(update={"id": 8}), DAY),
        MISS,
    ),
    "another enum": (
        "ship",
        {"order": ORDER, "day": "2024-02-29"},
        {"order": ORDER, "day": "2024-02-29", "color": "blue"},
        lambda t: t(MODEL, DAY, Color.BLUE),
        MISS,
    ),
    "nested": (
        "find",
        {"filter": {"a": [1, {"b": "c"}], "z": 0}},
        {"filter": {"z": 0, "a": [1, {"b": "c"}]}},
        lambda t: t({"z": 0, "a": [1, {"b": "c"}]}),
        HIT,
    ),
    "nested list order": (
        "find",
        {"filter": {"a": [1, 2]}},
        {"filter": {"a": [2, 1]}},
        lambda t: t({"a": [2, 1]}),
        MISS,
    ),
    "extra names": (
        "find",
        {"filter": {}, "x": 1, "y": 2},
        {"filter": {}, "y": 2, "x": 1},
        lambda t: t({}, y=2, x=1),
        HIT,
    ),
    "fewer extra names": ("find", {"filter": {}, "x": 1, "y": 2}, {"filter": {}, "x": 1}, lambda t: t({}, x=1), MISS),
    "unicode": (
        "weigh",
        {"item": "Zürich\u2028\U0001f600"},
        {"item": "Zürich\u2028\U0001f600"},
        lambda t: t("Zürich\u2028\U0001f600"),
        HIT,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_guess_is_a_hit_exactly_if_it_is_the_same_call(outcome, case):
    name, guessed, written, claim, expected = CASES[case]
    assert outcome(name, guessed, written, claim) == expected


def test_an_agent_that_passes_plain_json_where_models_are_meant_gets_what_it_would_get(endpoint, start, join, agent_of):
    """The tool sees the dict that the agent passes, never a model that we made of it."""
    seen: list[Any] = []
    ran: list[Gate] = []

    @speculate(effect="read", stable_for=30.0)
    def ship(order: Order) -> str:
        seen.append(type(order))
        ran[-1].open()
        return type(order).__name__

    proxy = start(Guesses(ToolCall("ship", {"order": ORDER})))
    agent = agent_of(join(proxy, ship), ship)
    endpoint.script = lambda exchange, number: asks_for("ship", {"order": ORDER}, after=ran[-1], id=f"c{number}")
    for _ in range(3):
        ran.append(Gate())
        assert agent.turn() == ["dict"]
    assert proxy.claimed(3)[-1]["outcome"] in SERVED  # after the first it is known how this agent calls


def test_a_tool_whose_owner_decides_what_is_the_same(endpoint, start, join, agent_of):
    ran = Gate()

    def alike(one: Any, other: Any) -> bool:
        return one["query"].strip().lower() == other["query"].strip().lower()

    @speculate(effect="read", stable_for=30.0, same_call=alike)
    def search(query: str) -> str:
        ran.open()
        return f"found {query}"

    proxy = start(Guesses(ToolCall("search", {"query": "Shoes "})))
    agent = agent_of(join(proxy, search), search)
    endpoint.answers(asks_for("search", {"query": "shoes"}, after=ran))
    assert agent.turn() == ["found Shoes "]
    assert proxy.claimed()[0]["outcome"] in SERVED


def test_an_owners_comparison_that_raises_means_a_plain_call(endpoint, start, join, agent_of):
    ran = Gate()

    @speculate(effect="read", stable_for=30.0, same_call=lambda one, other: 1 / 0)
    def search(query: str) -> str:
        ran.open()
        return f"found {query}"

    proxy = start(Guesses(ToolCall("search", {"query": "boots"})))
    agent = agent_of(join(proxy, search), search)
    endpoint.answers(asks_for("search", {"query": "shoes"}, after=ran))
    assert agent.turn() == ["found shoes"]


def test_arguments_by_position_only(endpoint, start, join, agent_of):
    ran = Gate()

    @speculate(effect="read", stable_for=30.0)
    def search(query: str, /, limit: int = 3) -> str:
        ran.open()
        return f"{limit} of {query}"

    proxy = start(Guesses(ToolCall("search", {"query": "x", "limit": 5})))
    agent = agent_of(join(proxy, search), search)
    agent.tools["search"] = lambda **given: search(*given.values())
    endpoint.answers(asks_for("search", {"query": "x", "limit": 5}, after=ran))
    assert agent.turn() == ["5 of x"]
    assert proxy.claimed()[0]["outcome"] in SERVED
