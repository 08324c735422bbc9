"""Sampled answers follow the exact distribution: chi-square over the first two tokens, with drafts, by setting."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.verification.accept import Check, verify
from agentspec.verifier.verification.sampling import SamplingParams
from tests.verifier.table_model import NO_END, TableModel, Turns, exact, p_value, random_tree

DRAWS = 10_000
PROMPT = [1, 4, 4]
SETTINGS = {
    "temperature": SamplingParams(temperature=1.6),
    "top_p": SamplingParams(top_p=0.8),
    "top_k": SamplingParams(top_k=4),
    "min_p": SamplingParams(min_p=0.1),
    "presence, frequency": SamplingParams(presence_penalty=0.7, frequency_penalty=0.8),
    "repetition": SamplingParams(repetition_penalty=1.5),
    "bias": SamplingParams(logit_bias={0: 2.0, 3: -4.0}),
    "all": SamplingParams(1.2, 0.9, 8, 0.02, 0.4, 0.3, 1.2, {2: 1.0}),
}
Tree = tuple[TokenTree, torch.Tensor]


def pairs(
    model: TableModel, params: SamplingParams, allowed: Callable[..., bool] | None
) -> dict[tuple[int, ...], float]:
    """The exact chance of each pair of first tokens."""
    found = {}
    for first, chance in enumerate(masked(exact(model, params, PROMPT, []), [], allowed)):
        if chance > 0:
            for second, other in enumerate(masked(exact(model, params, PROMPT, [first]), [first], allowed)):
                found[first, second] = chance * other
    return found


def masked(chances: list[float], said: list[int], allowed: Callable[..., bool] | None) -> list[float]:
    kept = [c if allowed is None or allowed(said, token) else 0.0 for token, c in enumerate(chances)]
    return [c / sum(kept) for c in kept]


def trees(model: TableModel, rng: random.Random) -> list[Tree]:
    """Garbage, and the logits over it."""
    made = [random_tree(rng, model.vocab) for _ in range(50)]
    return [(tree, model.logits(PROMPT, tree)) for tree in made]


@torch.inference_mode()
def drawn(model: TableModel, params: SamplingParams, tree: Tree, grammar: Turns | None = None) -> tuple[int, ...]:
    """The first two tokens of one answer, with drafts where they reach."""
    sampler = model.sampler(PROMPT, params, grammar)
    tokens = verify(Check(sampler, *tree, len(PROMPT), 2, NO_END)).tokens
    if len(tokens) == 1:
        tokens.append(sampler.pick_token(model.row([*PROMPT, *tokens]), len(PROMPT) + 1))
    return tuple(tokens)


@pytest.mark.parametrize("name", SETTINGS)
def test_answers_with_drafts_follow_the_distribution(name: str) -> None:
    model, params = TableModel(vocab=8, spread=1.2), SETTINGS[name]
    drafts = trees(model, random.Random(name))
    seen = Counter(drawn(model, replace(params, seed=n), drafts[n % 50]) for n in range(DRAWS))
    expected = pairs(model, params, None)
    assert p_value(seen, expected) >= 0.01
    firsts: dict[tuple[int, ...], float] = {}
    for (first, _), chance in expected.items():
        firsts[first,] = firsts.get((first,), 0.0) + chance
    assert p_value(Counter(pair[:1] for pair in seen.elements()), firsts) >= 0.01


def test_answers_under_a_grammar_follow_what_is_left_of_the_distribution() -> None:
    model, params = TableModel(vocab=12, spread=1.2), SamplingParams()
    drafts = trees(model, random.Random(3))
    seen = Counter(drawn(model, replace(params, seed=n), drafts[n % 50], Turns(12, 9)) for n in range(DRAWS))
    assert p_value(seen, pairs(model, params, Turns(12, 9).allows)) >= 0.01


def test_the_test_sees_a_bias_of_three_percent() -> None:
    chances = {(token,): 1 / 8 for token in range(8)}
    rng = random.Random(1)
    weights = [1.2 if token == 0 else 1.0 for token in range(8)]
    seen = Counter((token,) for token in rng.choices(range(8), weights, k=DRAWS))
    assert p_value(seen, chances) < 0.01
