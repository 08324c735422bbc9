"""What all turns share: the books, what was measured, the policy, who predicts and who remembers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentspec.averages import Averages
from agentspec.gate import Bet as Question
from agentspec.gate import Policy, worth_probing
from agentspec.protocols import Ledger, LiveTurn, ProbeRecord, Speculator
from agentspec.proxy.books import Books
from agentspec.proxy.learning import Learner
from agentspec.trajectory import depth

log = logging.getLogger("agentspec.bets")

EAGER = "eager"
"""Predictor name of calls that are known, not guessed: their JSON has closed and more of the answer is to come."""


@dataclass(slots=True)
class Desk:
    """What all turns share: the books, the measured averages, the policy, who predicts and who remembers."""

    books: Books
    averages: Averages
    policy: Policy
    ledger: Ledger
    speculators: Sequence[Speculator]
    write_window_s: float
    tools_off: frozenset[str] = frozenset()
    learner: Learner | None = None
    """Who tells memory; None where nothing is learnt."""
    _logged: set[str] = field(default_factory=set)

    def fault(self, who: str, error: BaseException) -> None:
        """A speculator failed: one line for each kind, and a counter."""
        self.books.faults[who] = self.books.faults.get(who, 0) + 1
        kind = f"{who}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning("speculator %s failed, its turn is not affected: %r", who, error)

    # ProbeLog

    def worth_probing(self, turn: LiveTurn) -> bool:
        """The gate's verdict on one more probe: is a call likely, can a tool run ahead, is there runway?"""
        if not turn.tools or turn.call_began:
            return False
        model = turn.request.model
        latencies = [self.averages.tool_latency(name, spec.fingerprint).value for name, spec in turn.tools.items()]
        calls = self.averages.call_rate(turn.tenant, model, depth(turn.history)).value
        question = Question(
            confidence=calls * self.averages.hit_rate("probe", "*").value,
            tool_latency_s=sum(latencies) / len(latencies),
            runway_s=self.runway_s(turn),
            probe_time_s=self.averages.probe_time(model).value,
        )
        return worth_probing(question, self.policy).go

    def open_probe(self, turn: LiveTurn) -> ProbeRecord:
        return ProbeRecord(started_s=turn.elapsed_s())

    def close_probe(self, turn: LiveTurn, probe: ProbeRecord) -> None:
        probe.duration_s = turn.elapsed_s() - probe.started_s
        if probe.outcome == "predicted":
            self.averages.probe_time(turn.request.model).add(probe.duration_s)
        self.ledger.record(
            "probes",
            {
                "turn": turn.id,
                "started_s": probe.started_s,
                "duration_s": probe.duration_s,
                "prompt_tokens": probe.prompt_tokens,
                "completion_tokens": probe.completion_tokens,
                "outcome": probe.outcome,
            },
        )

    def runway_s(self, turn: LiveTurn) -> float:
        """R: seconds until the call is likely to be claimed; past the average a fifth of it is still expected."""
        usual = self.averages.call_at(turn.request.model).value
        return max(usual - turn.elapsed_s(), 0.2 * usual)
