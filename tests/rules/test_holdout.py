"""The control group, and what it is good for."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.gating.holdout import Trial, held_out, savings

names = st.text(max_size=40)


@given(name=names, salt=st.binary(max_size=100), share=st.floats(0, 1))
def test_the_same_trajectory_is_always_in_the_same_group(name: str, salt: bytes, share: float) -> None:
    assert held_out(name, salt, share) == held_out(name, salt, share)
    assert not held_out(name, salt, 0.0)
    assert held_out(name, salt, 1.0)
    assert held_out(name, salt, share) <= held_out(name, salt, min(1.0, share + 0.1))


def test_the_group_is_as_large_as_it_should_be_and_another_deployment_has_another() -> None:
    ids = [f"trajectory-{n}" for n in range(20_000)]
    here, there = ({name for name in ids if held_out(name, salt, 0.05)} for salt in (b"here", b"there"))
    assert len(here) == pytest.approx(1000, rel=0.15)
    assert len(here & there) == pytest.approx(50, abs=30)


def trials(draw: random.Random, count: int, saved_s: float, held: bool) -> list[Trial]:
    return [
        Trial(held, turns, turns * (draw.lognormvariate(1.0, 0.5) - saved_s), told_s=turns * saved_s)
        for turns in (draw.randint(1, 12) for _ in range(count))
    ]


def test_what_is_saved_is_found_with_an_interval_around_it() -> None:
    draw = random.Random(4)
    found = savings([*trials(draw, 300, 0.8, False), *trials(draw, 100, 0.0, True)])
    assert found.difference_s is not None and found.low_s is not None and found.high_s is not None
    assert found.low_s < -0.8 < found.high_s < 0
    assert found.low_s <= found.difference_s <= found.high_s
    assert found.measured_s == pytest.approx(found.told_s, rel=0.5)
    assert (found.treated, found.control) == (300, 100)


def test_where_nothing_is_saved_the_interval_holds_nothing_in_most_cases() -> None:
    inside = 0
    for seed in range(40):
        draw = random.Random(seed)
        found = savings([*trials(draw, 60, 0.0, False), *trials(draw, 40, 0.0, True)])
        assert found.low_s is not None and found.high_s is not None
        inside += found.low_s <= 0.0 <= found.high_s
    assert inside >= 34


@pytest.mark.parametrize(("treated", "control"), [(0, 0), (3, 0), (0, 3), (1, 1), (5, 1)])
def test_of_too_few_nothing_is_claimed(treated: int, control: int) -> None:
    draw = random.Random(1)
    found = savings([*trials(draw, treated, 1.0, False), *trials(draw, control, 0.0, True), Trial(True, 0, 0.0)])
    assert (found.low_s, found.high_s) == (None, None)
    assert (found.difference_s is None) == (not (treated and control))
    assert (found.measured_s is None) == (found.difference_s is None)
    assert found.told_s >= 0.0


@given(seen=st.lists(st.builds(Trial, st.booleans(), st.integers(0, 5), st.floats(0, 100)), max_size=20))
def test_the_same_trajectories_give_the_same_answer(seen: list[Trial]) -> None:
    assert savings(seen) == savings(seen)
