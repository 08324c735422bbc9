"""Presence, frequency and repetition penalties, kept up to date token by token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from agentspec.verifier.verification.sampling import SamplingParams


class Penalties:
    """Which tokens were seen, and how often they were generated. Costs grow with distinct tokens, not the vocabulary.

    The repetition penalty (CTRL, arXiv 1909.05858) counts the prompt, the others only what was generated, as in vLLM.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self._params = params
        seen = list(dict.fromkeys(prompt)) if params.repetition_penalty != 1.0 else []
        self._slots = {token: slot for slot, token in enumerate(seen)}
        self._kept = len(seen)  # slots of the prompt, which no rollback frees
        self._ids = np.array([*seen, *[0] * 64], dtype=np.int64)
        self._counts = np.zeros(len(self._ids), dtype=np.float32)
        self._answer: list[int] = []

    def add(self, token: int) -> None:
        self._answer.append(token)
        slot = self._slots.setdefault(token, len(self._slots))
        if slot == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._ids[slot] = token
        self._counts[slot] += 1

    def remove(self, count: int) -> None:
        """Forget the last `count` tokens of the answer."""
        for _ in range(count):
            token = self._answer.pop()
            slot = self._slots[token]
            self._counts[slot] -= 1
            # slots are given in order, so the token whose count falls to zero last in time is the last slot
            if self._counts[slot] == 0 and slot >= self._kept:
                del self._slots[token]

    def applied(self, scores: torch.Tensor) -> torch.Tensor:
        """`[vocab]` -> a new `[vocab]`."""
        size = len(self._slots)
        if not size:
            return scores
        ids = torch.from_numpy(self._ids[:size]).to(scores.device)
        counts = torch.from_numpy(self._counts[:size]).to(scores.device)
        found = scores[ids]
        repetition = self._params.repetition_penalty
        if repetition != 1.0:
            found = torch.where(found > 0, found / repetition, found * repetition)
        found = found - self._params.frequency_penalty * counts - self._params.presence_penalty * (counts > 0)
        return scores.index_copy(0, ids, found)
