"""The gate's arithmetic by hand, and what must hold of it whatever it is asked."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.gating.gate import (
    Bet,
    Policy,
    break_even,
    exactly,
    saving_s,
    worth_chaining,
    worth_probing,
    worth_running,
)
from agentspec.gating.sketch import POINTS, mean_of, summed

P = Policy(miss_cost_share=0.1, min_saving_s=0.02, egress_factor=0.8, max_runs_per_turn=4)
seconds = st.floats(0, 1000)
share = st.floats(0, 1)
distributions = st.lists(st.tuples(seconds, st.floats(0.1, 10)), min_size=1, max_size=20).map(sorted)


@st.composite
def bets(draw: st.DrawFn) -> Bet:
    return Bet(
        confidence=draw(share),
        latency=draw(distributions),
        runway=draw(distributions),
        probe_time_s=draw(seconds),
        slowdown=draw(share),
        miss_s=draw(seconds),
        egress=draw(st.booleans()),
        runs_so_far=draw(st.integers(0, 8)),
        least=draw(share),
        rests_on=draw(share),
        opinion_in_s=draw(st.none() | seconds),
        refutes=draw(share),
    )


def bet(p: float, latency_s: float, runway_s: float, **more: object) -> Bet:
    """A bet on exact values, a discarded run of which takes as long as the tool."""
    return Bet(p, exactly(latency_s), exactly(runway_s), **{"slowdown": 0.2, "miss_s": latency_s, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "saving", "threshold"),
    [
        (bet(0.5, 1.0, 3.0), 1.0, 0.1 / 1.1),
        (bet(0.5, 4.0, 3.0), 3.0, 0.4 / 3.4),
        (bet(0.5, 2.0, 3.0, probe_time_s=2.0), 1.0, (0.4 + 0.2) / 1.2),
        (bet(0.5, 1.0, 1.0, probe_time_s=1.0), 0.0, 1.0),
        (bet(0.5, 1.0, 0.5, probe_time_s=1.0), 0.0, 1.0),
        (bet(0.5, 1.0, 3.0, egress=True), 1.0, 0.8),
        (bet(0.5, 0.0, 3.0), 0.0, 1.0),
        (bet(0.5, 1.0, 3.0, miss_s=0.0), 1.0, 0.0),
        (bet(0.5, 1.0, 3.0, miss_share=0.0), 1.0, 0.0),
        (bet(0.5, 1.0, 3.0, miss_share=1.0), 1.0, 0.5),
    ],
)
def test_saving_and_break_even_by_hand(asked: Bet, saving: float, threshold: float) -> None:
    assert saving_s(asked) == pytest.approx(saving)
    assert break_even(asked, P, saving_s(asked)) == pytest.approx(threshold)


def test_the_saving_is_expected_over_both_distributions() -> None:
    latency, runway = [(1.0, 1.0), (3.0, 1.0)], [(0.0, 1.0), (2.0, 2.0), (10.0, 1.0)]
    by_hand = (0 + 1 * 2 + 1 + 0 + 2 * 2 + 3) / 8
    assert saving_s(Bet(0.5, latency, runway)) == pytest.approx(by_hand)


@given(asked=bets())
def test_at_break_even_winning_pays_for_losing(asked: Bet) -> None:
    asked = dataclasses.replace(asked, egress=False)
    saving = saving_s(asked)
    p = break_even(asked, P, saving)
    if saving > 1e-6:
        miss_s = P.miss_cost_share * asked.miss_s
        assert p * saving == pytest.approx(asked.slowdown * asked.probe_time_s + (1 - p) * miss_s, rel=1e-6, abs=1e-6)


@given(asked=bets(), more=seconds)
def test_more_runway_and_a_shorter_probe_never_save_less(asked: Bet, more: float) -> None:
    longer = dataclasses.replace(asked, runway=[(value + more, weight) for value, weight in asked.runway])
    assert saving_s(longer) >= saving_s(asked) - 1e-6
    assert saving_s(dataclasses.replace(asked, probe_time_s=asked.probe_time_s + more)) <= saving_s(asked) + 1e-6
    assert saving_s(asked, more) <= saving_s(asked) + 1e-6


@given(asked=bets(), surer=share)
def test_who_is_surer_is_never_refused_instead(asked: Bet, surer: float) -> None:
    asked = dataclasses.replace(asked, opinion_in_s=None)
    better = dataclasses.replace(asked, confidence=max(asked.confidence, surer))
    for rule in (worth_running, worth_probing):
        assert rule(better, P).go >= rule(asked, P).go


@given(asked=bets(), surer=share)
def test_what_rests_on_a_guess_is_never_easier(asked: Bet, surer: float) -> None:
    asked = dataclasses.replace(asked, opinion_in_s=None)
    chained = dataclasses.replace(asked, rests_on=asked.rests_on * surer)
    assert worth_running(chained, P).go <= worth_running(asked, P).go


def test_a_chain_goes_as_deep_as_its_product_pays() -> None:
    deep = [worth_running(bet(0.6, 1.0, 3.0, rests_on=0.6**depth), P).go for depth in range(8)]
    assert deep == [0.6 ** (depth + 1) > 0.1 / 1.1 for depth in range(8)]


def test_as_many_candidates_run_as_pay_for_themselves() -> None:
    going = [worth_running(bet(p, 1.0, 3.0, runs_so_far=j), P).go for j, p in enumerate((0.5, 0.2, 0.1, 0.05, 0.9))]
    assert going == [True, True, True, False, False]


@given(asked=bets())
def test_egress_is_never_easier(asked: Bet) -> None:
    strict, loose = (worth_running(dataclasses.replace(asked, egress=egress), P).go for egress in (True, False))
    assert strict <= loose
    assert not strict or asked.probability > P.egress_factor


@given(asked=bets())
def test_a_verdict_gives_its_reason_and_never_goes_for_nothing(asked: Bet) -> None:
    for rule in (worth_running, worth_probing):
        verdict = rule(asked, P)
        assert verdict.reason
        assert "\n" not in verdict.reason
        assert not verdict.go or (verdict.saving_s >= P.min_saving_s and asked.probability > verdict.threshold)
        assert not (verdict.go and verdict.wait_s)
    assert not worth_running(asked, P).go or asked.probability >= asked.least


@given(asked=bets())
def test_what_waits_would_have_run_and_waits_for_no_longer_than_the_opinion(asked: Bet) -> None:
    verdict = worth_running(asked, P)
    if verdict.wait_s:
        assert verdict.wait_s == asked.opinion_in_s
        assert worth_running(dataclasses.replace(asked, opinion_in_s=None), P).go


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (bet(1.0, 1.0, 3.0, runs_so_far=4), "4 runs in this turn already"),
        (bet(1.0, 0.001, 3.0), "would save 1 ms, too little"),
        (bet(0.05, 1.0, 3.0), "p=0.05 does not reach p*=0.09 (would save 1.00 s)"),
        (bet(0.5, 1.0, 3.0), "p=0.50 > p*=0.09, may save 1.00 s"),
        (bet(0.5, 1.0, 3.0, least=0.6), "p=0.50 is below 0.60, which the bound on discarded runs asks for"),
        (
            bet(0.5, 1.0, 9.0, opinion_in_s=2.0, refutes=0.8),
            "waits 2000 ms for the probe: that costs 0 ms and keeps 40 ms",
        ),
    ],
)
def test_reasons_of_a_run(asked: Bet, reason: str) -> None:
    assert worth_running(asked, P).reason == reason


@pytest.mark.parametrize(
    ("runway_s", "p", "waits"),
    [(9.0, 0.5, True), (2.9, 0.5, False), (9.0, 1.0, False)],
    ids=["it is free while R - P > L", "it would cost the saving", "there is nothing to learn"],
)
def test_it_waits_for_the_probe_only_where_that_costs_less_than_it_keeps(
    runway_s: float, p: float, waits: bool
) -> None:
    verdict = worth_running(bet(p, 1.0, runway_s, opinion_in_s=2.0, refutes=0.8), P)
    assert (verdict.wait_s > 0) is waits
    assert verdict.go is not waits


def test_without_runway_there_is_no_probe() -> None:
    assert worth_probing(bet(1.0, 5.0, 1.0, probe_time_s=1.0), P).reason == "no runway is left after the probe"
    assert not worth_probing(bet(1.0, 5.0, 1.001, probe_time_s=1.0), P).go
    assert worth_probing(bet(1.0, 0.001, 9.0, probe_time_s=1.0), P).reason == "would save 1 ms, too little"


def test_no_runs_where_none_are_allowed() -> None:
    assert not worth_running(bet(1.0, 1.0, 3.0), dataclasses.replace(P, max_runs_per_turn=0)).go


def test_confidence_at_the_bar_is_not_above_it() -> None:
    asked = bet(0.0, 1.0, 3.0)
    at_the_bar = dataclasses.replace(asked, confidence=break_even(asked, P, saving_s(asked)))
    assert not worth_running(at_the_bar, P).go


# Calls of the next turn


def test_a_call_that_the_next_turn_has_time_for_is_left_to_it() -> None:
    verdict = worth_chaining(bet(0.9, 1.0, 5.0), P, exactly(3.0))
    assert not verdict.go
    assert verdict.reason == "the next turn is soon enough: now saves 0 ms more, p=0.90"


@pytest.mark.parametrize(
    ("rests_on", "refutes", "go"),
    [(1.0, 0.0, True), (0.5, 0.0, True), (0.1, 0.0, False), (1.0, 1.0, True)],
)
def test_what_it_saves_more_is_held_against_the_runs_that_the_next_turn_would_not_begin(
    rests_on: float, refutes: float, go: bool
) -> None:
    """It saves 0.5 s more, p*0.5 s, against (1 - rests_on)*0.1 s and what the next turn refutes."""
    asked = bet(0.8, 1.0, 2.0, rests_on=rests_on, refutes=refutes)
    by_hand = 0.8 * rests_on * 0.5 > ((1 - rests_on) + rests_on * 0.2 * refutes) * 0.1
    assert by_hand == go
    assert worth_chaining(asked, P, exactly(0.5)).go == go


@given(asked=bets(), later=distributions)
def test_what_runs_a_turn_ahead_would_run_on_its_own_account_as_well(
    asked: Bet, later: list[tuple[float, float]]
) -> None:
    if worth_chaining(asked, P, later).go:
        assert worth_running(asked, P).go


@given(one=distributions, other=distributions)
def test_a_sum_of_distributions_has_the_sum_of_their_means_and_few_points(
    one: list[tuple[float, float]], other: list[tuple[float, float]]
) -> None:
    points = summed(one, other)
    assert len(points) <= POINTS + 1
    assert all(before <= after * (1 + 1e-9) for (before, _), (after, _) in pairwise(points))
    assert mean_of(points) == pytest.approx(mean_of(one) + mean_of(other), rel=1e-6, abs=1e-6)
