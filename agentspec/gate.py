"""The gate: is a probe or a run ahead worth it? Pure functions over frozen data, a reason with every verdict.

Saving on a hit: s = min(L, max(0, R - P)), with tool latency L, runway R (time left until the real call) and
probe time P still to be spent. Bet iff p*s > delta*P + (1-p)*w, where delta is the slowdown of the main stream while
probing and w what a miss costs; so the break-even probability is p* = (delta*P + w) / (s + w) (DESIGN section 7;
the break-even of speculative execution as in SPORK and "speculative actions").
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator tolerates.

    Attributes:
        probe_slowdown: delta, share by which a probe slows its turn's stream.
        miss_cost_share: w as a share of the tool's latency: what a discarded run is held to cost.
        min_saving_s: a smaller saving is not worth a message to the runtime.
        egress_factor: p* is raised to at least this for calls whose arguments reach a third party.
        max_runs_per_turn: runs ahead that one turn may have.
    """

    probe_slowdown: float = 0.25
    miss_cost_share: float = 0.15
    min_saving_s: float = 0.02
    egress_factor: float = 0.8
    max_runs_per_turn: int = 4


@dataclass(frozen=True, slots=True)
class Bet:
    """What is known when the question is asked. Times in seconds; `confidence` is calibrated."""

    confidence: float
    tool_latency_s: float
    runway_s: float
    probe_time_s: float = 0.0
    egress: bool = False
    runs_so_far: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no, the break-even probability, the saving it was held against, and why in words."""

    go: bool
    threshold: float
    saving_s: float
    reason: str


def saving_s(bet: Bet) -> float:
    """Seconds that a hit saves: no more than the tool takes, nor than what is left after the probe."""
    return min(bet.tool_latency_s, max(0.0, bet.runway_s - bet.probe_time_s))


def break_even(bet: Bet, policy: Policy) -> float:
    """The probability p* above which the bet pays (1.0 where nothing can be saved)."""
    saving = saving_s(bet)
    miss_cost = policy.miss_cost_share * bet.tool_latency_s
    if saving <= 0:
        return 1.0
    threshold = (policy.probe_slowdown * bet.probe_time_s + miss_cost) / (saving + miss_cost)
    return max(threshold, policy.egress_factor) if bet.egress else threshold


def worth_running(bet: Bet, policy: Policy) -> Verdict:
    """Should this prediction run ahead? The probe is paid already: `probe_time_s` should be 0."""
    saving, threshold = saving_s(bet), break_even(bet, policy)
    if bet.runs_so_far >= policy.max_runs_per_turn:
        return Verdict(False, threshold, saving, f"{bet.runs_so_far} runs in this turn already")
    if saving < policy.min_saving_s:
        return Verdict(False, threshold, saving, f"would save {saving * 1000:.0f} ms, too little")
    return _compare(bet, threshold, saving)


def worth_probing(bet: Bet, policy: Policy) -> Verdict:
    """Should the turn be forked for a probe? `confidence` is the chance that a probe ends in a hit."""
    saving, threshold = saving_s(bet), break_even(bet, policy)
    if saving < policy.min_saving_s:
        short = bet.runway_s <= bet.probe_time_s
        why = "no runway is left after the probe" if short else f"would save {saving * 1000:.0f} ms, too little"
        return Verdict(False, threshold, saving, why)
    return _compare(bet, threshold, saving)


def _compare(bet: Bet, threshold: float, saving: float) -> Verdict:
    if bet.confidence <= threshold:
        why = f"p={bet.confidence:.2f} does not reach p*={threshold:.2f} (would save {saving:.2f} s)"
        return Verdict(False, threshold, saving, why)
    return Verdict(True, threshold, saving, f"p={bet.confidence:.2f} > p*={threshold:.2f}, may save {saving:.2f} s")
