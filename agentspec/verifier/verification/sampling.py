"""How a request wants its tokens picked, and the log-probabilities that it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Lossy acceptance: a drafted token may stand although it is not the one that would have been picked.

    Off unless a request asks for it; what it changed is counted and labelled. A drafted token passes when it is among
    the `top_k` likeliest (0: no such rule), or by typical acceptance (Medusa, arXiv 2401.10774, section 2.3.2), when
    its probability is above min(`epsilon`, `delta` * exp(-entropy)).
    """

    epsilon: float = 0.0
    delta: float = 0.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are picked; the same fields as in the API.

    Attributes:
        temperature: 0 is greedy.
        top_k: 0: no limit.
        min_p: tokens less likely than this share of the likeliest one are left out.
        presence_penalty, frequency_penalty: taken off generated tokens, once and for each time.
        repetition_penalty: divides the scores of tokens of prompt and answer; 1: none. Greater than 0.
        logit_bias: added to the scores of these tokens.
        seed: the same seed gives the same tokens; None: a new one for each request.
        top_logprobs: None: no log-probabilities; N: the picked token's and the N most likely ones'.
        tolerance: lossy acceptance of drafts; None: lossless.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    top_logprobs: int | None = None
    tolerance: Tolerance | None = None

    @property
    def greedy(self) -> bool:
        """Below this temperature float32 cannot tell anything from greedy."""
        return self.temperature < 1e-5

    @property
    def penalized(self) -> bool:
        """Whether what was generated before changes what is picked."""
        return bool(self.presence_penalty or self.frequency_penalty) or self.repetition_penalty != 1.0


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Of one position, before temperature and grammar: natural logarithms."""

    logprob: float
    top: tuple[tuple[int, float], ...]


def logprobs(logits: torch.Tensor, token: int, top: int) -> Logprobs:
    """Log-probabilities of `token` and of the `top` likeliest tokens, from `logits [vocab]`."""
    row = logits.log_softmax(0)
    best: tuple[tuple[int, float], ...] = ()
    if top:
        values, ids = row.topk(top)
        best = tuple(zip(ids.tolist(), values.tolist(), strict=True))
    return Logprobs(float(row[token]), best)
