"""Tools to measure how well drafts fit a known answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from agentspec.verifier.drafting.protocol import Draft, DraftSession


@dataclass(frozen=True)
class Fit:
    """How an answer went: forwards with drafts, drafted tokens that stood, those that did not."""

    steps: int
    stood: int
    wasted: int


def fits(session: DraftSession, answer: Sequence[int], limit: int = 16) -> Fit:
    """Let a session draft a known answer, as the engine would (each forward gives what stood and one token more)."""
    at = steps = stood = drafted = 0
    while at < len(answer):
        drafts = session.propose(limit)
        assert all(len(draft.tokens) <= limit and all(0 <= c <= 1 for c in draft.confidences) for draft in drafts)
        right = max((_agree(draft, answer[at:]) for draft in drafts), default=0)
        drafted += sum(len(draft.tokens) for draft in drafts)
        session.extend(answer[at : at + right + 1])
        at, steps, stood = at + right + 1, steps + 1, stood + right
    return Fit(steps, stood, drafted - stood)


def _agree(draft: Draft, coming: Sequence[int]) -> int:
    pairs = list(zip(draft.tokens, coming, strict=False))
    return next((index for index, (a, b) in enumerate(pairs) if a != b), len(pairs))


@pytest.fixture(scope="session")
def fit() -> Callable[..., Fit]:
    return fits
