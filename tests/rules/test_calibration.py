"""Confidences become probabilities, and the bound on discarded runs holds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.gating.calibration import Calibration, Claimed, expected_calibration_error, reliability
from agentspec.gating.conformal import NEVER, DiscardBound, binomial_tail, threshold

share = st.floats(0, 1)
claims = st.builds(Claimed, st.sampled_from("ab"), st.sampled_from("fg"), share, st.booleans(), st.booleans())


def test_before_anything_is_seen_the_calibrated_are_believed_and_others_at_a_discount() -> None:
    calibration = Calibration()
    assert calibration.probability(Claimed("p", "f", 0.7, calibrated=True)) == pytest.approx(0.7)
    assert calibration.probability(Claimed("p", "f", 1.0)) == pytest.approx(0.6)
    assert calibration.probability(Claimed("p", "f", 1.0, again=True)) == pytest.approx(0.2)


@given(seen=st.lists(st.tuples(claims, st.booleans()), max_size=60), asked=claims)
def test_whatever_came_a_probability_is_one_and_nothing_is_certain(
    seen: list[tuple[Claimed, bool]], asked: Claimed
) -> None:
    calibration = Calibration(0.3)
    for claimed, right in seen:
        calibration.add(claimed, calibration.probability(claimed), right)
    assert 0.0 <= calibration.probability(asked) <= 0.99
    for predictor in calibration.predictors():
        assert 0.0 <= (calibration.error(predictor) or 0.0) <= 1.0


@pytest.mark.parametrize("calibrated", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_who_is_always_right_or_wrong_is_known_soon(right: bool, calibrated: bool) -> None:
    calibration = Calibration()
    claimed = Claimed("p", "f", 0.9, calibrated=calibrated)
    for _ in range(30):
        calibration.add(claimed, calibration.probability(claimed), right)
    found = calibration.probability(claimed)
    assert found > 0.85 if right else found < 0.3


def test_a_tool_is_told_from_the_others_and_a_new_one_starts_from_the_predictor() -> None:
    calibration = Calibration()
    for _ in range(100):
        for tool, right in (("good", True), ("bad", False), ("bad", False)):
            claimed = Claimed("p", tool, 0.8, calibrated=True)
            calibration.add(claimed, calibration.probability(claimed), right)
    good, bad, new = (
        calibration.probability(Claimed("p", tool, 0.8, calibrated=True)) for tool in ("good", "bad", "new")
    )
    assert bad < 0.2 < new < 0.5 < good


@pytest.mark.parametrize("bend", [lambda c: c, lambda c: c * c, lambda c: c**0.5, lambda c: 0.3, lambda c: 1 - c])
@pytest.mark.parametrize("calibrated", [True, False])
def test_any_predictor_is_calibrated_after_five_hundred_predictions(bend, calibrated: bool) -> None:
    draw, calibration, told = random.Random(5), Calibration(), []
    for nth in range(3000):
        claimed = Claimed("p", draw.choice("fgh"), draw.random(), calibrated=calibrated)
        right = draw.random() < bend(claimed.confidence)
        probability = calibration.probability(claimed)
        calibration.add(claimed, probability, right)
        if nth >= 500:
            told.append((probability, right))
    assert expected_calibration_error(told) <= 0.07  # of which about 0.04 is the noise of bins that go on learning


def test_a_predictor_that_changes_is_followed() -> None:
    draw, calibration = random.Random(5), Calibration()
    claimed = Claimed("p", "f", 0.9, calibrated=True)
    for chance in (0.9, 0.2):
        for _ in range(1000):
            calibration.add(claimed, calibration.probability(claimed), draw.random() < chance)
        assert calibration.probability(claimed) == pytest.approx(chance, abs=0.12)


@given(told=st.lists(st.tuples(share, st.booleans()), max_size=60))
def test_the_calibration_error_is_the_one_of_the_plot(told: list[tuple[float, bool]]) -> None:
    bins = reliability(told)
    assert sum(count for _, _, count in bins) == len(told)
    by_plot = sum(abs(p - right) * count for p, right, count in bins) / len(told) if told else 0.0
    assert expected_calibration_error(told) == pytest.approx(by_plot, abs=1e-9)


# The bound on discarded runs


@given(count=st.integers(1, 60), most=st.integers(0, 60), chance=st.floats(0.01, 0.99))
def test_the_binomial_tail_is_a_probability_that_grows(count: int, most: int, chance: float) -> None:
    most = min(most, count)
    tail = binomial_tail(most, count, chance)
    assert 0.0 <= tail <= 1.0
    assert tail >= binomial_tail(max(0, most - 1), count, chance) - 1e-12
    if most == count:
        assert tail == pytest.approx(1.0)


@given(told=st.lists(st.tuples(share, st.booleans()), max_size=200).map(sorted), bound=share)
def test_a_threshold_is_never_or_one_above_which_few_were_wrong(told: list[tuple[float, bool]], bound: float) -> None:
    found = threshold(told, bound)
    if bound >= 1.0:
        assert found == 0.0
    elif found is not NEVER:
        above = [right for probability, right in told if probability >= found]
        assert len(above) >= 20
        assert sum(not right for right in above) <= bound * len(above)


@given(told=st.lists(st.tuples(share, st.booleans()), min_size=20, max_size=200).map(sorted))
@settings(max_examples=50)
def test_who_tolerates_more_runs_more(told: list[tuple[float, bool]]) -> None:
    found = [threshold(told, bound) for bound in (0.1, 0.3, 0.5, 0.7, 1.0)]
    assert found == sorted(found, reverse=True)


DAYS = {
    "sharp": lambda p: p,
    "flat, just too bad": lambda p: 1 / 3 - 0.02,
    "flat, at the bound": lambda p: 2 / 3 - 1e-9,
    "upside down": lambda p: 1 - p,
    "only the surest": lambda p: 0.9 if p > 0.8 else 0.1,
    "a few ties": lambda p: 0.75 if p > 0.5 else 0.3,
}


@pytest.mark.parametrize("day", DAYS)
@pytest.mark.parametrize("size", [60, 300])
def test_the_bound_is_missed_no_more_often_than_it_says(day: str, size: int) -> None:
    """Over many sets of past predictions: how often does the threshold let too many wrong ones of new data through?"""
    draw, chance, bound, missed, days = random.Random(11), DAYS[day], 1 / 3, 0, 300

    def score() -> float:
        return round(draw.random(), 1) if day == "a few ties" else draw.random()

    grid = [(i + 0.5) / 1000 for i in range(1000)]
    for _ in range(days):
        told = sorted((p, draw.random() < chance(p)) for p in (score() for _ in range(size)))
        found = threshold(told, bound)
        above = [1 - chance(p) for p in grid if p >= found]
        missed += bool(above) and sum(above) / len(above) > bound + 1e-3
    assert missed / days <= 0.1 + 0.05  # the bound's doubt, and the simulation's own error


def test_a_good_predictor_is_not_held_back_for_long() -> None:
    draw = random.Random(2)
    bound = DiscardBound(1 / 3)
    for _ in range(100):
        bound.add(0.8 + 0.1 * draw.random(), draw.random() < 0.9)
    assert bound.least(calibrated=True) < 0.85


def test_while_there_is_nothing_to_go_by_the_calibrated_are_taken_at_their_word() -> None:
    bound = DiscardBound(0.25)
    assert (bound.least(calibrated=True), bound.least(calibrated=False)) == (0.75, 0.0)
    for _ in range(20):
        bound.add(0.9, False)
    assert bound.least(calibrated=True) == bound.least(calibrated=False) == NEVER
    assert DiscardBound(1.0).least(calibrated=True) == 0.0


def test_old_predictions_leave_the_bound() -> None:
    bound = DiscardBound(1 / 3, window=60)
    for _ in range(100):
        bound.add(0.9, False)
    assert bound.least(calibrated=False) == NEVER
    for _ in range(60):
        bound.add(0.9, True)
    assert bound.least(calibrated=False) == 0.9
