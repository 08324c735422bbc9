"""Opt-in: a drafted token that is likely enough may stand. The answer is then labelled lossy."""

from __future__ import annotations

import math

import torch

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.verification.sampler import Sampler


def tolerated(sampler: Sampler, tree: TokenTree, node: int, logits: torch.Tensor) -> int | None:
    """The child of `node` that passes the request's `Tolerance` and is most probable; None: none, or lossless.

    Args:
        logits: `[vocab]`, the row after `node`. Probabilities are taken after mask, bias, penalties and temperature,
            before top-k, top-p and min-p.
    """
    tolerance = sampler.params.tolerance
    children = [] if tolerance is None else tree.children(node)
    if tolerance is None or not children:
        return None
    scores = sampler.adjusted(logits)
    chances = (scores / (1.0 if sampler.params.greedy else sampler.params.temperature)).softmax(0)
    bar = math.inf
    if tolerance.epsilon > 0:
        entropy = float(torch.special.entr(chances).sum())
        bar = min(tolerance.epsilon, tolerance.delta * math.exp(-entropy))
    if tolerance.top_k > 0:
        least = float(chances.topk(min(tolerance.top_k, len(chances))).values[-1])
        bar = min(bar, math.nextafter(least, 0.0))
    best = max(children, key=lambda child: float(chances[tree.tokens[child]]))
    chance = float(chances[tree.tokens[best]])
    return best if chance > bar and chance > 0 else None
