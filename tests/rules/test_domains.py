"""Which state a call touches, how much a tenant's wrong guesses may tell, and how much may run ahead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.effects import EVERYTHING, Effect, ToolSpec, overlap
from agentspec.errors import ConfigError, ToolRefused
from agentspec.proxy import egress
from agentspec.proxy.egress import EgressBudget
from agentspec.tools_sandbox import limits
from agentspec.tools_sandbox.domains import DomainRule, from_templates, or_everything
from agentspec.tools_sandbox.limits import Limits

names = st.text(min_size=1, max_size=5)
sets = st.frozensets(names | st.just(EVERYTHING), max_size=3)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


# Domains


@given(domains=st.lists(names, max_size=5))
def test_fixed_names_are_the_same_for_every_call(domains: list[str]) -> None:
    rule = DomainRule("reads", domains)
    assert rule.of({}) == rule.of({"key": 1}) == rule.fixed == frozenset(domains)
    assert not rule.by_argument


@given(domains=st.lists(names, min_size=1, max_size=5))
def test_a_function_gives_the_names_of_one_call(domains: list[str]) -> None:
    rule = DomainRule("reads", lambda key: {*domains, key})
    assert rule.by_argument
    assert rule.fixed == frozenset()
    assert rule.of({"key": "k", "other": 3}) == {*domains, "k"}


@pytest.mark.parametrize("bad", ["orders", b"orders", ["orders", ""], [1], [None], [("a",)], 5])
def test_what_names_no_domains_is_refused_when_it_is_declared(bad: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        DomainRule("reads", bad)
    assert "reads" in str(refused.value)


def test_none_names_nothing() -> None:
    assert DomainRule("reads", None).fixed == frozenset()


@pytest.mark.parametrize("bad", ["orders", [""], [1], None, 5, [None], [[]]])
def test_what_a_function_gives_that_names_no_domains_refuses_the_call(bad: Any) -> None:
    with pytest.raises(ToolRefused, match="reads"):
        DomainRule("reads", lambda: bad).of({})


def raises() -> set[str]:
    raise KeyError("no such order")


@pytest.mark.parametrize("function", [raises, lambda no_such_argument: {"x"}, lambda: [1 / 0]])
def test_a_function_that_fails_refuses_the_call(function: Callable[..., Any]) -> None:
    with pytest.raises(ToolRefused, match="writes= of the tool failed"):
        DomainRule("writes", function).of({"key": "k"})


def test_a_function_gets_the_arguments_that_it_names_and_all_with_two_stars() -> None:
    given_arguments = {"a": "1", "b": "2"}
    assert DomainRule("reads", lambda b: {b}).of(given_arguments) == {"2"}
    assert DomainRule("reads", lambda **all: set(all)).of(given_arguments) == {"a", "b"}
    assert DomainRule("reads", lambda a, c="c": {a, c}).of(given_arguments) == {"1", "c"}


@given(domains=sets)
def test_no_names_means_everything(domains: frozenset[str]) -> None:
    assert or_everything(domains) == (domains or {EVERYTHING})


@given(some=sets, others=sets)
def test_overlap_is_mutual_and_everything_overlaps_with_whatever_there_is(
    some: frozenset[str], others: frozenset[str]
) -> None:
    assert overlap(some, others) == overlap(others, some)
    assert overlap(some, frozenset({EVERYTHING})) == bool(some)
    assert overlap(some, some) == bool(some)
    if not overlap(some, others):
        assert not some & others


# Templates

values = st.text(alphabet="abc:{}é ", min_size=1, max_size=5)


@given(order=values, user=values)
def test_a_template_follows_its_arguments(order: str, user: str) -> None:
    rule = DomainRule("reads", from_templates("reads", ["order:{order_id}", "{user}", "all"]))
    assert rule.of({"order_id": order, "user": user, "limit": 3}) == {f"order:{order}", user, "all"}


@given(one=values, other=values)
def test_two_calls_share_a_templates_domain_only_if_they_name_the_same(one: str, other: str) -> None:
    rule = DomainRule("reads", from_templates("reads", ["order:{key}"]))
    assert overlap(rule.of({"key": one}), rule.of({"key": other})) == (one == other)


def test_names_without_a_field_stay_fixed() -> None:
    rule = DomainRule("reads", from_templates("reads", ["orders", "users"]))
    assert rule.fixed == {"orders", "users"}


@pytest.mark.parametrize("braces", [["a{{b}}"], ["a{{b}}", "{key}"]])
def test_doubled_braces_are_braces_with_and_without_a_field_beside_them(braces: list[str]) -> None:
    assert "a{b}" in DomainRule("reads", from_templates("reads", braces)).of({"key": "k"})


@pytest.mark.parametrize(
    "bad", ["order:{", "order:}", "{}", "{0}", "{a.b}", "{a[0]}", "{a b}", "", "{a:{b}}"], ids=repr
)
def test_a_template_that_cannot_be_read_is_refused_with_an_example(bad: str) -> None:
    with pytest.raises(ConfigError, match="reads"):
        from_templates("reads", [bad])


def test_one_string_instead_of_templates_is_refused() -> None:
    with pytest.raises(ConfigError, match="one string"):
        from_templates("reads", "order:{key}")


def test_a_template_whose_argument_the_call_has_not_refuses_the_call() -> None:
    with pytest.raises(ToolRefused):
        DomainRule("reads", from_templates("reads", ["{nobody}"])).of({"key": "k"})


# The budget of calls that reach third parties


@given(per_hour=st.integers(0, 20), discards=st.integers(0, 40), out=st.integers(0, 5))
def test_a_budget_is_spent_exactly_at_its_number(per_hour: int, discards: int, out: int) -> None:
    budget = EgressBudget(per_hour)
    for _ in range(discards):
        budget.discarded("ada")
    assert budget.spent("ada", out) == (min(discards, max(1, per_hour)) + out >= per_hour)
    assert budget.spent("bob", 0) == (per_hour == 0), "tenants have a budget each"


def test_an_hour_later_it_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(egress, "clock", clock)
    budget = EgressBudget(2)
    budget.discarded("ada")
    clock.now += 1800
    budget.discarded("ada")
    assert budget.spent("ada", 0)
    clock.now += 1801
    assert not budget.spent("ada", 0)
    assert budget.spent("ada", 1), "the second is still counted"
    clock.now += 1800
    assert not budget.spent("ada", 1)


def test_many_tenants_are_not_kept_for_ever() -> None:
    budget = EgressBudget(1)
    for number in range(10_050):
        budget.discarded(f"tenant {number}")
    assert len(budget._discarded) <= 10_000
    assert budget.spent("tenant 10049", 0)


# Limits


def limit(**options: Any) -> Limits:
    return Limits(ToolSpec(name="look_up", effect=Effect.PURE, **options))


def test_without_limits_everything_enters() -> None:
    free = limit()
    for _ in range(1000):
        free.enter()


@given(most=st.integers(1, 5), enters=st.lists(st.booleans(), max_size=40))
def test_never_more_run_than_max_inflight_says(most: int, enters: list[bool]) -> None:
    counted, running = limit(max_inflight=most), 0
    for enter in enters:
        if not enter and running:
            counted.leave()
            running -= 1
        elif enter and running < most:
            counted.enter()
            running += 1
        elif enter:
            with pytest.raises(ToolRefused, match="max_inflight"):
                counted.enter()
    assert running <= most


@given(rate=st.floats(0.1, 20.0), pauses=st.lists(st.floats(0.0, 2.0), max_size=60))
def test_no_window_has_more_starts_than_its_seconds_times_the_rate_and_one_second_more(
    rate: float, pauses: list[float]
) -> None:
    clock, starts = Clock(), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "clock", clock)
        counted = limit(rate_per_s=rate)
        for pause in pauses:
            clock.now += pause
            try:
                counted.enter()
            except ToolRefused:
                continue
            starts.append(clock.now)
    for first in range(len(starts)):
        for last in range(first, len(starts)):
            assert last - first + 1 <= (starts[last] - starts[first]) * rate + max(1.0, rate) + 1e-6


def test_a_slow_rate_lets_the_first_in_and_the_next_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(limits, "clock", clock)
    slow = limit(rate_per_s=0.5)
    slow.enter()
    clock.now += 1.9
    with pytest.raises(ToolRefused, match=r"rate allows 0\.5 runs ahead a second"):
        slow.enter()
    clock.now += 0.2
    slow.enter()


def test_one_that_the_rate_refuses_does_not_count_as_running() -> None:
    both = limit(rate_per_s=0.001, max_inflight=2)
    both.enter()
    for _ in range(5):
        with pytest.raises(ToolRefused, match="rate"):
            both.enter()
    assert both._inflight == 1


def test_one_that_max_inflight_refuses_costs_nothing_of_the_rate() -> None:
    both = limit(rate_per_s=2.0, max_inflight=1)
    both.enter()
    for _ in range(5):
        with pytest.raises(ToolRefused, match="max_inflight"):
            both.enter()
    both.leave()
    both.enter()
