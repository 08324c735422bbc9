"""What the books say about a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec.memory.ledger_reader import LedgerReader

_MAX_TRAJECTORIES = 10_000


@dataclass(frozen=True)
class Outcomes:
    """How the bets and claims of a run ended.

    Attributes:
        probe_hits: hits whose prediction came from a probe.
        claims: real calls of tools that may run ahead.
        served: those that got a pre-execution's result, at once (hit) or after waiting for its rest (joined).
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
    served: int = 0
    by_predictor: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def hits_per_claim(self) -> float:
        return self.served / self.claims if self.claims else 0.0


@dataclass(frozen=True)
class Trace:
    """One trajectory in the books: its id and its turns, each with its probes, bets and claims."""

    trajectory: str
    turns: list[dict[str, Any]]


def read_trace(database_url: str, session: str) -> Trace | None:
    """The trajectory that an agent called `session`, None where the books do not have it."""
    reader = LedgerReader(database_url)
    names = (row["trajectory"] for row in reader.trajectories(_MAX_TRAJECTORIES))
    found = next((name for name in names if name.endswith(f":{session}")), None)
    return None if found is None else Trace(found, reader.turns(found))


def read_outcomes(database_url: str, since: float = 0.0) -> Outcomes:
    """Count the bets and claims of the trajectories that began at Unix time `since` or later."""
    reader = LedgerReader(database_url)
    recent = [row for row in reader.trajectories(_MAX_TRAJECTORIES) if row["began_at"] >= since]
    turns = [turn for row in recent for turn in reader.turns(row["trajectory"])]
    bets = [bet for turn in turns for bet in turn["bets"]]
    claims = [claim for turn in turns for claim in turn["claims"]]
    return count(bets, claims)


def count(bets: list[dict[str, Any]], claims: list[dict[str, Any]]) -> Outcomes:
    """The outcomes of some bets and claims, each a row of the books."""
    safe = [claim for claim in claims if claim["effect"] in ("pure", "read")]
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
        claims=len(safe),
        served=sum(claim["outcome"] in ("hit", "joined") for claim in safe),
        by_predictor={name: dict(counts) for name, counts in by_predictor.items()},
    )
