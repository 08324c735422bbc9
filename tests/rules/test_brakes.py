"""What does not pay is switched off and tried again; budgets, accounts and load say no in time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.gating.account import ALLOWED_SHARE, AT_LEAST_S, WRONG_IN_A_ROW, Account, Standing
from agentspec.gating.breaker import FEWEST, FIRST_PAUSE_S, LONGEST_PAUSE_S, TRIALS, Breaker
from agentspec.gating.budgets import DAY_S, Budget, Limits
from agentspec.gating.load import Drift, Load, queue_depth

nets = st.lists(st.floats(-10, 10), max_size=100)


def opened() -> Breaker:
    breaker = Breaker()
    for _ in range(FEWEST):
        breaker.add(-1.0, 0.0)
    return breaker


def on_trial(breaker: Breaker, net_s: float, now_s: float) -> None:
    for _ in range(TRIALS):
        assert breaker.refuses(now_s) is None
        breaker.began()
    assert breaker.refuses(now_s) == "it is on trial after a pause, and the trials are under way"
    for _ in range(TRIALS):
        breaker.add(net_s, now_s)


def test_what_costs_more_than_it_saves_is_off_and_says_for_how_long() -> None:
    breaker = opened()
    assert breaker.refuses(10.0) == "it cost more than it saved; tried again in 20 s"


def test_what_still_does_not_pay_is_off_for_twice_as_long_each_time() -> None:
    breaker, now_s, pauses = opened(), 0.0, []
    for _ in range(10):
        pauses.append(breaker.pause_s)
        now_s += breaker.pause_s
        on_trial(breaker, -1.0, now_s)
    assert pauses[:4] == [FIRST_PAUSE_S * 2**n for n in range(4)]
    assert breaker.pause_s == LONGEST_PAUSE_S


def test_what_pays_again_is_on_again() -> None:
    breaker = opened()
    on_trial(breaker, 1.0, FIRST_PAUSE_S)
    assert breaker.refuses(FIRST_PAUSE_S) is None
    assert breaker.pause_s == FIRST_PAUSE_S


@given(seen=nets)
def test_nothing_is_switched_off_that_paid_over_every_window(seen: list[float]) -> None:
    breaker = Breaker()
    for net_s in seen:
        breaker.add(abs(net_s), 0.0)
    assert breaker.refuses(0.0) is None


@given(seen=nets)
def test_a_few_bad_ones_are_not_enough(seen: list[float]) -> None:
    breaker = Breaker()
    for net_s in seen[: FEWEST - 1]:
        breaker.add(net_s, 0.0)
    assert breaker.refuses(0.0) is None


def test_a_trial_that_was_refused_where_it_should_have_run_is_another_trial() -> None:
    breaker = opened()
    for _ in range(3 * TRIALS):
        assert breaker.refuses(FIRST_PAUSE_S) is None
        breaker.began()
        breaker.never_mind()
    on_trial(breaker, 1.0, FIRST_PAUSE_S)
    assert breaker.off_until_s is None


def test_results_that_come_late_do_not_count_as_trials() -> None:
    breaker = opened()
    for _ in range(10):
        breaker.add(5.0, 1.0)
    assert breaker.refuses(2.0) is not None


# One trajectory


@pytest.mark.parametrize("tool_s", [0.05, 1.0, 10.0])
@pytest.mark.parametrize("think_s", [0.1, 3.0])
@pytest.mark.parametrize("turns", [3, 30, 300])
def test_a_trajectory_whose_predictions_are_always_wrong_loses_one_percent_at_most(
    tool_s: float, think_s: float, turns: int
) -> None:
    """Four wrong runs a turn, each as long as the tool. The allowance is one percent, or that of a minute at first,
    and the runs of the turn in which it is passed."""
    account, cost_s, runs = Account(), 0.15 * tool_s, 0
    for _ in range(turns):
        for _ in range(4):
            if account.refuses() is None:
                account.discarded(cost_s)
                runs += 1
        account.took(think_s + tool_s)
    assert account.lost_s <= ALLOWED_SHARE * max(AT_LEAST_S, account.took_s) + cost_s
    assert runs <= WRONG_IN_A_ROW
    assert account.refuses() == f"the last {runs} runs of this trajectory were discarded" or account.lost_s > 0.01 * 60


def test_a_prediction_that_comes_true_is_no_adversarys_even_if_it_did_not_run() -> None:
    account = Account()
    for _ in range(WRONG_IN_A_ROW):
        account.discarded(0.01)
    assert account.refuses() is not None
    account.came_true()
    assert account.refuses() is None


@given(steps=st.lists(st.tuples(st.booleans(), st.floats(0, 5)), max_size=100))
def test_an_account_never_loses_more_than_hits_saved_and_one_percent_and_one_bet(
    steps: list[tuple[bool, float]],
) -> None:
    account, most = Account(), 0.0
    for served, seconds in steps:
        if account.refuses() is None:
            most = max(most, seconds)
            account.served(seconds) if served else account.discarded(seconds)
        account.took(1.0)
        assert account.lost_s <= account.saved_s + ALLOWED_SHARE * max(AT_LEAST_S, account.took_s) + most


def test_what_probes_cost_counts_and_hits_pay_for_it() -> None:
    account = Account()
    account.cost(1.0)
    assert account.refuses() == "discarded work has cost this trajectory 1.00 s, more than 1%"
    account.served(2.0)
    assert account.refuses() is None


@pytest.mark.parametrize(("turns", "tool_s"), [(2, 3.0), (5, 3.0), (5, 0.5), (50, 0.5)])
def test_short_trajectories_of_one_who_is_always_wrong_lose_one_percent_together(turns: int, tool_s: float) -> None:
    """Each trajectory alone is allowed a minute's percent; together they are allowed that once."""
    standing, took_s = Standing(0.0), 0.0
    for _ in range(200):
        account = Account()
        for _ in range(turns):
            for _ in range(4):
                if account.refuses() is None and standing.refuses(took_s) is None:
                    account.discarded(0.15 * tool_s)
                    standing.lost_s += 0.15 * tool_s
            account.took(1.0 + tool_s)
            took_s += 1.0 + tool_s
    assert standing.lost_s <= ALLOWED_SHARE * max(AT_LEAST_S, took_s) + 0.15 * tool_s
    assert standing.lost_s / took_s < 0.012


