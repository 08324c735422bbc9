"""Scores worked out by hand, and what holds whatever was predicted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall, same_call
from agentspec.proxy.bench.hits import scoring
from agentspec.proxy.bench.hits.baseline import name_trigram
from agentspec.proxy.bench.hits.scoring import Bin, CallPoint, StepPoint, call_point, matched, step_point
from agentspec.recollection import Forecast, Recalled

TOOLS = {"find": {"properties": {"n": {"type": "number"}, "unit": {"type": "string", "default": "kg"}}}}
ONE, TWO, OTHER = ToolCall("find", {"n": 1}), ToolCall("find", {"n": 2}), ToolCall("book", {"id": "a"})


def forecast(*calls: ToolCall, no_call: float = 0.0, probability: float = 0.5) -> Forecast:
    return Forecast(no_call, tuple(Recalled(call, probability) for call in calls))


def hit(probability: float = 1.0) -> CallPoint:
    return CallPoint(probability, 1, 1)


def miss(probability: float = 1.0) -> CallPoint:
    return CallPoint(probability, None, 1)


def test_ranks_count_candidates_for_the_call_and_distinct_names_for_the_name() -> None:
    assert call_point(OTHER, forecast(ONE, TWO, OTHER), TOOLS) == CallPoint(0.5, 3, 2)
    assert call_point(ToolCall("book", {"id": "b"}), forecast(ONE, TWO, OTHER), TOOLS) == CallPoint(0.5, None, 2)
    assert call_point(ToolCall("pay", {}), forecast(ONE), TOOLS) == CallPoint(0.5, None, None)
    assert call_point(ONE, forecast(), TOOLS) == CallPoint()


def test_the_tools_schema_decides_what_is_the_same() -> None:
    written = ToolCall("find", {"n": 1.0, "unit": "kg"})
    assert call_point(written, forecast(ONE), TOOLS).hit
    assert not call_point(written, forecast(ONE), {}).hit
    assert matched([ONE], [written], TOOLS) == 1


def test_rates_of_calls_by_hand() -> None:
    points = [CallPoint(0.9, 1, 1), CallPoint(0.6, 3, 1), CallPoint(0.6, 4, 2), CallPoint()]
    assert scoring.exact_hit(points) == 1 / 4
    assert scoring.exact_hit(points, 3) == 2 / 4
    assert scoring.name_hit(points) == 2 / 4
    assert scoring.name_hit(points, 3) == 3 / 4
    assert scoring.offers_per_call(points) == 3 / 4


def test_calibration_by_hand() -> None:
    points = [hit(0.95), hit(0.95), miss(0.95), hit(0.25), miss(0.25), CallPoint(), hit(1.0)]
    bins = scoring.reliability(points)
    assert bins == (Bin(0.25, 0.5, 2), Bin(pytest.approx(0.9625), 0.75, 4))  # type: ignore[arg-type]
    assert scoring.calibration_error(points) == pytest.approx((2 * 0.25 + 4 * 0.2125) / 6)


def test_a_step_is_a_set_when_no_real_call_was_told() -> None:
    step = step_point([ONE, ONE, OTHER], forecast(OTHER, no_call=0.2), [OTHER, ONE, TWO], TOOLS)
    assert step == StepPoint(3, 0.2, pytest.approx(0.4), False, 3, 2)  # type: ignore[arg-type]
    assert matched([ONE, ONE, ONE], [ONE, OTHER], TOOLS) == 1
    assert scoring.blind_hit([step, StepPoint(0, 0.9), StepPoint(1, 0.0)]) == 2 / 4
    assert scoring.blind_offers_per_call([step, StepPoint(1, 0.0)]) == 3 / 4


def test_silence_and_bets_by_hand() -> None:
    steps = [
        step_point([], forecast(no_call=0.9), [], TOOLS),
        step_point([], forecast(ONE, no_call=0.1, probability=0.9), [], TOOLS),
        step_point([ONE], forecast(ONE, no_call=0.5, probability=1.0), [ONE], TOOLS),
        step_point([ONE], forecast(ONE, no_call=0.0, probability=0.9), [ONE], TOOLS),
        step_point([ONE], forecast(TWO, no_call=0.0, probability=0.4), [TWO], TOOLS),
    ]
    assert scoring.no_call_precision(steps) == 1 / 2
    assert scoring.no_call_recall(steps) == 1 / 2
    assert (scoring.bet_precision(steps, 0.5), scoring.bet_share(steps, 0.5)) == (2 / 3, 3 / 5)
    assert (scoring.bet_precision(steps, 0.85), scoring.bet_share(steps, 0.85)) == (1.0, 1 / 5)


def test_growth_is_the_last_fifth_against_the_first() -> None:
    points = [*[hit(), miss()] * 2, *[miss()] * 12, *[hit(), hit(), hit(), miss()]]
    assert scoring.fifths(points) == (0.5, 0.0, 0.0, 0.0, 0.75)
    assert scoring.growth(points) == pytest.approx(0.5)
    assert scoring.growth([miss()] * 10) is None
    assert scoring.growth([hit()]) is None


def test_the_spread_is_over_trajectories() -> None:
    assert scoring.spread([[hit(), hit()], [hit()]]) == (1.0, 1.0)
    assert scoring.spread([[hit()] * 10, [miss()] * 10]) == (0.0, 1.0)
    assert scoring.spread([[], []]) == (None, None)


def test_of_nothing_there_is_no_rate() -> None:
    of_calls = [scoring.exact_hit, scoring.name_hit, scoring.offers_per_call, scoring.calibration_error, scoring.growth]
    assert [rate([]) for rate in of_calls] == [None] * 5
    of_steps = [scoring.blind_hit, scoring.no_call_precision, scoring.no_call_recall]
    assert [rate([]) for rate in of_steps] == [None] * 3
    assert scoring.bet_precision([], 0.5) is scoring.bet_share([], 0.5) is None


def test_the_trigram_falls_back_and_starts_anew_with_each_trajectory() -> None:
    assert name_trigram([["a"], ["a"], ["a"]]) == pytest.approx(2 / 3)
    assert name_trigram([["a", "b", "a", "c"]]) == 1 / 4  # a was as frequent as b, and first
    assert name_trigram([["a", "b", "c"], ["x", "b", "c"]]) == pytest.approx(1 / 6)  # c after b, whatever was before
    assert name_trigram([]) is None


calls = st.builds(
    ToolCall,
    st.sampled_from(["find", "book"]),
    st.dictionaries(st.sampled_from(["n", "unit"]), st.sampled_from([1, 1.0, 2, "kg", None, True])),
)
probabilities = st.floats(0.0, 1.0)
forecasts = st.builds(
    Forecast, probabilities, st.lists(st.builds(Recalled, calls, probabilities), max_size=5).map(tuple)
)
pairs = st.lists(st.tuples(calls, forecasts), min_size=1, max_size=30)


@given(pairs)
def test_what_holds_of_any_predictor(told: Sequence[tuple[ToolCall, Forecast]]) -> None:
    points = [call_point(real, forecast, TOOLS) for real, forecast in told]
    rates = [scoring.exact_hit(points), scoring.exact_hit(points, 3), scoring.name_hit(points, 3)]
    assert rates == sorted(rates, key=lambda rate: rate or 0.0)
    assert (scoring.exact_hit(points) or 0.0) <= (scoring.name_hit(points) or 0.0)
    assert (scoring.exact_hit(points) or 0.0) <= (scoring.offers_per_call(points) or 0.0) <= 1.0
    assert 0.0 <= (scoring.calibration_error(points) or 0.0) <= 1.0
    low, high = scoring.spread([points[:3], points[3:]])
    assert low is not None
    assert high is not None
    assert 0.0 <= low <= high <= 1.0


@given(pairs)
def test_a_perfect_predictor_has_every_point(told: Sequence[tuple[ToolCall, Forecast]]) -> None:
    points = [call_point(real, forecast(real, probability=1.0), TOOLS) for real, _ in told]
    real = [call for call, _ in told]
    steps = [
        step_point(real, forecast(real[0], probability=1.0), real, TOOLS),
        step_point([], forecast(no_call=1.0), [], TOOLS),
    ]
    of_calls = [scoring.exact_hit(points), scoring.exact_hit(points, 3), scoring.name_hit(points)]
    of_steps = [scoring.blind_hit(steps), scoring.no_call_precision(steps), scoring.no_call_recall(steps)]
    assert [*of_calls, *of_steps, scoring.bet_precision(steps, 0.85), scoring.offers_per_call(points)] == [1.0] * 8
    assert scoring.calibration_error(points) == 0.0


@given(st.lists(calls, max_size=6), st.lists(calls, max_size=6))
def test_matching_in_any_order_never_exceeds_what_there_is(offered: list[ToolCall], real: list[ToolCall]) -> None:
    found = matched(offered, real, TOOLS)
    assert found == matched(real, offered, TOOLS) == matched(offered[::-1], real, TOOLS)
    assert found <= min(len(offered), len(real))
    assert (found > 0) == any(same_call(one, other, TOOLS.get(other.name)) for one in offered for other in real)
    assert matched(real, real, TOOLS) == len(real)
