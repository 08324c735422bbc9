"""Many drafters, one tree: well-formed, likeliest first, within the grammar, harmless."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.drafting.calibration import Calibration
from agentspec.verifier.drafting.consensus import Ensemble, merge
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Draft, Opening
from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.verification.accept import verify
from agentspec.verifier.verification.sampling import SamplingParams
from tests.verifier.table_model import TableModel, Talk, Turns, random_draft, random_tree


class Garbage:
    """Proposes anything, breaks now and then."""

    cost_s_per_token = 0.0

    def __init__(self, rng: random.Random, name: str, *, breaks: bool = False, cost_s: float = 0.0) -> None:
        self.rng, self.name, self.breaks, self.cost_s_per_token = rng, name, breaks, cost_s
        self.asked: list[int] = []

    def open(self, opening: Opening) -> Garbage:
        return self

    def extend(self, tokens: Sequence[int]) -> None:
        if self.breaks and self.rng.random() < 0.1:
            raise ValueError("broken")

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        self.asked.append(limit_tokens)
        return [random_draft(self.rng, 12, self.name) for _ in range(self.rng.randrange(4))]

    def close(self) -> None:
        pass


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(0, 20))
def test_a_merged_tree_is_well_formed_and_likeliest_first(seed: int, most: int) -> None:
    rng = random.Random(seed)
    drafts = [random_draft(rng, 4, rng.choice("abc")) for _ in range(8)]
    tree, claimed = merge(drafts, most)
    paths = {draft.tokens[:n] for draft in drafts for n in range(1, len(draft.tokens) + 1)}
    assert len(tree) == len(claimed) == min(most, len(tree)) <= len(paths)
    assert {tuple(tree.tokens[n] for n in tree.path(node)) for node in range(len(tree))} <= paths
    assert all(parent < node for node, parent in enumerate(tree.parents))
    assert len({(p, t) for p, t in zip(tree.parents, tree.tokens, strict=True)}) == len(tree)
    assert all(a >= b - 1e-12 for a, b in zip(tree.reach, tree.reach[1:], strict=False))
    for node in range(-1, len(tree)):
        assert sum(tree.confidences[child] for child in tree.children(node)) <= 1 + 1e-9
    wider, _ = merge(drafts, most + 1)
    assert len(tree) == most or len(wider) == len(tree)  # only what is hopeless is left out
    assert all(reach >= 0.005 - 1e-12 for reach in tree.reach)


def test_agreement_raises_confidence_and_is_told() -> None:
    tree, _ = merge([Draft((1, 2), (0.6, 0.5), "a"), Draft((1, 3), (0.5, 0.4), "b"), Draft((9,), (0.1,), "b")], 9)
    assert tree.sources[0] == ("a", "b") and tree.confidences[0] == pytest.approx(0.8)
    again, _ = merge([Draft((1,), (0.6,), "a"), Draft((1,), (0.5,), "a")], 9)
    assert again.confidences == (0.6,)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30))
def test_a_tree_knows_its_own_shape(seed: int) -> None:
    tree = random_tree(random.Random(seed), 12, 12)
    seen = tree.visible()
    for node in range(len(tree)):
        path = tree.path(node)
        assert seen[node].nonzero()[0].tolist() == sorted(path)
        assert tree.depths[node] == len(path) - 1
        assert tree.reach[node] == pytest.approx(math.prod(tree.confidences[n] for n in path))
        assert tree.child(tree.parents[node], tree.tokens[node]) == node
        assert node in tree.children(tree.parents[node])
    for count in range(len(tree) + 1):
        assert tree.head(count).parents == tree.parents[:count]
    assert tree.child(ROOT, 99) is None and tree.path(ROOT) == []


@pytest.mark.parametrize("params", [SamplingParams(temperature=0), SamplingParams(seed=2, presence_penalty=1.0)])
@pytest.mark.parametrize("constrained", [False, True])
def test_no_drafter_changes_an_answer(params: SamplingParams, constrained: bool) -> None:
    for seed in range(40):
        rng, model = random.Random(seed), TableModel(seed=seed % 5)
        prompt = [rng.randrange(12) for _ in range(8)]
        settings_ = replace(params, seed=seed)

        def talk(model: TableModel = model, prompt: list[int] = prompt, kind: SamplingParams = settings_) -> Talk:
            return Talk(model, prompt, kind, 30, Turns(12, 25) if constrained else None)

        ours, theirs = talk(), talk().plain()
        drafters = [Garbage(rng, "a"), Garbage(rng, "b", breaks=True), NgramDrafter()]
        session = Ensemble(drafters).open(Opening("r", tuple(prompt)), ours.constraint)
        while ours.ending is None:
            tree = session.tree(6, 12)
            outcome = verify(ours.check(tree))
            session.extend(outcome.tokens)
            ours.take(outcome)
        session.close()
        assert (ours.answer, ours.ending) == (theirs.answer, theirs.ending)


def test_branches_that_the_grammar_refuses_are_cut_before_they_cost_anything() -> None:
    rng = random.Random(1)
    constraint = Turns(12, 6)
    session = Ensemble([Garbage(rng, "a")]).open(Opening("r", ()), constraint)
    for _ in range(100):
        tree = session.tree(6, 30)
        for node in range(len(tree)):
            path = [tree.tokens[n] for n in tree.path(node)]
            assert constraint.valid_prefix(path) == len(path)
    assert constraint.said == []


def test_ids_that_the_model_does_not_have_are_never_forwarded() -> None:
    session = Ensemble([Garbage(random.Random(2), "a")], vocab_size=6).open(Opening("r", ()))
    trees = [session.tree(6, 30) for _ in range(50)]
    assert any(map(len, trees))
    assert all(token < 6 for tree in trees for token in tree.tokens)


def test_a_drafter_that_computes_gets_what_the_budget_allows() -> None:
    drafter = Garbage(random.Random(1), "model", cost_s=0.01)
    session = Ensemble([drafter]).open(Opening("r", ()))
    session.tree(8, 8)
    session.tree(8, 8, budget_s=0.035)
    session.tree(8, 8, budget_s=0.009)
    assert drafter.asked == [8, 3]


def test_confidences_become_what_they_turn_out_to_be_worth() -> None:
    calibration = Calibration()
    rng = random.Random(5)
    for _ in range(500):
        tree = TokenTree((1, 2), (ROOT, 0), (0.95, 0.55), (("a",), ("a", "b")))
        calibration.learn(tree, (0.95, 0.55), [1 if rng.random() < 0.3 else 7, 2 if rng.random() < 0.9 else 8])
    assert calibration.corrected(("a",), 0.95) == pytest.approx(0.3, abs=0.1)
    assert calibration.corrected(("a", "b"), 0.55) == pytest.approx(0.9, abs=0.1)
    assert calibration.corrected(("c",), 0.4) == pytest.approx(0.4)
