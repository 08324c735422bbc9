"""Rejection sampling: answers follow the model's distribution whatever distribution the drafts were drawn from."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.verification.rejection import choose, verify_drawn
from agentspec.verifier.verification.sampling import SamplingParams
from tests.verifier.table_model import TableModel, Talk, exact, p_value

DRAWS = 10_000
PROMPT = [1, 4, 4]
VOCAB = 8


def drawn_tree(rng: random.Random, small: TableModel, widths: Sequence[int]) -> tuple[TokenTree, torch.Tensor]:
    """A tree drawn from another model, `widths[d]` children at depth d without replacement, and q `[1 + n, vocab]`."""
    tokens: list[int] = []
    parents: list[int] = []
    rows = [_chances(small, PROMPT)]
    level = [(ROOT, list(PROMPT))]
    for width in widths:
        following = []
        for parent, text in level:
            weights = list(rows[parent + 1])
            for _ in range(width):
                token = rng.choices(range(VOCAB), weights)[0]
                weights[token] = 0.0
                tokens.append(token)
                parents.append(parent)
                following.append((len(tokens) - 1, [*text, token]))
                rows.append(_chances(small, [*text, token]))
        level = following
    count = len(tokens)
    return TokenTree(tuple(tokens), tuple(parents), (1.0,) * count, (("small",),) * count), torch.tensor(rows)


def _chances(model: TableModel, text: Sequence[int]) -> list[float]:
    chances: list[float] = model.chances[model.place(text)]
    return chances


def expected(model: TableModel, params: SamplingParams) -> dict[tuple[int, ...], float]:
    return {
        (first, second): chance * other
        for first, chance in enumerate(exact(model, params, PROMPT, []))
        if chance > 0
        for second, other in enumerate(exact(model, params, PROMPT, [first]))
    }


PLAIN, CUT = SamplingParams(), SamplingParams(temperature=0.8, top_p=0.9, presence_penalty=1.0)


@pytest.mark.parametrize(
    ("widths", "params"), [((1, 1), CUT), ((3,), PLAIN), ((2, 2), CUT)], ids=["chain", "list", "tree"]
)
@torch.inference_mode()
def test_drawn_drafts_leave_the_distribution_as_it_is(widths: tuple[int, ...], params: SamplingParams) -> None:
    model, small = TableModel(VOCAB, 0, 1.2), TableModel(VOCAB, 1, 1.2)
    rng = random.Random(str(widths))
    seen: Counter[tuple[int, ...]] = Counter()
    for draw in range(DRAWS):
        tree, rows = drawn_tree(rng, small, widths)
        talk = Talk(model, PROMPT, replace(params, seed=draw), 2)
        talk.take(verify_drawn(talk.check(tree), rows))
        seen[tuple(talk.plain().answer)] += 1
    assert p_value(seen, expected(model, params)) >= 0.01


def test_a_draft_from_the_model_itself_always_stands() -> None:
    model, params = TableModel(VOCAB, 0, 1.2), SamplingParams()
    rng = random.Random(4)
    for draw in range(100):
        tree, rows = drawn_tree(rng, model, (1, 1, 1))
        talk = Talk(model, PROMPT, replace(params, seed=draw), 9)
        assert verify_drawn(talk.check(tree), rows).path == (0, 1, 2)


def test_more_drafts_stand_than_by_matching() -> None:
    """What the mode is for: a drawn draft is accepted with the overlap of p and q."""
    p = TableModel(VOCAB, 0, 1.2).row(PROMPT).softmax(0).double()
    q = TableModel(VOCAB, 1, 1.2).row(PROMPT).softmax(0).double()
    rng = random.Random(6)
    stood = 0
    for _ in range(5000):
        token = rng.choices(range(VOCAB), q.tolist())[0]
        stood += choose(p, q, [token], [rng.random()])[0] is not None
    assert abs(stood / 5000 - float(torch.minimum(p, q).sum())) < 0.03
    assert float(torch.minimum(p, q).sum()) > float((p * q).sum())


def test_a_token_that_the_model_would_never_say_is_never_taken() -> None:
    p = torch.tensor([0.0, 0.5, 0.5], dtype=torch.float64)
    q = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    taken, rest = choose(p, q, [0, 1], [1e-9, 1.0 - 1e-9])
    assert taken in (None, 1) and float(rest[0]) == 0.0
