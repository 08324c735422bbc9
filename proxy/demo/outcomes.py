"""What the books say about a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec.memory.ledger import LedgerReader

_MAX_TRAJECTORIES = 10_000


@dataclass(frozen=True)
class Outcomes:
    """How the bets and claims of a run ended.

    Attributes:
        probe_hits: hits whose prediction came from a probe.
        claims: real calls of declared tools.
        by_predictor: predictor to outcome to count.
    """

    hits: int = 0
    joined: int = 0
    misses: int = 0
    stale: int = 0
    failed: int = 0
    unclaimed: int = 0
    vetoed: int = 0
    probe_hits: int = 0
    claims: int = 0
    by_predictor: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def hits_per_claim(self) -> float:
        return self.hits / self.claims if self.claims else 0.0


def read_outcomes(database_url: str, since: float = 0.0) -> Outcomes:
    """Count the bets and claims of the trajectories that began at Unix time `since` or later."""
    reader = LedgerReader(database_url)
    recent = [row for row in reader.trajectories(_MAX_TRAJECTORIES) if row["began_at"] >= since]
    turns = [turn for row in recent for turn in reader.turns(row["trajectory"])]
    bets = [bet for turn in turns for bet in turn["bets"]]
    return count(bets, claims=sum(len(turn["claims"]) for turn in turns))


def count(bets: list[dict[str, Any]], claims: int) -> Outcomes:
    """The outcomes of some bets, each a row of the books."""
    ended = Counter(bet["outcome"] for bet in bets)
    by_predictor: dict[str, Counter[str]] = {}
    for bet in bets:
        by_predictor.setdefault(bet["predictor"], Counter())[bet["outcome"]] += 1
    return Outcomes(
        hits=ended["hit"],
        joined=ended["joined"],
        misses=ended["miss"],
        stale=ended["stale"],
        failed=ended["failed"],
        unclaimed=ended["unclaimed"],
        vetoed=ended["vetoed"],
        probe_hits=sum(counts["hit"] for name, counts in by_predictor.items() if name.startswith("probe")),
        claims=claims,
        by_predictor={name: dict(counts) for name, counts in by_predictor.items()},
    )