def test_who_saves_more_than_it_costs_may_go_on_whatever_it_costs() -> None:
    standing = Standing(0.0, lost_s=50.0, saved_s=49.0)
    assert standing.refuses(60.0) == "its discarded work has cost this tenant 50.00 s, more than 1%"
    standing.saved_s += 1.0
    assert standing.refuses(60.0) is None


# Budgets


def test_no_more_at_once_than_the_budget_says() -> None:
    budget = Budget("runs", Limits(at_once=2))
    for _ in range(2):
        assert budget.refuses("f", 0.0) is None
        budget.began("f", 0.0)
    assert budget.refuses("f", 0.0) == "2 runs are under way, the budget says no more"
    assert budget.refuses("g", 0.0) is None
    budget.over("f")
    assert budget.refuses("f", 0.0) is None


@given(times=st.lists(st.floats(0, 300), max_size=100).map(sorted), limit=st.integers(0, 10))
def test_no_more_in_any_minute_than_the_budget_says(times: list[float], limit: int) -> None:
    budget, begun = Budget("runs", Limits(per_minute=limit)), []
    for now_s in times:
        if budget.refuses("f", now_s) is None:
            budget.began("f", now_s)
            begun.append(now_s)
    assert all(sum(start < at <= start + 60.0 for at in begun) <= limit for start in [t - 60.0 for t in begun])


def test_a_key_may_have_limits_of_its_own_and_shares_those_it_leaves_open() -> None:
    budget = Budget("runs", Limits(at_once=2, per_minute=3))
    budget.limit("g", Limits(per_minute=1))
    for key in ("f", "g"):
        budget.began(key, 0.0)
        budget.over(key)
    assert budget.refuses("f", 0.0) is None
    assert budget.refuses("g", 0.0) == "the budget of 1 runs a minute is spent"
    assert budget.refuses(("g", "v2"), 0.0, "g") is None, "another version of it has used nothing yet"
    for _ in range(2):
        budget.began("g", 100.0, 0.0)
    assert budget.refuses("g", 100.0) == "2 runs are under way, the budget says no more"


