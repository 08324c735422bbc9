"""A small share of trajectories runs without speculation, so that what it saves is measured and not only claimed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RESAMPLES = 1000
_DRAWS = 2_000_000
SEED = 7


def held_out(trajectory: str, salt: bytes, share: float) -> bool:
    """Whether a trajectory is one of the control group: always the same answer, all of it or none.

    Args:
        salt: of the deployment, so that nobody can choose an id to be in or out of the group.
        share: of trajectories that are held out.
    """
    if share <= 0.0:
        return False
    digest = hashlib.blake2b(trajectory.encode("utf-8", "replace"), digest_size=8, key=salt[:64]).digest()
    return int.from_bytes(digest) < share * 2.0**64


@dataclass(frozen=True, slots=True)
class Trial:
    """One trajectory: how many turns it had, how long turns and tools took it, what its hits are said to have saved."""

    held_out: bool
    turns: int
    took_s: float
    told_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Savings:
    """Two answers to what speculation saved: measured against the control group, and the sum over hits.

    Attributes:
        difference_s: seconds a turn, treated less control; below 0 is faster. None where a group is empty.
        low_s, high_s: its 95% interval by a bootstrap over trajectories; None where a group has fewer than two.
        measured_s: what that comes to over all treated turns; above 0 is time saved.
        told_s: the sum over hits of how long the tool took less how long the claim waited.
    """

    treated: int
    control: int
    treated_turns: int
    control_turns: int
    difference_s: float | None
    low_s: float | None
    high_s: float | None
    measured_s: float | None
    told_s: float


def savings(trials: Iterable[Trial], seed: int = SEED) -> Savings:
    """Hold the trajectories that were sped up against those that were not."""
    found = [trial for trial in trials if trial.turns > 0]
    treated = [trial for trial in found if not trial.held_out]
    control = [trial for trial in found if trial.held_out]
    both = bool(treated and control)
    difference = _per_turn(treated) - _per_turn(control) if both else None
    low, high = _interval(treated, control, seed) if min(len(treated), len(control)) >= 2 else (None, None)
    turns = sum(trial.turns for trial in treated)
    return Savings(
        treated=len(treated),
        control=len(control),
        treated_turns=turns,
        control_turns=sum(trial.turns for trial in control),
        difference_s=difference,
        low_s=low,
        high_s=high,
        measured_s=None if difference is None else -difference * turns,
        told_s=sum(trial.told_s for trial in treated),
    )


def _per_turn(trials: Sequence[Trial]) -> float:
    return sum(trial.took_s for trial in trials) / sum(trial.turns for trial in trials)


def _interval(treated: Sequence[Trial], control: Sequence[Trial], seed: int) -> tuple[float, float]:
    draw = random.Random(seed)
    count = max(100, min(RESAMPLES, _DRAWS // (len(treated) + len(control))))
    found = sorted(
        _per_turn(draw.choices(treated, k=len(treated))) - _per_turn(draw.choices(control, k=len(control)))
        for _ in range(count)
    )
    outside = int(count * 0.025)
    return found[outside], found[-outside - 1]
