"""The gate's arithmetic by hand, and the averages that it decides on."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.averages import Averages, Mean, Quantile
from agentspec.gate import Bet, Policy, break_even, saving_s, worth_probing, worth_running

P = Policy(probe_slowdown=0.2, miss_cost_share=0.1, min_saving_s=0.02, egress_factor=0.8, max_runs_per_turn=4)
seconds = st.floats(0, 1000)
bets = st.builds(Bet, st.floats(0, 1), seconds, seconds, seconds, st.booleans(), st.integers(0, 8))


@pytest.mark.parametrize(
    ("bet", "saving", "threshold"),
    [
        (Bet(0.5, tool_latency_s=1.0, runway_s=3.0), 1.0, 0.1 / 1.1),
        (Bet(0.5, tool_latency_s=4.0, runway_s=3.0), 3.0, 0.4 / 3.4),
        (Bet(0.5, tool_latency_s=2.0, runway_s=3.0, probe_time_s=2.0), 1.0, (0.4 + 0.2) / 1.2),
        (Bet(0.5, tool_latency_s=1.0, runway_s=1.0, probe_time_s=1.0), 0.0, 1.0),
        (Bet(0.5, tool_latency_s=1.0, runway_s=0.5, probe_time_s=1.0), 0.0, 1.0),
        (Bet(0.5, tool_latency_s=1.0, runway_s=3.0, egress=True), 1.0, 0.8),
        (Bet(0.5, tool_latency_s=0.0, runway_s=3.0), 0.0, 1.0),
    ],
)
def test_saving_and_break_even_by_hand(bet: Bet, saving: float, threshold: float) -> None:
    assert (saving_s(bet), break_even(bet, P)) == pytest.approx((saving, threshold))


@given(bet=bets)
def test_at_break_even_winning_pays_for_losing(bet: Bet) -> None:
    p, saving = break_even(dataclasses.replace(bet, egress=False), P), saving_s(bet)
    if saving > 1e-6:
        miss = P.miss_cost_share * bet.tool_latency_s
        assert p * saving == pytest.approx(P.probe_slowdown * bet.probe_time_s + (1 - p) * miss, rel=1e-6, abs=1e-9)


@given(bet=bets, more=seconds)
def test_more_runway_and_a_shorter_probe_never_raise_the_bar(bet: Bet, more: float) -> None:
    assert break_even(dataclasses.replace(bet, runway_s=bet.runway_s + more), P) <= break_even(bet, P) or (
        break_even(bet, P) >= 1 and saving_s(bet) == 0
    )
    assert saving_s(dataclasses.replace(bet, probe_time_s=bet.probe_time_s + more)) <= saving_s(bet)


@given(bet=bets, surer=st.floats(0, 1))
def test_who_is_surer_is_never_refused_instead(bet: Bet, surer: float) -> None:
    better = dataclasses.replace(bet, confidence=max(bet.confidence, surer))
    for rule in (worth_running, worth_probing):
        assert rule(better, P).go >= rule(bet, P).go


@given(bet=bets)
def test_egress_is_never_easier(bet: Bet) -> None:
    strict, loose = (worth_running(dataclasses.replace(bet, egress=egress), P).go for egress in (True, False))
    assert strict <= loose
    assert not strict or bet.confidence > P.egress_factor


@given(bet=bets)
def test_a_verdict_gives_its_reason_and_never_goes_for_nothing(bet: Bet) -> None:
    for rule in (worth_running, worth_probing):
        verdict = rule(bet, P)
        assert verdict.reason
        assert "\n" not in verdict.reason
        assert not verdict.go or (verdict.saving_s >= P.min_saving_s and bet.confidence > verdict.threshold)


@pytest.mark.parametrize(
    ("bet", "reason"),
    [
        (Bet(1.0, 1.0, 3.0, runs_so_far=4), "4 runs in this turn already"),
        (Bet(1.0, 0.001, 3.0), "would save 1 ms, too little"),
        (Bet(0.05, 1.0, 3.0), "p=0.05 does not reach p*=0.09 (would save 1.00 s)"),
        (Bet(0.5, 1.0, 3.0), "p=0.50 > p*=0.09, may save 1.00 s"),
    ],
)
def test_reasons_of_a_run(bet: Bet, reason: str) -> None:
    assert worth_running(bet, P).reason == reason


def test_without_runway_there_is_no_probe() -> None:
    assert worth_probing(Bet(1.0, 5.0, 1.0, probe_time_s=1.0), P).reason == "no runway is left after the probe"
    assert not worth_probing(Bet(1.0, 5.0, 1.001, probe_time_s=1.0), P).go


def test_no_runs_where_none_are_allowed() -> None:
    assert not worth_running(Bet(1.0, 1.0, 3.0), dataclasses.replace(P, max_runs_per_turn=0)).go


def test_confidence_at_the_bar_is_not_above_it() -> None:
    bet = Bet(0.0, 1.0, 3.0)
    assert not worth_running(dataclasses.replace(bet, confidence=break_even(bet, P)), P).go


observed = st.lists(st.floats(-1e6, 1e6), max_size=80)


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


def test_what_is_measured_of_one_says_nothing_of_another() -> None:
    averages = Averages()
    averages.tool_latency("f", "1").add(100.0)
    assert averages.tool_latency("f", "1").value > 10
    assert averages.tool_latency("f", "2").value == averages.tool_latency("g", "1").value == 1.0
    averages.call_rate("alice", "m", 99).add(0.0)
    assert averages.call_rate("alice", "m", 8).value < averages.call_rate("bob", "m", 8).value
