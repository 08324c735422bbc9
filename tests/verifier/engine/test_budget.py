from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.engine.budget import Acceptance, allot
from agentspec.verifier.engine.cost_model import CostModel, profiled

FLAT = CostModel([1, 64], [1.0, 1.0])
STEEP = CostModel([1, 2], [1.0, 2.0])
TYPICAL = CostModel([1, 8, 64], [0.1, 0.2, 1.0])
CHANCES = st.lists(st.floats(0, 1), max_size=6).map(lambda c: sorted(c, reverse=True))


def test_seconds_are_linear_between_points_and_beyond() -> None:
    assert TYPICAL.seconds(1) == 0.1
    assert TYPICAL.seconds(8) == 0.2
    assert TYPICAL.seconds(36) == pytest.approx(0.6)
    assert TYPICAL.seconds(120) == pytest.approx(1.8)


def test_a_curve_never_falls() -> None:
    assert CostModel([1, 2, 4], [0.3, 0.1, 0.4]).seconds(2) == 0.3


def test_spare_rows_are_those_that_hardly_cost() -> None:
    assert TYPICAL.spare(1, 1.15) == 1
    assert FLAT.spare(1, 1.15) == 4096
    assert STEEP.spare(4, 1.15) == 0


def test_the_curve_follows_what_forwards_take() -> None:
    cost = CostModel([1, 8, 64], [0.1, 0.2, 1.0])
    for _ in range(200):
        cost.observe(8, 0.4)
    assert cost.seconds(8) == pytest.approx(0.4, rel=0.05)
    cost.observe(8, 1000.0)
    assert cost.seconds(8) < 0.5


def test_profiling_stops_in_time_and_has_two_points() -> None:
    now = [0.0]
    ran: list[int] = []

    def forward(rows: int) -> None:
        ran.append(rows)
        now[0] += rows

    cost = profiled(forward, lambda: now[0])
    assert ran == [1, 1, 16]
    assert cost.seconds(16) == 16.0


def test_two_points_are_the_least() -> None:
    with pytest.raises(ValueError, match="two points"):
        CostModel([1], [1.0])


def test_free_rows_are_all_taken_and_dear_ones_only_when_sure() -> None:
    drafts = [[0.9, 0.5, 0.1], [0.4]]
    assert allot(drafts, 2, FLAT) == [{0, 1, 2}, {0}]
    assert allot(drafts, 2, STEEP) == [set(), set()]
    assert allot([[0.9, 0.8, 0.1]], 1, TYPICAL) == [{0, 1}]


def test_under_load_the_likeliest_tokens_of_all_requests_win() -> None:
    dear = CostModel([1, 4, 8, 9], [1.0, 1.0, 1.3, 9.0])
    assert allot([[0.9, 0.8], [0.2, 0.1], [0.85], []], 4, dear) == [{0, 1}, set(), {0}, set()]


@given(st.lists(CHANCES, max_size=5), st.integers(0, 3))
def test_what_is_verified_pays_by_the_model_and_is_a_beginning(chances: list[list[float]], probes: int) -> None:
    base = len(chances) + probes
    kept = allot(chances, base, TYPICAL)
    assert all(own == set(range(len(own))) for own in kept)
    gain = sum(c[i] for c, own in zip(chances, kept, strict=True) for i in own)
    rows = base + sum(map(len, kept))
    if rows > base:
        assert (len(chances) + gain) / TYPICAL.seconds(rows) > len(chances) / TYPICAL.seconds(base)


def test_a_source_that_is_always_wrong_loses_its_credit_and_gets_it_back() -> None:
    acceptance = Acceptance()
    tree = TokenTree.chain([1, 2, 3], [0.8, 0.8, 0.8], "ngram")
    assert acceptance.chances(tree) == pytest.approx([0.8, 0.64, 0.512])
    for _ in range(60):
        acceptance.learn(tree, [])
    assert acceptance.chances(tree)[0] < 0.15
    assert acceptance.factor("other", 0) == 1.0
    assert acceptance.factor("ngram", 2) == 1.0  # never put to the test: its parent fell
    for _ in range(2000):
        acceptance.rest()
    assert acceptance.chances(tree)[0] > 0.7


def test_a_source_that_is_better_than_it_says_is_believed() -> None:
    acceptance = Acceptance()
    tree = TokenTree.chain([1, 2], [0.5, 0.5], "external")
    for _ in range(60):
        acceptance.learn(tree, [0, 1])
    chances = acceptance.chances(tree)
    assert 0.8 < chances[1] <= chances[0] <= 1.0
