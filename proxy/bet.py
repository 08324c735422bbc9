"""One prediction on the books."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentspec.calls import ToolCall, same_call
from agentspec.gate import Verdict
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

    def fits(self, call: ToolCall) -> bool:
        """Whether the real call is the one that was bet on, as far as the proxy can tell."""
        held = self.held if self.prediction.call.name == call.name else None
        if held is not None and held.loose:
            return True  # the tool's owner decides, in the runtime
        return same_call(self.prediction.call, call, held.spec.parameters if held else None)
