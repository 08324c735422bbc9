"""Temperature, min-p, top-k, top-p: the same as transformers' processors, and the same in any batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from agentspec.verifier.verification.sampling import SamplingParams
from agentspec.verifier.verification.shaping import shaped


def logits(seed: int, size: int = 64, rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 3


def theirs(params: SamplingParams, scores: torch.Tensor) -> torch.Tensor:
    steps = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.min_p:
        steps.append(MinPLogitsWarper(params.min_p))
    if params.top_k:
        steps.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        steps.append(TopPLogitsWarper(params.top_p))
    return steps(None, scores).softmax(-1)  # type: ignore[arg-type]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 30),
    st.sampled_from([0.2, 0.7, 1.0, 1.7]),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.sampled_from([0, 1, 5, 100]),
    st.sampled_from([0.01, 0.5, 0.95, 1.0]),
)
def test_the_distribution_is_that_of_transformers(
    seed: int, temperature: float, min_p: float, top_k: int, top_p: float
) -> None:
    params = SamplingParams(temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p)
    scores = logits(seed)
    torch.testing.assert_close(shaped(scores, params).softmax(-1), theirs(params, scores), atol=1e-5, rtol=1e-4)


def test_a_wide_nucleus_is_found_beyond_the_first_thousand() -> None:
    scores = logits(1, size=5000)
    params = SamplingParams(temperature=2.0, top_p=0.97)
    kept = shaped(scores, params).isfinite().sum(-1)
    assert kept.min() > 1024
    torch.testing.assert_close(shaped(scores, params).softmax(-1), theirs(params, scores), atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("params", [SamplingParams(top_k=2), SamplingParams(top_p=0.5), SamplingParams(min_p=0.9)])
def test_tokens_that_tie_with_the_last_one_kept_are_kept(params: SamplingParams) -> None:
    scores = torch.tensor([[2.0, 2.0, 2.0, 1.0, -4.0]])
    assert shaped(scores, params).isfinite().tolist() == [[True, True, True, False, False]]


def test_a_row_comes_out_the_same_in_any_batch() -> None:
    params = SamplingParams(temperature=0.8, top_p=0.9, min_p=0.01)
    scores = logits(5, rows=7, size=3000)
    for row in range(7):
        assert torch.equal(shaped(scores[row : row + 1], params)[0], shaped(scores, params)[row])


def test_a_temperature_near_zero_neither_overflows_nor_loses_the_best() -> None:
    scores = logits(2) * 1e4
    cold = shaped(scores, SamplingParams(temperature=1e-4, top_p=0.0)).softmax(-1)
    assert cold.argmax(-1).tolist() == scores.argmax(-1).tolist() and bool(cold.isfinite().all())


def test_masked_tokens_stay_out() -> None:
    scores = logits(3)
    scores[:, ::2] = float("-inf")
    for params in (SamplingParams(top_k=40), SamplingParams(top_p=0.999), SamplingParams(min_p=1e-9)):
        assert not bool(shaped(scores, params)[:, ::2].isfinite().any())
