"""One sequence's picks: penalties, bias and mask in their order, and state that can be taken back."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from agentspec.verifier.verification.batch import pick_together, pick_tokens
from agentspec.verifier.verification.sampler import Sampler
from agentspec.verifier.verification.sampling import SamplingParams
from tests.verifier.table_model import TableModel, Turns, exact

EVERYTHING = SamplingParams(
    temperature=0.8,
    top_p=0.9,
    top_k=9,
    min_p=0.01,
    presence_penalty=0.5,
    frequency_penalty=0.3,
    repetition_penalty=1.3,
    logit_bias={2: 1.5, 5: -3.0, 99: 7.0},
    seed=5,
)
params_of = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.5, 1.3]),
    top_p=st.sampled_from([0.6, 1.0]),
    top_k=st.sampled_from([0, 4]),
    min_p=st.sampled_from([0.0, 0.1]),
    presence_penalty=st.sampled_from([0.0, 1.0]),
    frequency_penalty=st.sampled_from([0.0, -0.5]),
    repetition_penalty=st.sampled_from([1.0, 0.7, 1.5]),
    logit_bias=st.sampled_from([{}, {1: 2.0, 3: -100.0}]),
    seed=st.integers(0, 1000),
)
said_of = st.lists(st.integers(0, 11), max_size=8)


@settings(max_examples=200, deadline=None)
@given(params_of, said_of, said_of)
def test_the_distribution_is_the_plain_one(params: SamplingParams, prompt: list[int], said: list[int]) -> None:
    model = TableModel()
    sampler = model.sampler(prompt, params)
    for token in said:
        sampler.advance(token)
    got = sampler.distribution(model.row([*prompt, *said]))
    want = torch.tensor(exact(model, params, prompt, said))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


@settings(max_examples=100, deadline=None)
@given(said_of, st.floats(0.5, 2.0))
def test_the_repetition_penalty_is_that_of_transformers(said: list[int], penalty: float) -> None:
    model = TableModel()
    row = model.row(said)
    sampler = model.sampler(said, SamplingParams(repetition_penalty=penalty))
    ids: Any = torch.tensor([said or [0]])
    want = RepetitionPenaltyLogitsProcessor(penalty)(ids, row.clone().unsqueeze(0))[0] if said else row
    torch.testing.assert_close(sampler.adjusted(row), want)


@settings(max_examples=100, deadline=None)
@given(params_of, st.lists(st.integers(0, 11), min_size=1, max_size=90), st.data())
def test_what_is_taken_back_leaves_no_trace(params: SamplingParams, said: list[int], data: st.DataObject) -> None:
    model = TableModel()
    constraint, untouched = Turns(12, 500), Turns(12, 500)
    valid = [token for token in said if constraint.valid_prefix([token]) and not constraint.advance(token)]
    constraint.rollback(len(valid))
    sampler = model.sampler([1, 2], params, constraint)
    twin = model.sampler([1, 2], params, untouched)
    kept = data.draw(st.integers(0, len(valid)))
    for token in valid:
        sampler.advance(token)
    sampler.rollback(len(valid) - kept)
    for token in valid[:kept]:
        twin.advance(token)
    row = model.row(valid[:kept])
    assert torch.equal(sampler.adjusted(row), twin.adjusted(row))
    assert sampler.pick(row, 7) == twin.pick(row, 7)


def test_a_pick_changes_nothing_and_depends_only_on_seed_and_position() -> None:
    model = TableModel()
    row = model.row([1])
    before = row.clone()
    sampler, other = model.sampler([1], EVERYTHING), model.sampler([1], EVERYTHING)
    late = [sampler.pick(row, position).token for position in range(30)]
    assert [other.pick(row, position).token for position in reversed(range(30))] == late[::-1]
    assert len(set(late)) > 1
    assert torch.equal(row, before)


def test_without_a_seed_two_requests_differ() -> None:
    model = TableModel()
    rows = [model.row([n]) for n in range(40)]
    said = [[model.sampler([], SamplingParams()).pick(row, i).token for i, row in enumerate(rows)] for _ in range(2)]
    assert said[0] != said[1]


def test_logprobs_are_the_models_own() -> None:
    model = TableModel()
    row = model.row([1])
    params = SamplingParams(temperature=0, top_logprobs=3, logit_bias={4: 100.0})
    picked = model.sampler([1], params).pick(row, 1)
    assert picked.token == 4 and picked.logprobs is not None
    assert math.isclose(picked.logprobs.logprob, float(row.log_softmax(0)[4]), abs_tol=1e-6)
    assert [token for token, _ in picked.logprobs.top] == row.topk(3).indices.tolist()


def test_rows_picked_together_are_those_picked_one_by_one() -> None:
    model = TableModel(vocab=50)
    rng = random.Random(2)
    kinds = [
        SamplingParams(temperature=0),
        SamplingParams(seed=1),
        SamplingParams(seed=2, top_k=5),
        SamplingParams(seed=3, temperature=0.5, presence_penalty=1.0),
        SamplingParams(temperature=0, logit_bias={3: 50.0}),
    ]
    picks = []
    for number in range(60):
        sampler = model.sampler([1, 2], kinds[number % len(kinds)])
        for _ in range(rng.randrange(4)):
            sampler.advance(rng.randrange(50))
        picks.append((sampler, model.row([number]), number))
    assert pick_together(picks) == pick_tokens(picks)


def test_a_grammar_that_allows_nothing_is_an_error_and_no_token() -> None:
    class Nothing(Turns):
        def allowed(self) -> torch.Tensor:
            return torch.zeros(self.vocab, dtype=torch.bool)

    sampler = Sampler(SamplingParams(), Nothing(12, 5), [], 12)
    with pytest.raises(RuntimeError, match="no token can be picked"):
        sampler.pick(TableModel().row([]), 0)
