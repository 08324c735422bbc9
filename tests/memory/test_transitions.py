"""What usually follows: honest probabilities that back off, fade, and believe success more than failure."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.memory.transitions import HALF_LIFE, SPEAKS, Transitions

names = st.sampled_from(["a", "b", "c:d", "e+", "", "U", "\0same", "\0other", "kind", "é\ud800"])
actions = st.lists(
    st.one_of(st.just("U"), st.just("A"), st.just("^"), names.map("{}+".format), names.map("{}:ok".format)), max_size=6
)
points = st.lists(st.tuples(actions, names, st.sampled_from([1.0, 0.4, 0.01])), max_size=25)


def taught(*points: tuple[str, str], times: int = 1) -> Transitions:
    """Made of points like `("^ U a:ok", "b")`."""
    transitions = Transitions()
    for _ in range(times):
        for before, name in points:
            transitions.learn(before.split(), name)
    return transitions


def chance(transitions: Transitions, before: str, name: str, classes: str = "a b c d") -> float:
    listed = [SPEAKS, *classes.split()]
    return transitions.chances(before.split(), listed)[listed.index(name)]


@given(points, actions, st.lists(names, min_size=1, unique=True))
@settings(max_examples=200, deadline=None)
def test_probabilities_sum_to_one(
    learnt: list[tuple[list[str], str, float]], now: list[str], classes: list[str]
) -> None:
    transitions = Transitions()
    for before, name, weight in learnt:
        transitions.learn(before, name, weight)
        transitions.age()
    chances = transitions.chances(now, classes)
    assert all(0.0 <= one <= 1.0 for one in chances)
    assert sum(chances) == pytest.approx(1.0)


def test_nothing_is_lost_where_only_the_same_tool_and_silence_are_left() -> None:
    transitions = taught(("^ U a:ok", "b"), times=20)
    assert sum(transitions.chances(["^", "U", "a:ok"], [SPEAKS, "a"])) == pytest.approx(1.0)


def test_before_anything_was_learnt_all_are_alike() -> None:
    assert Transitions().chances(["^", "U"], ["", "a", "b", "c"]) == pytest.approx([0.25] * 4)
    assert Transitions().chances([], []) == []


def test_what_follows_is_predicted() -> None:
    transitions = taught(("^ U", "a"), ("^ U a:ok", "b"), ("U a:ok b:ok", SPEAKS), times=5)
    assert chance(transitions, "^ U", "a") > 0.7
    assert chance(transitions, "^ U a:ok", "b") > 0.7
    assert chance(transitions, "U a:ok b:ok", SPEAKS) > 0.7


def test_the_status_of_a_result_counts() -> None:
    transitions = taught(("U a:ok", "b"), ("U a:error", "c"), times=5)
    assert chance(transitions, "U a:ok", "b") > 0.6 < chance(transitions, "U a:error", "c")


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_an_unknown_history_backs_off_to_the_end_that_is_known(order: int) -> None:
    known = ["w:ok", "x:ok", "y:ok", "a:ok"][-order:]
    transitions = Transitions()
    for _ in range(10):
        transitions.learn(["^", *known], "b")
        transitions.learn(["^", "z:ok"], "c")
    assert chance(transitions, " ".join(["never:ok", *known]), "b") > 0.7


@pytest.mark.parametrize("order", [2, 3, 4])
def test_a_longer_history_overrules_a_shorter_one(order: int) -> None:
    end = ["x:ok"] * (order - 1)
    transitions = Transitions()
    for _ in range(10):
        transitions.learn(["p:ok", *end], "a")
        transitions.learn(["q:ok", *end], "b")
    assert chance(transitions, " ".join(["p:ok", *end]), "a") > 0.7 < chance(transitions, " ".join(["q:ok", *end]), "b")


def test_old_counts_fade() -> None:
    steady, faded = taught(("^ U", "a"), times=8), taught(("^ U", "a"), times=8)
    for _ in range(4 * HALF_LIFE):
        faded.age()
    for one in (steady, faded):
        for _ in range(4):
            one.learn(["^", "U"], "b")
    assert chance(steady, "^ U", "a") > chance(steady, "^ U", "b")
    assert chance(faded, "^ U", "a") < 0.3 < chance(faded, "^ U", "b")


def test_fading_for_ever_overflows_nothing_and_new_counts_still_count() -> None:
    transitions = taught(("^ U", "a"), times=8)
    for _ in range(60 * HALF_LIFE):
        transitions.age()
    transitions.learn(["^", "U"], "b")
    assert chance(transitions, "^ U", "b") > 0.4
    assert sum(transitions.chances(["^", "U"], ["", "a", "b"])) == pytest.approx(1.0)


def test_what_weighs_less_counts_less() -> None:
    transitions = Transitions()
    for _ in range(6):
        transitions.learn(["^", "U"], "a", 0.4)
        transitions.learn(["^", "U"], "b")
    assert chance(transitions, "^ U", "b") > 1.5 * chance(transitions, "^ U", "a")
    failures = Transitions()
    failures.learn(["^", "U"], "a", 0.4)
    assert chance(failures, "^ U", "a") > chance(failures, "^ U", "b")


def test_after_an_unknown_tool_the_kind_of_its_result_says_whether_it_goes_on() -> None:
    talking = taught(("^ U a:ok", SPEAKS), ("^ U b:ok", SPEAKS), ("^ U", "a"), times=10)
    going_on = taught(("^ U a:ok", "a"), ("^ U b:ok", "b"), ("^ U", "a"), times=10)
    assert chance(talking, "^ U c:ok", SPEAKS) > chance(going_on, "^ U c:ok", SPEAKS)
    assert chance(going_on, "^ U c:ok", "c") > chance(talking, "^ U c:ok", "c")


def test_tools_that_are_not_at_hand_take_no_share() -> None:
    transitions = taught(("^ U", "gone"), times=50)
    assert sum(transitions.chances(["^", "U"], ["", "a", "b"])) == pytest.approx(1.0)


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.memory.transitions.MAX_CONTEXTS", 50)
    transitions = Transitions()
    for i in range(500):
        transitions.learn(["^", f"t{i}:ok", f"u{i}:ok"], "a")
    for _ in range(5):
        transitions.learn(["^", "U"], "b")
    assert len(transitions.counts) <= 50
    assert chance(transitions, "^ U", "b") > 0.5


def test_order_of_learning_between_other_points_changes_nothing() -> None:
    seen = [("^ U", "a"), ("^ U a:ok", "b"), ("^ U", "b"), ("^ U a:ok", SPEAKS)]
    asked = [taught(*order).chances(["^", "U", "a:ok"], ["", "a", "b"]) for order in itertools.permutations(seen)]
    assert all(one == pytest.approx(asked[0]) for one in asked)
