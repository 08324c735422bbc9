"""Who runs in the next step, and how many tokens of each: pure, no tensor is touched here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentspec.verifier.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Limits:
    """See `VerifierConfig` for the meaning of each."""

    max_batch: int
    prefill_chunk: int
    prefill_chunk_busy: int


def seats(active: Iterable[Sequence], limits: Limits) -> list[Sequence]:
    """The most urgent sequences, at most a batch of them. The others pause: they keep their memory."""
    return sorted(active, key=lambda s: s.rank)[: limits.max_batch]


def plan(seated: list[Sequence], limits: Limits) -> list[tuple[Sequence, int]]:
    """How many tokens of each sequence to run.

    Every decoding sequence runs all it has pending (one token, or a few forced ones). Prompts share a budget: small
    while a sequence of the same or higher priority is decoding, so that a newcomer never holds it up for long.
    """
    decoding = [s for s in seated if not s.prefilling]
    most_urgent = min((s.submission.priority for s in decoding), default=None)
    steps: list[tuple[Sequence, int]] = []
    used = 0
    for sequence in seated:
        count = sequence.pending
        if sequence.prefilling:
            busy = most_urgent is not None and most_urgent <= sequence.submission.priority
            budget = limits.prefill_chunk_busy if busy else limits.prefill_chunk
            count = min(count, budget - used)
            used += max(count, 0)
        if count > 0:
            steps.append((sequence, count))
    return steps
