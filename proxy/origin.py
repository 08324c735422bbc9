"""What of a turn is for the books alone: where it comes from, and who expected no call of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a turn comes from and goes to, for the books.

    Attributes:
        session: what the agent calls it (`x-agentspec-session`).
        endpoint: base URL of the endpoint.
        traceparent, tracestate: W3C context of the agent's request.
    """

    session: str | None = None
    endpoint: str = ""
    traceparent: str | None = None
    tracestate: str | None = None


@dataclass(frozen=True, slots=True)
class Quiet:
    """A predictor's word that no call comes, or none after the `known` ones, with its probability."""

    predictor: str
    probability: float
    offered_s: float
    known: int
