"""From scores to a distribution: temperature, min-p, top-k, top-p, in that order (vLLM's).

transformers has min-p last; with one of them at a time there is no difference. Each cut keeps all tokens that tie with
the last one kept, so that it does not depend on the order of ids. Nothing is sorted unless top-p needs more than a
thousand tokens.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from agentspec.verifier.verification.sampling import SamplingParams

_LOWEST = float("-inf")
_NUCLEUS = 1024  # tokens looked at before all are sorted


def shaped(scores: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """`[n, vocab]` -> `[n, vocab]` whose softmax is what tokens are drawn from; the cut ones are minus infinity.

    `params.temperature` must not be 0. The input is not changed.
    """
    # the largest score is 0 from here on, so that a temperature near 0 does not overflow
    scaled = (scores - scores.amax(-1, keepdim=True)) / params.temperature
    if params.min_p > 0:
        scaled = scaled.masked_fill(scaled < math.log(params.min_p), _LOWEST)
    if 0 < params.top_k < scaled.shape[-1]:
        least = scaled.topk(params.top_k).values[..., -1:]
        scaled = scaled.masked_fill(scaled < least, _LOWEST)
    if params.top_p < 1:
        scaled = scaled.masked_fill(scaled < _nucleus(scaled, params.top_p), _LOWEST)
    return scaled


def _nucleus(scaled: torch.Tensor, top_p: float) -> torch.Tensor:
    """The score of the last token, likeliest first, before which less than `top_p` of the mass lies; `[n, 1]`."""
    total = scaled.logsumexp(-1, keepdim=True)
    size = min(_NUCLEUS, scaled.shape[-1])
    values, kept = _kept(scaled.topk(size).values, total, top_p)
    if size < scaled.shape[-1] and bool((kept == size).any()):
        values, kept = _kept(_descending(scaled), total, top_p)
    return values.gather(-1, kept - 1)


def _kept(values: torch.Tensor, total: torch.Tensor, top_p: float) -> tuple[torch.Tensor, torch.Tensor]:
    chances = (values - total).exp()
    before = chances.cumsum(-1) - chances
    return values, (before < top_p).sum(-1, keepdim=True).clamp_(min=1)


def _descending(rows: torch.Tensor) -> torch.Tensor:
    """Sorted; on a CPU by numpy, whose vectorized sort takes a fiftieth of torch's time."""
    if rows.is_cuda:
        return rows.sort(-1, descending=True).values
    return torch.from_numpy(np.sort(rows.numpy(), -1)).flip(-1)
