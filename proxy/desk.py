"""What all turns share: the books, the judge, who predicts, who remembers and who writes it down."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from agentspec.protocols import LiveTurn, ProbeRecord, Speculator
from agentspec.proxy.books import Books
from agentspec.proxy.brakes import PROBE
from agentspec.proxy.chains import Chains
from agentspec.proxy.draft_offers import DraftOffers
from agentspec.proxy.draft_savings import DraftSavings
from agentspec.proxy.judge import Judge
from agentspec.proxy.learning import Learner
from agentspec.proxy.live import Live
from agentspec.proxy.reading import Rounds
from agentspec.proxy.runtimes import RuntimeLink
from agentspec.proxy.scribe import Scribe

log = logging.getLogger("agentspec.bets")


@dataclass(slots=True)
class Desk:
    """What all turns share: the books, the judge with all that was measured, who predicts and who remembers."""

    books: Books
    judge: Judge
    scribe: Scribe
    speculators: Sequence[Speculator]
    write_window_s: float
    chains: Chains = field(init=False)
    """What is predicted beyond running turns."""
    learner: Learner | None = None
    """Who tells memory; None where nothing is learnt."""
    rounds: Rounds = field(default_factory=Rounds)
    """When relayed answers are read."""
    drafts: DraftOffers | None = None
    """Who hands probes' texts over to engines; None where nobody does."""
    draft_savings: DraftSavings = field(default_factory=DraftSavings)
    _logged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.chains = Chains(self.books, self.judge, self.fault)

    def fault(self, who: str, error: BaseException) -> None:
        """A speculator failed: one line for each kind, and a counter."""
        self.books.faults[who] = self.books.faults.get(who, 0) + 1
        kind = f"{who}: {type(error).__name__}"
        if kind not in self._logged:
            self._logged.add(kind)
            log.warning("speculator %s failed, its turn is not affected: %r", who, error)

    def note_turn(self, turn: Live, link: RuntimeLink | None, note: str) -> None:
        """A turn is over: its drafts are taken back, and it is written down."""
        if self.drafts is not None:
            self.drafts.over(turn)
        self.scribe.turn(turn, link, note, self.draft_savings.of(turn))

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
        self.scribe.probe(turn, probe, self._offered(turn, probe))

    def _offered(self, turn: LiveTurn, probe: ProbeRecord) -> int | None:
        """Hand its text over to the engine, whether or not its call is run ahead; how many characters."""
        try:
            return self.drafts.offer(turn, probe) or None if self.drafts is not None else None
        except Exception as error:
            self.fault("drafts", error)
            return None
