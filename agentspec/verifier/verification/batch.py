"""Picks for many rows at once: on a GPU one kernel for all rows that are treated alike, on a CPU row by row."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from agentspec.verifier.verification import noise
from agentspec.verifier.verification.sampler import Sampler
from agentspec.verifier.verification.shaping import shaped

Pick = tuple[Sampler, torch.Tensor, int]  # whose, logits [vocab], position


def pick_tokens(picks: Sequence[Pick]) -> list[int]:
    """The token of each pick; nothing advances."""
    if len(picks) < 2 or not picks[0][1].is_cuda:
        return [sampler.pick_token(row, position) for sampler, row, position in picks]
    return pick_together(picks)


def pick_together(picks: Sequence[Pick]) -> list[int]:
    """The same by few kernels and one copy to the host."""
    scores = torch.stack([sampler.adjusted(row) for sampler, row, _ in picks])
    groups: dict[tuple[float, ...], list[int]] = {}
    for index, (sampler, _, _) in enumerate(picks):
        params = sampler.params
        how: tuple[float, ...] = () if params.greedy else (params.temperature, params.min_p, params.top_k, params.top_p)
        groups.setdefault(how, []).append(index)
    tokens = torch.empty(len(picks), dtype=torch.long, device=scores.device)
    for how, members in groups.items():
        rows = scores[members]
        if how:
            rows = shaped(rows, picks[members[0]][0].params)
            rows = rows + noise.gumbel([picks[i][0].key(picks[i][2]) for i in members], rows.shape[1], rows.device)
        tokens[members] = rows.argmax(-1)
    return [int(token) for token in tokens.tolist()]
