"""The gate: is a probe or a run ahead worth it, and is it worth it now? Pure functions, a reason with every verdict.

A hit saves s = E[min(L, max(0, R - P))], with tool latency L and runway R (time left until the real call) as the
distributions that were measured, and probe time P still to be spent. Bet iff p*s > delta*P + (1-p)*w, where delta is
the slowdown of the main stream while a probe runs and w what a miss costs; so the break-even probability is
p* = (delta*P + w) / (s + w) (DESIGN section 7; the break-even of speculative execution as in SPORK and "speculative
actions"). Each candidate is held against it alone: the j-th runs iff its own p_j pays, so that how many run follows.
In a chain p is the product of the probabilities of everything it rests on.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.gating.sketch import Points, expected_min


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator tolerates.

    Attributes:
        miss_cost_share: w as a share of the tool seconds that a discarded run takes.
        min_saving_s: a smaller saving is not worth a message to the runtime.
        egress_factor: p* is raised to at least this for calls whose arguments reach a third party.
        max_runs_per_turn: runs ahead that one turn may have.
    """

    miss_cost_share: float = 0.05
    min_saving_s: float = 0.02
    egress_factor: float = 0.8
    max_runs_per_turn: int = 16


@dataclass(frozen=True, slots=True)
class Bet:
    """What is known when the question is asked. Times in seconds.

    Attributes:
        confidence: the calibrated probability that the very call is made.
        latency: L, as a distribution.
        runway: R, as a distribution.
        probe_time_s: P, where a probe is still to be paid.
        slowdown: delta, share by which a probe slows its turn's stream.
        miss_s: tool seconds that a discarded run is likely to take.
        miss_share: what each of them costs, where that is known of this tool; None: as the policy says.
        least: the lowest probability that the operator's bound on discarded runs allows.
        rests_on: the probability that what it was predicted from comes true; 1.0 for what does not rest on a guess.
        opinion_in_s: time until a running probe is likely to say what it thinks; None where none runs.
        refutes: how often such a probe, or what the next turn knows, shows a wrong guess to be wrong.
    """

    confidence: float
    latency: Points
    runway: Points
    probe_time_s: float = 0.0
    slowdown: float = 0.25
    miss_s: float = 0.0
    miss_share: float | None = None
    egress: bool = False
    runs_so_far: int = 0
    least: float = 0.0
    rests_on: float = 1.0
    opinion_in_s: float | None = None
    refutes: float = 0.0

    @property
    def probability(self) -> float:
        """That the bet is won: of a chain the product."""
        return self.confidence * self.rests_on


@dataclass(frozen=True, slots=True)
class Verdict:
    """Yes or no, the break-even probability, the saving it was held against, and why in words.

    Attributes:
        wait_s: where more than 0, ask again after so long: yes, but later is better.
    """

    go: bool
    threshold: float
    saving_s: float
    reason: str
    wait_s: float = 0.0


def exactly(value: float) -> Points:
    """A distribution of one value."""
    return ((value, 1.0),)


def saving_s(bet: Bet, later_s: float = 0.0) -> float:
    """Seconds that a hit saves: no more than the tool takes, nor than what is left after the probe and the delay."""
    return expected_min(bet.latency, bet.runway, bet.probe_time_s + later_s)


def break_even(bet: Bet, policy: Policy, saving: float) -> float:
    """The probability p* above which the bet pays (1.0 where nothing can be saved)."""
    if saving <= 0:
        return 1.0
    miss_cost_s = _miss_cost_s(bet, policy)
    threshold = (bet.slowdown * bet.probe_time_s + miss_cost_s) / (saving + miss_cost_s)
    return max(threshold, policy.egress_factor) if bet.egress else threshold


def _miss_cost_s(bet: Bet, policy: Policy) -> float:
    """w: what a miss costs."""
    return (policy.miss_cost_share if bet.miss_share is None else bet.miss_share) * bet.miss_s


def worth_running(bet: Bet, policy: Policy) -> Verdict:
    """Should this prediction run ahead, and now? The probe is paid already: `probe_time_s` should be 0."""
    saving = saving_s(bet)
    threshold = break_even(bet, policy, saving)
    if bet.runs_so_far >= policy.max_runs_per_turn:
        return Verdict(False, threshold, saving, f"{bet.runs_so_far} runs in this turn already")
    if saving < policy.min_saving_s:
        return Verdict(False, threshold, saving, f"would save {saving * 1000:.0f} ms, too little")
    verdict = _compare(bet, threshold, saving)
    if verdict.go and bet.probability < bet.least:
        why = f"p={bet.probability:.2f} is below {bet.least:.2f}, which the bound on discarded runs asks for"
        return Verdict(False, bet.least, saving, why)
    return _waited(bet, policy, verdict) if verdict.go and bet.opinion_in_s else verdict


def worth_chaining(bet: Bet, policy: Policy, later: Points) -> Verdict:
    """Should a call of the trajectory's next turn be run already in this one?

    When the next turn begins it is known whether what the call rests on came true, and the question can be asked again.
    So what counts is what a run saves now beyond a run then, against the runs that would not be begun then any more.

    Args:
        later: R when the next turn begins, as a distribution; `bet.runway` is that from now on.
    """
    verdict = worth_running(bet, policy)
    if not verdict.go:
        return verdict
    more_s = verdict.saving_s - expected_min(bet.latency, later)
    known = (1.0 - bet.rests_on) + bet.rests_on * (1.0 - bet.confidence) * bet.refutes
    gain_s, cost_s = bet.probability * more_s, known * _miss_cost_s(bet, policy)
    if more_s < policy.min_saving_s or gain_s <= cost_s:
        why = f"the next turn is soon enough: now saves {more_s * 1000:.0f} ms more, p={bet.probability:.2f}"
        return Verdict(False, verdict.threshold, verdict.saving_s, why)
    return verdict


def _waited(bet: Bet, policy: Policy, verdict: Verdict) -> Verdict:
    """Wait for the probe that is running, where that costs less than the wrong runs it would keep from starting."""
    later_s = bet.opinion_in_s or 0.0
    lost = bet.probability * (verdict.saving_s - saving_s(bet, later_s))
    kept = (1.0 - bet.probability) * bet.refutes * _miss_cost_s(bet, policy)
    if kept <= lost:
        return verdict
    why = f"waits {later_s * 1000:.0f} ms for the probe: that costs {lost * 1000:.0f} ms and keeps {kept * 1000:.0f} ms"
    return Verdict(False, verdict.threshold, verdict.saving_s, why, later_s)


def worth_probing(bet: Bet, policy: Policy) -> Verdict:
    """Should the turn be forked for a probe? `confidence` is the chance that a probe ends in a hit."""
    saving = saving_s(bet)
    threshold = break_even(bet, policy, saving)
    if saving < policy.min_saving_s:
        short = saving_s(bet, -bet.probe_time_s) >= policy.min_saving_s
        why = "no runway is left after the probe" if short else f"would save {saving * 1000:.0f} ms, too little"
        return Verdict(False, threshold, saving, why)
    return _compare(bet, threshold, saving)


def _compare(bet: Bet, threshold: float, saving: float) -> Verdict:
    p = bet.probability
    if p <= threshold:
        why = f"p={p:.2f} does not reach p*={threshold:.2f} (would save {saving:.2f} s)"
        return Verdict(False, threshold, saving, why)
    return Verdict(True, threshold, saving, f"p={p:.2f} > p*={threshold:.2f}, may save {saving:.2f} s")
