"""Predicts from memory what came most often after the last call: at once, without a model."""

from __future__ import annotations

from agentspec.protocols import LiveTurn, NextCalls, Offer, Prediction
from agentspec.trajectory import calls_in


class LastCallsSpeculator:
    """Offers the likeliest next call that memory knows for the trajectory's last call."""

    name = "last_calls"

    def __init__(self, memory: NextCalls) -> None:
        self._memory = memory

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        history = calls_in(turn.history)
        for candidate in self._memory.candidates(turn.scope, history)[:1]:
            offer(Prediction(candidate.call, self.name, 1.0, candidate.probability))
