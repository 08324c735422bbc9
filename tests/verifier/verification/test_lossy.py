"""Lossy acceptance: off by default, within its bounds, counted."""

from __future__ import annotations

import math

import pytest
import torch

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.verification.accept import Check, verify
from agentspec.verifier.verification.sampling import SamplingParams, Tolerance
from tests.verifier.table_model import NO_END, TableModel, Turns

ROW = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
MEDUSA = Tolerance(epsilon=0.25, delta=2.0)


def outcome(token: int, tolerance: Tolerance | None, **fields: float) -> tuple[list[int], int]:
    params = SamplingParams(temperature=0, tolerance=tolerance, **fields)  # type: ignore[arg-type]
    sampler = TableModel(vocab=4).sampler([], params)
    tree = TokenTree.chain([token], [0.9], "x")
    got = verify(Check(sampler, tree, torch.stack([ROW, ROW]), 0, 1, NO_END))
    return got.tokens, got.lossy


def test_nothing_is_tolerated_unless_it_is_asked_for() -> None:
    assert outcome(1, None) == ([0], 0)


@pytest.mark.parametrize(("token", "passes"), [(0, True), (1, True), (2, False), (3, False)])
def test_typical_acceptance_takes_what_is_likely_enough(token: int, passes: bool) -> None:
    entropy = -sum(p * math.log(p) for p in (0.5, 0.3, 0.15, 0.05))
    assert min(0.25, 2.0 * math.exp(-entropy)) == 0.25
    tokens, lossy = outcome(token, MEDUSA)
    assert tokens == ([token] if passes else [0])
    assert lossy == (1 if passes and token != 0 else 0)


@pytest.mark.parametrize(("token", "passes"), [(1, True), (2, True), (3, False)])
def test_a_tolerance_of_ranks_takes_the_likeliest(token: int, passes: bool) -> None:
    assert outcome(token, Tolerance(top_k=3))[0] == ([token] if passes else [0])


def test_the_likeliest_tolerated_branch_is_followed() -> None:
    sampler = TableModel(vocab=4).sampler([], SamplingParams(temperature=0, tolerance=Tolerance(top_k=4)))
    tree = TokenTree((3, 2), (-1, -1), (0.5, 0.5), (("x",), ("x",)))
    assert verify(Check(sampler, tree, torch.stack([ROW] * 3), 0, 1, NO_END)).path == (1,)


def test_a_grammar_is_not_tolerated_away() -> None:
    constraint = Turns(4, 5)
    refused = next(token for token in range(4) if not constraint.valid_prefix([token]))
    params = SamplingParams(temperature=0, tolerance=Tolerance(top_k=4))
    sampler = TableModel(vocab=4).sampler([], params, constraint)
    got = verify(Check(sampler, TokenTree.chain([refused], [1.0], "x"), torch.stack([ROW, ROW]), 0, 1, NO_END))
    assert got.lossy == 0 and constraint.said != [refused]
