"""One prediction on the books."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentspec.calls import ToolCall, same_call
from agentspec.gating.gate import Verdict
from agentspec.ids import new_id
from agentspec.protocols import Prediction
from agentspec.proxy.live import Live
from agentspec.proxy.runtimes import HeldTool, RuntimeLink


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

    def fits(self, call: ToolCall) -> bool:
        """Whether the real call is the one that was bet on, as far as the proxy can tell."""
        held = self.held if self.prediction.call.name == call.name else None
        if held is not None and held.loose:
            return True  # the tool's owner decides, in the runtime
        return same_call(self.prediction.call, call, held.spec.parameters if held else None)
