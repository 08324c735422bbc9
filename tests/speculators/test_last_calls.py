"""The memory of last calls and its speculator: what followed comes first, and users never meet."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.memory.last_calls import LastCalls
from agentspec.protocols import Prediction
from agentspec.speculators.last_calls import LastCallsSpeculator

pytestmark = pytest.mark.anyio

calls = st.builds(
    ToolCall, st.sampled_from("fgh"), st.dictionaries(st.sampled_from("ab"), st.integers(0, 2), max_size=2), st.none()
)
histories = st.lists(calls, max_size=3)
F, G, H = ToolCall("f", {"a": 1}), ToolCall("g", {"b": 2}), ToolCall("h", {})


async def test_the_likeliest_call_is_offered_at_once(make_turn: Any) -> None:
    memory = LastCalls()
    for call in (G, H, G):
        memory.learn("s", [F], call)
    function = {"name": "f", "arguments": '{ "a" : 1 }'}
    turn = make_turn(
        messages=[{"role": "assistant", "tool_calls": [{"id": "x", "type": "function", "function": function}]}]
    )
    offers: list[Prediction] = []
    await LastCallsSpeculator(memory).speculate(turn, offers.append)
    assert [(found.call, found.predictor) for found in offers] == [(G, "last_calls")]
    assert offers[0].confidence == pytest.approx(0.5)


async def test_nothing_known_is_nothing_offered(make_turn: Any) -> None:
    offers: list[Prediction] = []
    await LastCallsSpeculator(LastCalls()).speculate(make_turn(), offers.append)
    assert offers == []


@given(learnt=st.lists(st.tuples(histories, calls | st.none()), max_size=8), asked=histories)
def test_what_one_user_taught_is_never_told_to_another(
    learnt: list[tuple[list[ToolCall], ToolCall | None]], asked: list[ToolCall]
) -> None:
    memory = LastCalls()
    for history, call in learnt:
        memory.learn("alice", history, call)
    assert memory.candidates("bob", asked) == []
    assert memory.candidates("", asked) == []


@given(learnt=st.lists(st.tuples(histories, calls | st.none()), max_size=20), asked=histories)
def test_shares_are_probabilities_and_likeliest_first(
    learnt: list[tuple[list[ToolCall], ToolCall | None]], asked: list[ToolCall]
) -> None:
    memory = LastCalls()
    for history, call in learnt:
        memory.learn("s", history, call)
    shares = [candidate.probability for candidate in memory.candidates("s", asked)]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) < 1
    taught = {(call.name, str(sorted(call.arguments.items()))) for _, call in learnt if call}
    told = {(c.call.name, str(sorted(c.call.arguments.items()))) for c in memory.candidates("s", asked)}
    assert told <= taught


@given(history=histories, call=calls, times=st.integers(1, 5))
def test_more_of_the_same_makes_surer(history: list[ToolCall], call: ToolCall, times: int) -> None:
    memory = LastCalls()
    before = 0.0
    for count in range(1, times + 1):
        memory.learn("s", history, call)
        found = memory.candidates("s", history)[0]
        assert (found.call, found.support) == (call, count)
        assert found.probability > before
        before = found.probability


def test_the_same_call_with_other_arguments_falls_back_to_its_name() -> None:
    memory = LastCalls()
    memory.learn("s", [F], G)
    assert [found.call for found in memory.candidates("s", [ToolCall("f", {"a": 9})])] == [G]
    memory.learn("s", [ToolCall("f", {"a": 9})], H)
    assert [found.call for found in memory.candidates("s", [ToolCall("f", {"a": 9})])] == [H]


def test_speaking_instead_lowers_the_odds() -> None:
    memory = LastCalls()
    memory.learn("s", [F], G)
    sure = memory.candidates("s", [F])[0].probability
    for _ in range(8):
        memory.learn("s", [F], None)
    assert memory.candidates("s", [F])[0].probability < sure / 2


def test_what_is_handed_out_is_a_copy() -> None:
    memory = LastCalls()
    arguments = {"a": [1]}
    memory.learn("s", [], ToolCall("f", arguments))
    arguments["a"].append(2)
    memory.candidates("s", [])[0].call.arguments["a"] = "spoilt"
    assert memory.candidates("s", [])[0].call == ToolCall("f", {"a": [1]})


def test_arguments_of_any_json_are_learnt() -> None:
    odd = ToolCall("f\ud800", {"n": 10**400, "x": float("inf"), "\ud800": "\u2028", "": None})
    memory = LastCalls()
    memory.learn("s", [odd], odd)
    assert memory.candidates("s", [odd])[0].call == odd


def test_endless_news_do_not_fill_the_memory() -> None:
    memory = LastCalls()
    for number in range(30_000):
        memory.learn("s", [F], ToolCall("search", {"q": number}))
    assert len(pickle.dumps(memory)) < 500_000
