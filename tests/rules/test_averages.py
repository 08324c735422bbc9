"""What is measured: means, quantiles, sketches, paces, and how much of a turn is left."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.gating.averages import Averages, Mean, Pace, Quantile
from agentspec.gating.kept import Kept
from agentspec.gating.runway import Phase, Progress, Runway
from agentspec.gating.sketch import Sketch, expected_min, exponential, mean_of, thinned

observed = st.lists(st.floats(-1e6, 1e6), max_size=80)
seconds = st.floats(0, 1e4)
points = st.lists(st.tuples(seconds, st.floats(0.1, 10)), min_size=1, max_size=12).map(sorted)


@given(seen=observed, prior=st.floats(-10, 10))
def test_a_mean_lies_between_what_it_saw(seen: list[float], prior: float) -> None:
    mean = Mean(prior=prior, weight=1.0)
    for value in seen:
        mean.add(value)
    everything = [prior, *seen]
    assert min(everything) - 1e-6 <= mean.value <= max(everything) + 1e-6
    assert mean.count == len(seen)


@given(seen=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50))
def test_a_mean_is_the_mean_until_it_begins_to_forget(seen: list[float]) -> None:
    mean = Mean(prior=2.0, weight=3.0)
    for value in seen:
        mean.add(value)
    assert mean.value == pytest.approx((sum(seen) + 6.0) / (len(seen) + 3.0), abs=1e-6)


def test_a_mean_forgets() -> None:
    mean = Mean(prior=0.0)
    for _ in range(500):
        mean.add(10.0)
    for _ in range(200):
        mean.add(1.0)
    assert 0.9 < mean.value < 1.3


@given(
    seen=st.lists(st.integers(0, 100), min_size=1, max_size=64),
    q=st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0]),
)
def test_a_quantile_is_the_nearest_rank(seen: list[int], q: float) -> None:
    quantile = Quantile()
    for value in seen:
        quantile.add(value)
    assert quantile.at(q) == sorted(seen)[max(0, math.ceil(q * len(seen)) - 1)]


def test_a_quantile_of_nothing_is_nothing_and_old_values_leave() -> None:
    quantile = Quantile(window=3)
    assert (quantile.at(0.5), len(quantile)) == (None, 0)
    for value in (9.0, 9.0, 9.0, 1.0, 2.0, 3.0):
        quantile.add(value)
    assert (quantile.at(0.5), len(quantile)) == (2.0, 3)


@given(seen=st.lists(seconds, max_size=300))
def test_a_sketch_holds_the_last_values_and_a_prior(seen: list[float]) -> None:
    sketch = Sketch(prior=1.0, weight=0.5, window=128)
    for value in seen:
        sketch.add(value)
    last = seen[-128:]
    assert sketch.count == len(seen)
    assert len(sketch) == len(last)
    assert sketch.value == pytest.approx((sum(last) + 0.5) / (len(last) + 0.5), rel=1e-6, abs=1e-6)
    assert sketch.measured_mean() == pytest.approx(sum(last) / len(last) if last else 0.0)
    values = [value for value, _ in sketch.points()]
    assert values == sorted(values)


@given(seen=st.lists(seconds, max_size=128), passed=seconds)
def test_beyond_is_what_is_left_of_the_longer_ones(seen: list[float], passed: float) -> None:
    sketch = Sketch(prior=1.0)
    for value in seen:
        sketch.add(value)
    assert sketch.beyond(passed) == [value - passed for value in sorted(seen) if value > passed]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_measured(value: float) -> None:
    sketch = Sketch(prior=1.0)
    sketch.add(value)
    assert sketch.value == pytest.approx(1.0)


@given(one=points, other=points, offset=seconds)
def test_the_expected_minimum_is_the_one_by_hand(
    one: list[tuple[float, float]], other: list[tuple[float, float]], offset: float
) -> None:
    total = sum(w for _, w in one) * sum(w for _, w in other)
    by_hand = sum(v * w for a, u in one for b, x in other for v, w in [(min(a, max(0.0, b - offset)), u * x)]) / total
    assert expected_min(one, other, offset) == pytest.approx(by_hand, rel=1e-6, abs=1e-6)


def test_of_nothing_nothing_is_expected() -> None:
    assert expected_min([], [(1.0, 1.0)]) == expected_min([(1.0, 1.0)], []) == mean_of([]) == 0.0


@given(values=st.lists(seconds, min_size=1, max_size=200).map(sorted))
def test_a_few_values_stand_for_many_in_order_and_with_the_same_mean(values: list[float]) -> None:
    few = thinned(values)
    assert len(few) <= 12
    assert sum(weight for _, weight in few) == len(values)
    assert all(b >= a - 1e-6 for (a, _), (b, _) in pairwise(few))
    assert mean_of(few) == pytest.approx(sum(values) / len(values), rel=1e-6, abs=1e-6)


def test_what_is_measured_of_one_says_nothing_of_another() -> None:
    averages = Averages()
    averages.tool_latency("f", "1").add(100.0)
    assert averages.tool_latency("f", "1").value > 10
    assert averages.tool_latency("f", "2").value == averages.tool_latency("g", "1").value == pytest.approx(1.0)
    averages.call_rate("alice", "m", 99).add(0.0)
    assert averages.call_rate("alice", "m", 8).value < averages.call_rate("bob", "m", 8).value


def test_what_nobody_asks_for_is_forgotten_first() -> None:
    kept: Kept[int, list[int]] = Kept(list, most=2)
    kept[1].append(1)
    kept[2].append(2)
    assert kept[1] == [1]
    assert kept[3] == []
    assert (kept.seen(1), kept.seen(2), len(kept)) == ([1], None, 2)


@pytest.mark.parametrize(
    ("probed", "slowdown"), [(0.02, 1.0), (0.01, 0.0), (0.005, 0.0)], ids=["slower", "the same", "faster"]
)
def test_a_slowdown_is_told_where_both_paces_were_seen(probed: float, slowdown: float) -> None:
    pace = Pace()
    assert (pace.s_per_char, pace.slowdown) == (None, None)
    pace.add(0.01 * 50, 50, probed=False)
    assert pace.slowdown is None
    pace.add(probed * 50, 50, probed=True)
    assert pace.slowdown == pytest.approx(slowdown)
    assert pace.s_per_char == pytest.approx((0.01 + probed) / 2)


# How much is left


def mean_left(runway: Runway, progress: Progress) -> float:
    return mean_of(runway.left(progress))


def at(elapsed_s: float) -> Progress:
    return Progress(Phase.WAITING, elapsed_s)


@given(elapsed=seconds)
def test_before_anything_is_seen_three_seconds_are_left_whenever_one_asks(elapsed: float) -> None:
    assert mean_left(Runway(), at(elapsed)) == pytest.approx(3.0)


def test_what_is_left_is_that_of_the_turns_that_lasted_as_long() -> None:
    """Half of the turns end after a second, half after ten: who is past the first second has nine to go."""
    runway = Runway()
    for _ in range(50):
        runway.claimed(1.0, 0.01, followed=False)
        runway.claimed(10.0, 0.01, followed=False)
    assert mean_left(runway, at(0.0)) == pytest.approx(5.5, abs=0.2)
    assert mean_left(runway, at(2.0)) == pytest.approx(8.0, abs=0.3)
    assert 0 < mean_left(runway, at(11.0)) < 1.5


@given(claims=st.lists(seconds, max_size=60), elapsed=seconds)
def test_what_is_left_is_never_negative_and_never_nothing(claims: list[float], elapsed: float) -> None:
    runway = Runway()
    for claim in claims:
        runway.claimed(claim, 0.0, followed=False)
    left = runway.left(at(elapsed))
    assert all(value >= 0 and weight > 0 for value, weight in left)
    assert sum(value for value, _ in left) > 0


def test_once_there_is_text_its_length_and_this_turns_pace_decide() -> None:
    """A model that thinks 1000 characters, on an endpoint that is now ten times slower than it was."""
    runway = Runway()
    for _ in range(20):
        runway.call_began(Progress(Phase.THINKING, 1.0, 1000))
        runway.claimed(1.0, 0.0, followed=False)
    slow = Progress(Phase.THINKING, 5.0, 500, s_per_char=0.01)
    assert mean_left(runway, slow) == pytest.approx(5.0, abs=0.3)
    assert mean_left(runway, Progress(Phase.SPEAKING, 5.0, 500, s_per_char=0.01)) < 1.0
    assert mean_left(runway, Progress(Phase.THINKING, 5.0, 500)) < 1.0


def test_after_a_call_has_closed_it_counts_whether_another_follows() -> None:
    runway = Runway()
    assert runway.left_after_closing() is None
    for _ in range(20):
        runway.claimed(5.0, 0.005, followed=False)
        runway.claimed(5.0, 2.0, followed=True)
    closing = runway.left_after_closing()
    assert closing is not None
    assert mean_of(closing) < 0.01
    assert mean_left(runway, Progress(Phase.CALLING, 4.0, since_call_s=0.5)) == pytest.approx(1.5, abs=0.1)


def test_an_exponential_prior_has_its_mean_and_a_tail() -> None:
    values = exponential(2.0)
    assert sum(values) / len(values) == pytest.approx(2.0)
    assert values == sorted(values)
    assert values[-1] > 4.0


def test_sketched_savings_are_close_to_those_of_the_full_data() -> None:
    draw = random.Random(3)
    latency, runway = Sketch(prior=1.0), Sketch(prior=3.0)
    latencies = [draw.lognormvariate(0.0, 1.0) for _ in range(128)]
    runways = [draw.lognormvariate(1.0, 0.7) for _ in range(128)]
    for one, other in zip(latencies, runways, strict=True):
        latency.add(one)
        runway.add(other)
    real = sum(min(a, b) for a in latencies for b in runways) / 128**2
    assert expected_min(latency.points(), runway.points()) == pytest.approx(real, rel=0.03)
