"""What all turns share: the books, the judge, who predicts and who remembers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentspec.protocols import Ledger, LiveTurn, ProbeRecord, Speculator
from agentspec.proxy.books import Books
from agentspec.proxy.brakes import PROBE
from agentspec.proxy.judge import Judge
from agentspec.proxy.learning import Learner
from agentspec.proxy.live import Live
from agentspec.proxy.runtimes import RuntimeLink

log = logging.getLogger("agentspec.bets")


@dataclass(slots=True)
class Desk:
    """What all turns share: the books, the judge with all that was measured, who predicts and who remembers."""

    books: Books
    judge: Judge
    ledger: Ledger
    speculators: Sequence[Speculator]
    write_window_s: float
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

    def note_turn(self, turn: Live, link: RuntimeLink | None, note: str) -> None:
        """A turn's line in the ledger."""
        self.ledger.record(
            "turns",
            {
                "id": turn.id,
                "trajectory": turn.trajectory,
                "runtime": link.label if link else None,
                "model": turn.request.model,
                "began_at": turn.began_at,
                "first_byte_s": turn.first_byte_s,
                "call_s": turn.call_s,
                "duration_s": turn.elapsed_s(),
                "status": turn.status,
                "calls": len(turn.calls),
                "prompt_tokens": turn.usage.prompt_tokens if turn.usage else None,
                "completion_tokens": turn.usage.completion_tokens if turn.usage else None,
                "held_out": turn.held_out,
                "probe_verdict": turn.probe_verdict,
                "note": note,
            },
        )

    # ProbeLog

    def worth_probing(self, turn: LiveTurn) -> bool:
        """The gate's verdict on one more probe."""
        verdict = self.judge.probe(turn)
        turn.probe_verdict = verdict.reason
        return verdict.go

    def open_probe(self, turn: LiveTurn) -> ProbeRecord:
        turn.probe = ProbeRecord(started_s=turn.elapsed_s())
        self.judge.brakes.probe_began(turn)
        return turn.probe

    def close_probe(self, turn: LiveTurn, probe: ProbeRecord) -> None:
        probe.duration_s, turn.probe = turn.elapsed_s() - probe.started_s, None
        if probe.outcome == "predicted":
            self.judge.averages.probe_time(PROBE, turn.request.model).add(probe.duration_s)
        self.judge.brakes.probe_over(turn, probe)
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
