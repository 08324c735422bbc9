"""What every source of drafts offers the engine.

A drafter lives as long as the engine; a session as long as one request. All calls come from the engine's worker
thread, except where a drafter says otherwise (`external` takes drafts from any thread). A draft may be wrong in any
way: verification decides, and the output is the same with and without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may come next.

    Attributes:
        tokens: ids, the first is a guess at the very next token.
        confidences: for each token the estimated chance, 0 to 1, that it is right if all before it are.
        source: the drafter's name; acceptance is measured by it.
    """

    tokens: tuple[int, ...]
    confidences: tuple[float, ...]
    source: str

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.confidences):
            raise ValueError(f"{len(self.tokens)} tokens, but {len(self.confidences)} confidences")


@dataclass(frozen=True, slots=True)
class Opening:
    """What a drafter is told when a request is admitted.

    Attributes:
        request_id: the request's id; drafts from outside name it.
        prompt: the prompt's token ids (what a continued message begins with included).
        expected: texts that the answer may contain (predicted output, a rejected probe's call).
        session: requests of one agent's conversation share it; None: unknown.
        workspace: requests that may share text (a tenant's) have the same; text never crosses workspaces.
    """

    request_id: str
    prompt: Sequence[int]
    expected: tuple[str, ...] = field(default=())
    session: str | None = None
    workspace: str = ""


class DraftSession(Protocol):
    """The drafts for one request."""

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens were generated: they follow what the session knew."""
        ...

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        """Likeliest first, none longer than `limit_tokens`; empty: no guess. Never changes what `extend` built."""
        ...

    def close(self) -> None:
        """The request is over. What it said may be kept for later requests of its session or workspace."""
        ...


class Drafter(Protocol):
    """A source of drafts."""

    name: str

    @property
    def cost_s_per_token(self) -> float:
        """Measured seconds that one drafted token takes; 0 for those that only look things up."""
        ...

    def open(self, opening: Opening) -> DraftSession:
        """Start drafting for a request."""
        ...