def test_a_budget_for_a_day_lasts_for_a_day() -> None:
    budget = Budget("USD", Limits(per_minute=0.5), DAY_S)
    budget.spend("f", 0.5, 0.0)
    assert budget.refuses("f", DAY_S - 1.0) == "the budget of 0.5 USD a day is spent"
    assert budget.refuses("f", DAY_S + 1.0) is None


def test_a_budget_of_amounts_counts_what_was_used() -> None:
    budget = Budget("tokens", Limits(per_minute=1000))
    budget.spend("here", 999, 0.0)
    assert budget.refuses("here", 0.0) is None
    budget.spend("here", 1, 30.0)
    assert budget.refuses("here", 30.0) == "the budget of 1000 tokens a minute is spent"
    assert budget.refuses("here", 61.0) is None


# Load


@pytest.mark.parametrize(
    ("page", "depth"),
    [
        ("", None),
        ("# HELP vllm:num_requests_waiting x\n# TYPE vllm:num_requests_waiting gauge\n", None),
        ('vllm:num_requests_waiting{model_name="a"} 3.0\nvllm:num_requests_waiting{model_name="b"} 4.0\n', 7.0),
        ('vllm:num_requests_waiting_by_reason{reason="capacity"} 9.0\nvllm:num_requests_waiting 2\n', 2.0),
        ("sglang:num_queue_reqs 5.0 1712345678000\n", 5.0),
        ('sglang:num_queue_reqs{x="a } b"} 1e1\nsglang:num_queue_reqs{y="z"} oops\n', 10.0),
        ("vllm:num_requests_running 8\nvllm:num_requests_waiting\n", None),
    ],
)
def test_the_queue_is_read_from_a_page_of_metrics(page: str, depth: float | None) -> None:
    assert queue_depth(page) == depth


@given(page=st.text(max_size=200))
def test_any_page_is_read_without_an_error(page: str) -> None:
    queue_depth(page)


def test_a_full_queue_stops_probes_until_it_is_shorter_or_nobody_knows() -> None:
    load = Load()
    load.queue(9, 100.0)
    assert load.refuses(4, 101.0) == "9 requests wait at the endpoint"
    assert load.refuses(9, 101.0) is None
    assert load.refuses(4, 200.0) is None
    load.queue(4, 201.0)
    assert load.refuses(4, 201.0) is None


def test_probes_that_take_far_longer_than_usual_are_stopped_and_tried_again() -> None:
    load, draw = Load(), random.Random(1)
    for nth in range(50):
        load.probe_s.add(0.4 + 0.2 * draw.random(), float(nth))
    assert load.refuses(4, 50.0) is None
    for nth in range(10):
        load.probe_s.add(5.0, 50.0 + nth)
    assert "probes take" in (load.refuses(4, 60.0) or "")
    assert load.refuses(4, 90.0) is None


def test_an_endpoint_that_writes_far_more_slowly_than_usual_is_left_alone() -> None:
    load = Load()
    for nth in range(50):
        load.s_per_char.add(0.005, float(nth))
    for nth in range(6):
        load.s_per_char.add(0.03, 50.0 + nth)
    assert "times slower than usual" in (load.refuses(4, 56.0) or "")
    for nth in range(20):
        load.s_per_char.add(0.005, 56.0 + nth)
    assert load.refuses(4, 76.0) is None


def test_a_new_usual_is_got_used_to() -> None:
    drift = Drift()
    for nth in range(20):
        drift.add(1.0, float(nth))
    pressed = []
    for nth in range(400):
        drift.add(4.0, 20.0 + nth)
        pressed.append(drift.is_pressed(20.0 + nth))
    assert pressed[10]
    assert not pressed[-1]
