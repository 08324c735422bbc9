"""From one row of logits to one token: grammar mask, temperature, top-k, top-p, seed, log-probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are picked; the same fields as in the API.

    Attributes:
        temperature: 0 is greedy.
        top_logprobs: None: no log-probabilities; N: the picked token's and the N most likely ones'.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    top_logprobs: int | None = None


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of one position, before temperature and grammar: natural logarithms."""

    logprob: float
    top: tuple[tuple[int, float], ...]


def generator(params: SamplingParams) -> torch.Generator | None:
    """The sequence's own source of randomness (None when greedy)."""
    if params.temperature == 0:
        return None
    source = torch.Generator(device="cpu")
    if params.seed is None:
        source.seed()
    else:
        source.manual_seed(params.seed & 0x7FFF_FFFF_FFFF_FFFF)
    return source


def pick(
    logits: torch.Tensor, allowed: torch.Tensor | None, params: SamplingParams, source: torch.Generator | None
) -> int:
    """Pick a token.

    Args:
        logits: `[vocab]`, float32; not changed.
        allowed: `[vocab]` bool, or None for "all".
        source: from `generator`; None means greedy.
    """
    if allowed is not None:
        logits = logits.masked_fill(~allowed.to(logits.device), float("-inf"))
    if source is None:
        return int(logits.argmax())
    scaled = logits / params.temperature
    if params.top_k > 0:
        values, ids = scaled.topk(min(params.top_k, scaled.numel()))
    else:
        values, ids = scaled.sort(descending=True)
    probabilities = values.softmax(0)
    if params.top_p < 1:
        before = probabilities.cumsum(0) - probabilities
        probabilities = probabilities.masked_fill(before >= params.top_p, 0.0)
        probabilities[0] = max(float(probabilities[0]), 1e-9)  # top_p = 0 still leaves the likeliest token
    choice = torch.multinomial(probabilities.cpu(), 1, generator=source)
    return int(ids[int(choice)])


def logprobs(logits: torch.Tensor, token: int, top: int) -> Logprobs:
    """Log-probabilities of `token` and of the `top` likeliest tokens, from `logits [vocab]`."""
    row = logits.log_softmax(0)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        values, ids = row.topk(top)
        best = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return Logprobs(float(row[token]), best)
