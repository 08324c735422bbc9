"""What the bench of agents makes of its measurements: intervals, books held against recordings, names of figures."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import canonical_json
from agentspec.effects import Effect
from agentspec.proxy.bench.agent.arm_books import Books, calibration_error, tallied
from agentspec.proxy.bench.agent.arms import OFF, arms, declared_name
from agentspec.proxy.bench.agent.cells import Cell, Hits, Measured
from agentspec.proxy.bench.agent.figures_of import of_costs, of_grids, of_hostile
from agentspec.proxy.bench.agent.hostile import Cost
from agentspec.proxy.bench.agent.intervals import highest, median_interval, total_interval
from agentspec.proxy.bench.agent.latencies import Latencies, for_half_the_time
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.real_cells import CORNERS, Pairs
from agentspec.proxy.bench.agent.synthetic import EFFECTS, tasks
from agentspec.proxy.replay.deltas import completion_tokens
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.recordings import Call, Recording, Step

RATIOS = st.lists(st.floats(0.5, 2.0), min_size=2, max_size=12)


@given(st.lists(RATIOS, min_size=1, max_size=4))
def test_the_highest_end_lies_above_every_median(cells):
    high = highest(cells)
    assert high is not None
    assert high >= max(sorted(ratios)[len(ratios) // 2] if len(ratios) % 2 else 0.0 for ratios in cells) - 1e-9


@given(RATIOS)
def test_the_medians_interval_lies_within_what_was_seen(ratios):
    low, high = median_interval(ratios)
    assert low is not None and high is not None
    assert min(ratios) - 1e-9 <= low <= high <= max(ratios) + 1e-9


def test_one_pair_tells_no_interval():
    assert median_interval([1.0]) == (None, None)
    assert total_interval([1.0], [1.0]) == (None, None)
    assert highest([[1.0, 1.1], [1.0]]) is None


def test_totals_that_are_alike_in_each_pair_have_no_spread():
    low, high = total_interval([2.0, 4.0, 8.0], [4.0, 8.0, 16.0])
    assert (low, high) == (pytest.approx(0.5), pytest.approx(0.5))


def _measured(ratio: float, hits: Hits = Hits.NONE) -> Measured:
    return Measured(Cell(0.5, 200, hits, 0.1, 1), 10.0, 10.0 * ratio, 4.0)


def test_the_worst_cell_of_both_grids_is_the_figure():
    pairs = Pairs(CORNERS[0], [1.0, 1.0], [1.02, 1.04], 0)
    found = {figure.name: figure for figure in of_grids([_measured(1.005)], [pairs], quick=True)}
    assert found["time_ratio_max"].value == pytest.approx(1.03)
    assert found["time_ratio_max_high"].value is None
    whole = {figure.name: figure.value for figure in of_grids([_measured(1.005)], [pairs], quick=False)}
    assert whole["time_ratio_max_high"] >= whole["time_ratio_max.sockets"]
    assert whole["time_ratio_max.virtual"] == pytest.approx(1.005)


def test_only_an_oracle_with_something_to_save_is_asked_what_it_captured():
    assert _measured(0.7).captured is None
    assert _measured(0.7, Hits.ORACLE).captured == pytest.approx(0.75)
    assert Measured(Cell(0.5, 200, Hits.ORACLE, 0.1, 1), 10.0, 9.9, 0.4).captured is None


def test_the_cost_of_those_who_wish_us_ill_is_that_of_the_worst():
    cell = Cell(0.5, 200, Hits.NONE, 0.1, 1)
    found = {f.name: f.value for f in of_hostile([Cost("a", cell, 0.002), Cost("b", cell, 0.004)])}
    assert found == {"hostile_cost": 0.004, "hostile_cost.a": 0.002, "hostile_cost.b": 0.004}


def test_every_cost_is_told():
    assert len(list(of_costs(Costs()))) == len(fields(Costs))


def test_an_arm_that_looks_at_the_answer_says_so_in_its_name():
    for arm in arms(0.3).values():
        assert arm.looks == (arm.name in ("oracle", "all", declared_name(0.3)))
    assert declared_name(0.3) == "probe_declared_30"
    assert next(iter(arms(0.3))) == OFF


GET = Call("get_order", {"order_id": "O1"}, "call_1")
RECORDING = Recording(
    "t",
    (
        Step("user", content="Where is it?"),
        Step("assistant", tool_calls=(GET,)),
        Step("tool", tool_call_id="call_1", tool_result="there"),
        Step("assistant", content="There."),
    ),
    model="t",
)


def _bet(turn: str, arguments: dict[str, str], outcome: str) -> dict[str, object]:
    told = {"predictor": "recall", "tool": "get_order", "arguments": canonical_json(arguments), "probability": 0.8}
    return {**told, "turn": turn, "outcome": outcome, "latency_s": 2.0, "egress": False}


def test_books_are_held_against_what_was_recorded():
    books = Books(
        turns=[{"id": str(nth), "trajectory": f"tenant:{name}"} for nth, name in ((1, "t"), (2, "t"), (3, "another"))],
        bets=[_bet("1", {"order_id": "O1"}, "hit"), _bet("2", {"order_id": "O1"}, "miss"), _bet("3", {}, "miss")],
        claims=[{"turn": "1", "tool": "get_order", "outcome": "hit"}],
        probes=[{"turn": "1"}],
    )
    tally = tallied(books, [RECORDING], frozenset({"get_order"}))
    assert (tally.calls, tally.named, tally.exact, tally.claims, tally.committed) == (1, 1, 1, 1, 1)
    assert (tally.discarded, tally.wasted_s, tally.discarded_per_hit, tally.requests) == (1, 2.0, 1.0, 3)
    assert tally.told == [(0.8, True), (0.8, False)]


def test_calibration_is_looked_at_once_it_has_settled():
    assert calibration_error([]) == (None, 0)
    unsettled = [(0.9, False)] * 500
    assert calibration_error(unsettled + [(0.75, True), (0.75, True), (0.75, True), (0.75, False)] * 200) == (0.0, 800)
    assert calibration_error([(0.9, False)] * 10) == (pytest.approx(0.9), 5)


def test_a_call_takes_as_long_in_every_arm_and_tools_take_half_the_time():
    some = tasks(5, 100)
    found = for_half_the_time(some, EFFECTS, Pace())
    call = some[0].steps[1].calls[0]
    one = found.seconds("t", call.name, Effect.READ, call.arguments)
    assert one == found.seconds("t", call.name, Effect.READ, dict(call.arguments))
    assert one != Latencies(found.scale, seed=2).seconds("t", call.name, Effect.READ, call.arguments)
    answers = [step for task in some for step in task.steps if step.role == "assistant"]
    tools_s = sum(
        found.seconds(task.model, call.name, EFFECTS[call.name], call.arguments)
        for task in some
        for step in task.steps
        for call in step.calls
    )
    assert tools_s == pytest.approx(sum(Pace().due(completion_tokens(step)) for step in answers))
