"""Verification by rejection sampling, for drafts that were drawn from a known distribution q.

One draft a position is Leviathan et al. (arXiv 2211.17192, algorithm 1) and Chen et al. (arXiv 2302.01318): accept with
min(1, p/q), else draw from what p has more than q. Several are tried one after the other, each against what the ones
before left of p (SpecInfer, arXiv 2305.09781, algorithm 2); siblings of a tree differ, so each was drawn from what the
ones before left of q (recursive rejection sampling without replacement, arXiv 2402.14160).

The answer follows p exactly, but is another one than without drafts: `accept` is the default.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentspec.verifier.verification import noise
from agentspec.verifier.verification.accept import Check, Outcome, Walk

_DECIDE, _REST = 1, 2  # streams of randomness beside the one of plain picks


def verify_drawn(check: Check, drawn_from: torch.Tensor) -> Outcome:
    """Verify a tree whose nodes were drawn at random.

    Args:
        drawn_from: `[1 + len(tree), vocab]`, probabilities: row 0 is what the first tokens were drawn from, row i + 1
            what the children of node i were; siblings in the order of the tree, without replacement.
    """
    walk = Walk(check)
    while not walk.over:
        sampler, position = check.sampler, walk.position
        target = sampler.distribution(walk.row).cpu().double()
        children = check.tree.children(walk.node)
        drafted = [check.tree.tokens[child] for child in children]
        chances = [noise.uniform(sampler.seed, position, _DECIDE + 2 * index) for index in range(len(children))]
        accepted, rest = choose(target, drawn_from[walk.node + 1].cpu().double(), drafted, chances)
        if accepted is None:
            walk.take(_draw(rest, noise.key(sampler.seed, position, _REST)), None)
        else:
            walk.take(drafted[accepted], children[accepted])
    return walk.outcome()


def choose(
    target: torch.Tensor, drawn_from: torch.Tensor, drafted: Sequence[int], chances: Sequence[float]
) -> tuple[int | None, torch.Tensor]:
    """Which of the drafted tokens is taken, if any, and else the distribution `[vocab]` to draw from.

    Args:
        target, drawn_from: p and q, `[vocab]` float64.
        drafted: distinct tokens, drawn from q one after the other without replacement.
        chances: a uniform number in (0, 1) for each.
    """
    p, q = target, drawn_from
    for index, (token, chance) in enumerate(zip(drafted, chances, strict=True)):
        if chance * q[token] < p[token]:
            return index, p
        left = (p - q).clamp_(min=0)
        p = left / left.sum() if float(left.sum()) > 0 else p
        q = q.clone()
        q[token] = 0
        q = q / q.sum() if float(q.sum()) > 0 else q
    return None, p


def _draw(probabilities: torch.Tensor, base: int) -> int:
    return int(noise.race(probabilities.log().float().numpy(), np.uint64(base)))
