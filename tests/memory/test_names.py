"""Which tool comes next, if any: learnt from what was done and said, with shares that sum to one."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from agentspec.memory.context import Context
from agentspec.memory.names import NameModel, Ranked
from agentspec.memory.recall import Recall
from agentspec.memory.transitions import SPEAKS
from agentspec.recollection import Forecast
from tests.memory.talks import Talk

TOOLS = {name: {} for name in ("refund_order", "exchange_item", "get_user", "cancel_flight", "say")}


def ranked(memory: Recall, talk: Talk) -> Ranked:
    context = Context()
    context.sync(talk.history)
    return memory.parts.names.rank(context, talk.tools)


def shares(memory: Recall, talk: Talk) -> dict[str, float]:
    """Of each tool and of "no call"."""
    answer = ranked(memory, talk)
    return dict(zip(answer.classes, map(float, answer.chances), strict=True))


def taught(kind: Callable[[int], Talk], times: int = 15, without: frozenset[str] = frozenset()) -> Recall:
    memory = Recall(without)
    for number in range(times):
        memory.learn(kind(number).past())
    return memory


def begun(number: int) -> Talk:
    return Talk(f"t{number}", tools=TOOLS)


def test_shares_sum_to_one_at_every_point() -> None:
    rng, memory = random.Random(1), Recall()
    for number in range(20):
        talk = begun(number)
        for _ in range(6):
            answer = ranked(memory, talk)
            assert float(answer.chances.sum()) == pytest.approx(1.0, abs=1e-5) and np.all(answer.chances >= 0)
            given = [share for _, share in answer.given_a_call()]
            assert sum(given) == pytest.approx(1.0, abs=1e-4) and given == sorted(given, reverse=True)
            tool = rng.choice([*TOOLS, "user", "user", "agent"])
            talk = talk.user("hm") if tool == "user" else talk.says("so") if tool == "agent" else talk.call(tool)
        memory.learn(talk.past())


def test_an_agent_that_never_calls_is_not_expected_to() -> None:
    memory = taught(lambda number: begun(number).user("hello").says("hi").user("hello").says("hi"), 60)
    answer = ranked(memory, begun(99).user("hello"))
    assert answer.no_call > 0.95
    assert all(0.0 <= share <= 1.0 for _, share in answer.given_a_call())


def test_a_fixed_order_is_learnt_with_its_end() -> None:
    memory = taught(lambda number: begun(number).user("go").call("get_user").call("refund_order").says("done"))
    talk = begun(99).user("go")
    for name in ("get_user", "refund_order"):
        told = shares(memory, talk)
        assert max(told, key=lambda one: told[one]) == name and told[name] > 0.6
        talk.call(name)
    assert shares(memory, talk)[SPEAKS] > 0.6


def test_what_the_user_asks_for_decides() -> None:
    asked = {"refund_order": "I want my money back for that", "exchange_item": "can I swap it for a blue one"}

    def kind(number: int) -> Talk:
        name = [*asked][number % 2]
        return begun(number).user(f"Hello. {asked[name]} please").call(name).says("done")

    memory = taught(kind, 24)
    for name, text in asked.items():
        told = shares(memory, begun(99).user(f"Hi there, {text}"))
        assert max(told, key=lambda one: told[one]) == name


def test_a_tool_whose_words_the_user_says_is_expected_unseen() -> None:
    def kind(number: int) -> Talk:
        name = ["refund_order", "exchange_item", "get_user"][number % 3]
        return begun(number).user(f"please {name.replace('_', ' the ')} of mine").call(name).says("done")

    told = shares(taught(kind, 30), begun(99).user("please cancel the flight of mine"))
    assert told["cancel_flight"] > told["say"]


def test_a_field_of_the_last_result_decides() -> None:
    def kind(number: int) -> Talk:
        state = ["pending", "delivered"][number % 2]
        talk = begun(number).user("take it back").call("get_user", {"status": state, "n": number})
        return talk.call("refund_order" if state == "delivered" else "exchange_item").says("done")

    memory = taught(kind, 60)
    for state, name in (("pending", "exchange_item"), ("delivered", "refund_order")):
        talk = begun(99).user("take it back").call("get_user", {"status": state, "n": 77})
        told = shares(memory, talk)
        assert max(told, key=lambda one: told[one]) == name


def test_it_goes_on_while_values_are_left_and_then_speaks() -> None:
    def kind(number: int, made: int | None = None) -> Talk:
        rng = random.Random(number)
        ids = [f"I{rng.randrange(10**6)}" for _ in range(rng.randrange(1, 6))]
        talk = begun(number).user("check all").call("get_user", {"items": ids})
        for one in ids if made is None else ids[:made]:
            talk.call("say", "ok", item=one)
        return talk.says("done") if made is None else talk

    memory = taught(kind, 30)
    longest = max(range(100, 140), key=lambda number: len(kind(number).history))
    shortest = min(range(100, 140), key=lambda number: len(kind(number).history))
    assert shares(memory, kind(longest, 2))["say"] > 0.5
    assert shares(memory, kind(shortest, 1))[SPEAKS] > shares(memory, kind(longest, 1))[SPEAKS]


def test_later_calls_of_the_same_answer_are_expected() -> None:
    def kind(number: int) -> Talk:
        talk = begun(number).user("both")
        one, other = talk.asks(("get_user", {}), ("say", {}))
        return talk.gets({one: "a", other: "b"}).says("done")

    memory = taught(kind, 15)
    made = kind(99).history[1].calls
    context = Context()
    context.sync(kind(99).history[:1], made[:1])
    answer = memory.parts.names.rank(context, TOOLS)
    assert answer.classes[int(answer.chances.argmax())] == "say"
    context.sync(kind(99).history[:1], made)
    assert memory.parts.names.rank(context, TOOLS).no_call > 0.6


def test_without_a_list_of_tools_those_that_were_called_are_expected() -> None:
    memory = taught(lambda number: Talk(f"t{number}").user("go").call("mine").says("done"))
    assert shares(memory, Talk("x").user("go"))["mine"] > 0.6
    assert set(shares(memory, Talk("x", tools={"other": {}}).user("go"))) == {SPEAKS, "other"}


def test_a_tool_of_an_empty_name_breaks_nothing() -> None:
    memory = taught(lambda number: Talk(f"t{number}", tools={"": {}, "f": {}}).user("go").call("").says("done"), 4)
    answer = memory.forecast(Talk("x", tools={"": {}, "f": {}}).user("go").question())
    assert isinstance(answer, Forecast)


def test_tools_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.memory.names.MAX_TOOLS", 10)
    monkeypatch.setattr("agentspec.memory.names.MAX_KEPT", 10)
    memory = taught(lambda number: Talk(f"t{number}").user("go").call(f"tool{number}").says("done"), 30)
    names: NameModel = memory.parts.names
    assert len(names.seen) <= 10 and len(names._kept) <= 10


@pytest.mark.parametrize("part", ["transitions", "context", "replays"])
def test_each_part_alone_learns_a_fixed_order(part: str) -> None:
    memory = taught(lambda number: begun(number).user("go").call("get_user").says("done"), 20, frozenset({part}))
    told = shares(memory, begun(99).user("go"))
    assert max(told, key=lambda one: told[one]) == "get_user"


def test_the_same_past_gives_the_same_shares() -> None:
    def run() -> dict[str, float]:
        rng = random.Random(3)
        return shares(
            taught(lambda n: begun(n).user("go").call(rng.choice([*TOOLS])).says("ok"), 20), begun(99).user("go")
        )

    assert run() == run()
