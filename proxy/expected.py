"""Relayed calls whose claims are waited for: which turn does a claim belong to?"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentspec import channel, clock
from agentspec.calls import ToolCall, parse_arguments, same_call
from agentspec.proxy.live import Calling, Live
from agentspec.proxy.runtimes import RuntimeLink

_MAX_EXPECTED = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A call that a turn relayed to a runtime's agent; no more of the turn than settling its claim needs."""

    turn: str
    trajectory: str
    tenant: str
    model: str
    began_at: float
    """Unix time at which its turn began; `began_s` is the same on the monotonic clock."""
    began_s: float
    call: ToolCall
    link: RuntimeLink
    closed_s: float
    """When its JSON closed, since the turn began."""
    calling: Calling
    nth: int
    """It is so many-th of the calls that the answer began."""

    @classmethod
    def by(cls, turn: Live, call: ToolCall, link: RuntimeLink) -> Asked:
        """A call of this turn that has just closed."""
        return cls(
            turn=turn.id,
            trajectory=turn.trajectory,
            tenant=turn.tenant,
            model=turn.request.model,
            began_at=turn.began_at,
            began_s=turn.began_s,
            call=call,
            link=link,
            closed_s=turn.elapsed_s() if turn.call_s is None else turn.call_s,
            calling=turn.calling,
            nth=turn.calling.named,
        )

    @property
    def followed(self) -> bool:
        """Whether the answer went on with another call."""
        return self.calling.named > self.nth

    def elapsed_s(self) -> float:
        """Seconds since its turn began."""
        return clock.monotonic() - self.began_s

    def is_claimed_by(self, link: RuntimeLink, message: channel.Claimed) -> bool:
        """Whether a claim of this runtime's is this very call."""
        if self.link is not link or link.name_of(self.call.name) != message.tool or message.arguments is None:
            return False
        held = link.held(self.call.name)
        claimed = parse_arguments(message.arguments)
        schema = held.spec.parameters if held else None
        return claimed is not None and same_call(self.call, ToolCall(self.call.name, claimed), schema)


@dataclass(slots=True)
class ExpectedCalls:
    """The last relayed calls of declared tools, bounded. A claim may come after the trajectory's next request."""

    _asked: list[Asked] = field(default_factory=list)

    def add(self, asked: Asked) -> None:
        """A call of a declared tool was relayed."""
        self._asked.append(asked)
        del self._asked[:-_MAX_EXPECTED]

    def claimed(self, link: RuntimeLink, message: channel.Claimed, bet_on: Asked | None) -> Asked | None:
        """Whose call a claim was: the bet's, else the only turn's that still expects it. It is expected no longer."""
        fitting = [asked for asked in self._asked if asked.is_claimed_by(link, message)]
        if bet_on is not None:
            fitting = [asked for asked in fitting if asked.turn == bet_on.turn] or [bet_on]
        if len({asked.turn for asked in fitting}) != 1:
            return None
        if fitting[0] in self._asked:
            self._asked.remove(fitting[0])
        return fitting[0]

    def forget(self, link: RuntimeLink) -> None:
        """A runtime has left."""
        self._asked = [asked for asked in self._asked if asked.link is not link]
