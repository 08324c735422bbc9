"""Which tool follows the last two: past trajectories and the running one counted together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.memory.repeats import Repeats, Witnessed
from agentspec.memory.trigram import Trigram

names = st.lists(st.sampled_from("abcd"), max_size=8)


@given(st.lists(st.tuples(names, st.sampled_from("abcd")), max_size=10), names, st.sets(st.sampled_from("abcde")))
def test_chances_of_the_tools_at_hand_sum_to_one(
    past: list[tuple[list[str], str]], made: list[str], at: set[str]
) -> None:
    trigram = Trigram()
    for before, name in past:
        trigram.learn(before, name, 1.0)
    chances = trigram.chances(made, sorted(at))
    assert all(chance >= 0 for chance in chances) and sum(chances) == pytest.approx(1.0 if at else 0.0)


def test_what_this_trajectory_did_before_is_expected_again() -> None:
    chances = dict(zip("abc", Trigram().chances(["a", "b", "c", "a", "b"], "abc"), strict=True))
    assert chances["c"] > 0.6


def test_what_past_trajectories_did_is_expected_here() -> None:
    trigram = Trigram()
    for _ in range(4):
        trigram.learn(["a", "b"], "c", 1.0)
    assert max(zip(trigram.chances(["x", "a", "b"], "abc"), "abc", strict=True))[1] == "c"


@given(st.integers(1, 30))
def test_repeats_of_one_trajectory_never_outweigh_two_others(times: int) -> None:
    repeats = Repeats(Witnessed(), "s")
    assert sum(repeats.weight("after f:ok", 7) for _ in range(times)) < 2.0


def test_what_two_others_did_counts_in_full_each_time() -> None:
    witnessed = Witnessed()
    for number in range(2):
        one = Repeats(witnessed, f"s{number}")
        assert [one.weight("after U", 7), one.weight("after U", 7)] == [1.0, 0.25]
        one.settle()
    three = Repeats(witnessed, "s3")
    assert [three.weight("after U", 7) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert three.weight("after U", 8) == 1.0 and three.weight("after U", 8) == 0.25


def test_a_value_that_stood_nowhere_is_a_scope_s_own_habit() -> None:
    witnessed = Witnessed()
    assert Repeats(witnessed, "anna").own(5) != Repeats(witnessed, "berta").own(5)
