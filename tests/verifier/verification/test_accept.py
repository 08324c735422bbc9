"""Whatever is drafted, the answer is the same, and nothing of a rejected branch is left."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.verification.accept import Check, look_ahead, verify, verify_all
from agentspec.verifier.verification.sampling import SamplingParams
from tests.verifier.table_model import NO_END, TableModel, Talk, Turns, random_tree, together

KINDS = [
    SamplingParams(temperature=0),
    SamplingParams(temperature=0, repetition_penalty=1.4, presence_penalty=1.0, logit_bias={2: 1.0}),
    SamplingParams(temperature=1.0, seed=3),
    SamplingParams(temperature=0.7, top_p=0.9, min_p=0.02, seed=4),
    SamplingParams(temperature=1.3, top_k=6, frequency_penalty=0.7, repetition_penalty=1.2, seed=5),
]


def talks(seed: int, count: int, *, constrained: bool) -> list[Talk]:
    rng = random.Random(seed)
    model = TableModel(seed=seed % 5)
    made = []
    for _ in range(count):
        prompt = [rng.randrange(12) for _ in range(rng.randrange(1, 6))]
        constraint = Turns(12, rng.randrange(5, 30)) if constrained and rng.random() < 0.6 else None
        eos_ids = frozenset([11]) if rng.random() < 0.5 else NO_END
        made.append(Talk(model, prompt, rng.choice(KINDS), rng.randrange(1, 25), constraint, eos_ids))
    return made


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 6))
def test_garbage_changes_nothing_in_any_batch(seed: int, size: int) -> None:
    rng = random.Random(seed)
    drafted, plain = talks(seed, size, constrained=True), talks(seed, size, constrained=True)
    together(drafted, lambda _: random_tree(rng, 12))
    for ours, theirs in zip(drafted, plain, strict=True):
        theirs.plain()
        assert (ours.answer, ours.ending) == (theirs.answer, theirs.ending)
        if isinstance(ours.constraint, Turns) and isinstance(theirs.constraint, Turns):
            assert ours.constraint.said == theirs.constraint.said


@pytest.mark.parametrize("params", KINDS)
def test_a_draft_that_is_right_stands_whole_and_a_wrong_token_ends_it(params: SamplingParams) -> None:
    model = TableModel()
    want = Talk(model, [1, 2], params, 40).plain().answer

    def oracle(text: list[int]) -> TokenTree:
        coming = want[len(text) - 2 :][:8]
        if len(text) % 2:
            coming = [*coming[:3], (coming[3] + 1) % 12] if len(coming) > 3 else coming
        return TokenTree.chain(coming, [0.9] * len(coming), "oracle")

    talk = Talk(model, [1, 2], params, 40)
    together([talk], oracle)
    assert talk.answer == want
    assert talk.steps < 12
    for outcome in talk.outcomes:
        assert len(outcome.picked) - len(outcome.path) in (0, 1)


def test_the_branch_that_stands_is_the_path() -> None:
    model, params = TableModel(), SamplingParams(temperature=0)
    right = Talk(model, [3], params, 4).plain().answer
    wrong = [(token + 1) % 12 for token in right]
    tree = TokenTree(
        (wrong[0], right[0], wrong[1], right[1], right[2]), (ROOT, ROOT, 1, 1, 0), (0.5,) * 5, (("x",),) * 5
    )
    outcome = verify(Talk(model, [3], params, 10).check(tree))
    assert (outcome.path, outcome.tokens, outcome.ending) == ((1, 3), right[:3], None)


def test_the_room_and_the_end_of_sequence_cut_an_accepted_draft() -> None:
    model, params = TableModel(), SamplingParams(temperature=0)
    want = Talk(model, [5], params, 6).plain().answer
    tree = TokenTree.chain(want, [0.9] * 6, "x")
    short = verify(Talk(model, [5], params, 3).check(tree))
    assert (short.tokens, short.path, short.ending) == (want[:3], (0, 1, 2), "length")
    first = next(i for i in range(1, 6) if want[i] not in want[:i])
    ended = verify(Talk(model, [5], params, 6, eos_ids=frozenset([want[first]])).check(tree))
    assert (ended.tokens, ended.path, ended.ending) == (want[:first], tuple(range(first)), "stop")


def test_a_complete_grammar_ends_the_answer() -> None:
    model, params = TableModel(), SamplingParams(temperature=0)
    want = Talk(model, [5], params, 9, Turns(12, 4)).plain()
    outcome = verify(Talk(model, [5], params, 9, Turns(12, 4)).check(TokenTree.chain(want.answer, [1.0] * 4, "x")))
    assert (outcome.tokens, outcome.path, outcome.ending) == (want.answer, (0, 1, 2, 3), "stop")


def test_log_probabilities_are_those_of_the_rows_that_picked() -> None:
    model, params = TableModel(), SamplingParams(temperature=0, top_logprobs=1)
    want = Talk(model, [5], params, 5).plain().answer
    outcome = verify(Talk(model, [5], params, 5).check(TokenTree.chain(want[:4], [1.0] * 4, "x")))
    for index, picked in enumerate(outcome.picked):
        row = model.row([5, *want[:index]]).log_softmax(0)
        assert picked.logprobs is not None
        assert picked.logprobs.top == ((picked.token, pytest.approx(float(row.max()))),)


def test_an_empty_tree_is_plain_decoding() -> None:
    model = TableModel()
    sampler = model.sampler([1], SamplingParams(temperature=0))
    row = model.row([1])
    outcome = verify(Check(sampler, TokenTree(), row.unsqueeze(0), 1, 5, NO_END))
    assert outcome.tokens == [int(torch.argmax(row))] and outcome.path == ()


def test_looking_ahead_picks_what_the_walk_would() -> None:
    """What a GPU does at once for all rows."""
    rng, model = random.Random(8), TableModel()
    kinds = [SamplingParams(temperature=0), SamplingParams(seed=3), SamplingParams(seed=4, top_k=3)]
    checks = [Talk(model, [n], kinds[n % 3], 9).check(random_tree(rng, 12, 12)) for n in range(12)]
    known = look_ahead(checks)
    for check, outcome in zip(checks, verify_all(checks), strict=True):
        rows = [0, *(node + 1 for node in outcome.path)][: len(outcome.picked)]
        assert outcome.tokens == [known[id(check)][row] for row in rows]
