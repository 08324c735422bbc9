"""Randomness by position: the compiled race and the batched noise agree, and both are what Gumbel noise should be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.verification import noise

CPU = torch.device("cpu")


@settings(max_examples=200, deadline=None)
@given(st.integers(0, (1 << 64) - 1), st.integers(0, 1 << 20), st.integers(1, 300), st.floats(0.1, 12))
def test_the_race_is_won_by_the_largest_score_with_noise(seed: int, position: int, size: int, spread: float) -> None:
    scores = torch.randn(size, generator=torch.Generator().manual_seed(position)) * spread
    scores[torch.rand(size, generator=torch.Generator().manual_seed(size)) < 0.3] = -math.inf
    scores[size // 2] = 0.5
    key = noise.key(seed, position)
    noisy = scores + noise.gumbel([key], size, CPU)[0]
    winner = noise.race(scores.numpy(), np.uint64(key))
    assert float(noisy[winner]) >= float(noisy.max()) - 1e-4


def test_noise_is_gumbel_and_independent_from_position_to_position() -> None:
    size = 200_000
    keys = [noise.key(11, position) for position in range(3)]
    rows = noise.gumbel(keys, size, CPU).double()
    assert abs(float(rows.mean()) - 0.5772) < 0.01
    assert abs(float(rows.var()) - math.pi**2 / 6) < 0.02
    below = torch.exp(-torch.exp(-torch.tensor([-1.0, 0.0, 1.0, 3.0], dtype=torch.float64)))
    for bound, share in zip((-1.0, 0.0, 1.0, 3.0), below.tolist(), strict=True):
        assert abs(float((rows < bound).double().mean()) - share) < 0.003
    assert float(torch.corrcoef(rows).fill_diagonal_(0).abs().max()) < 0.01
    assert float(torch.corrcoef(torch.stack([rows[0, 1:], rows[0, :-1]]))[0, 1].abs()) < 0.01


def test_uniform_numbers_are_uniform_and_differ_by_stream() -> None:
    drawn = torch.tensor([[noise.uniform(3, p, s) for p in range(20_000)] for s in (0, 1)], dtype=torch.float64)
    assert drawn.min() > 0 and drawn.max() < 1
    counts = torch.histc(drawn[0], 20, 0, 1)
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 43.8  # chi-square, 19 degrees, p = 0.001
    assert abs(float(torch.corrcoef(drawn)[0, 1])) < 0.03


@pytest.mark.parametrize("scores", [[-math.inf] * 3, [math.nan] * 3])
def test_nobody_wins_where_nothing_may_come(scores: list[float]) -> None:
    assert noise.race(np.array(scores, dtype=np.float32), np.uint64(1)) == -1
