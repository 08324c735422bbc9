"""One prediction on the books."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agentspec.calls import ToolCall, same_call
from agentspec.gating.gate import Verdict
from agentspec.ids import new_id
from agentspec.protocols import Prediction
from agentspec.proxy.live import Live
from agentspec.proxy.runtimes import HeldTool, RuntimeLink
from agentspec.trajectory import Said


@dataclass(slots=True, eq=False)
class Bet:
    """One prediction on the books."""

    turn: Live
    prediction: Prediction
    verdict: Verdict
    link: RuntimeLink | None
    id: str = field(default_factory=new_id)
    offered_s: float = 0.0
    probability: float = 0.0
    """What the prediction's confidence was worth when it was offered."""
    dispatched: bool = False
    """A runtime was told to run it."""
    running: bool = False
    """It has not been heard of since."""
    settled_s: float = 0.0
    latency_s: float | None = None
    waited_s: float | None = None
    matched: bool = False
    call: str | None = None
    """The relayed call that it is a bet on: the key of the window which that call opens, if it writes."""
    granted: bool = False
    ahead: int = 0
    """So many turns after the running one the call is expected in."""
    base: Bet | None = None
    """The bet that it rests on, where that is not known to have come true."""
    assumed: Sequence[Said] = ()
    """Messages that were assumed to be said before it is called."""
    told: Callable[[Bet], None] | None = None
    """Told when its run is over."""
    copy: str | None = None
    """Of its result, where its runtime tells it."""
    outcome: str | None = None

    @property
    def held(self) -> HeldTool | None:
        """The tool, as its runtime declared it."""
        return self.link.held(self.prediction.call.name) if self.link is not None else None

    @property
    def open(self) -> bool:
        """Whether it has no outcome yet."""
        return self.outcome is None

    @property
    def reads(self) -> bool:
        """Whether a write may make it stale."""
        held = self.held
        return held is None or bool(held.spec.depends_on)

    @property
    def lives_on(self) -> bool:
        """Whether it is expected in a later turn, and all that it rests on is still possible."""
        base = self.base
        return self.ahead > 0 and (base is None or base.matched or (base.open and base.lives_on))

    @property
    def served(self) -> bool:
        """Whether a claim got its result."""
        return self.outcome in ("hit", "joined")

    @property
    def gain_s(self) -> float:
        """How long the tool took less how long the claim waited; below 0 where asking took longer than the tool."""
        return (self.latency_s or 0.0) - (self.waited_s or 0.0) if self.served else 0.0

    @property
    def saved_s(self) -> float:
        """The gain, for the books."""
        return max(0.0, self.gain_s)

    @property
    def discarded_s(self) -> float:
        """Tool seconds that were for nothing; of a run that was stopped, as far as it got."""
        if self.served or not self.dispatched:
            return 0.0
        return self.latency_s if self.latency_s is not None else max(0.0, self.settled_s - self.offered_s)

    @property
    def told_others(self) -> bool:
        """Whether its arguments went out to a third party."""
        held = self.held
        return held is not None and held.spec.egress and self.outcome != "vetoed"

    def hand_on(self, turn: Live, told: Callable[[Bet], None]) -> None:
        """The turn that it was expected in, or the next on the way there, has begun."""
        self.offered_s += self.turn.began_s - turn.began_s
        self.turn, self.told, self.ahead = turn, told, self.ahead - 1
        if self.ahead == 0 or (self.base is not None and self.base.matched):
            self.base = None
        self.assumed = ()

    def fits(self, call: ToolCall) -> bool:
        """Whether the real call is the one that was bet on, as far as the proxy can tell."""
        held = self.held if self.prediction.call.name == call.name else None
        if held is not None and held.loose:
            return True  # the tool's owner decides, in the runtime
        return same_call(self.prediction.call, call, held.spec.parameters if held else None)
