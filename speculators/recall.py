"""Predicts from memory: what is likely to come next, by what happened before. Milliseconds, no model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from agentspec.aside import Aside
from agentspec.protocols import LiveTurn, Offer, Prediction
from agentspec.recollection import Forecast, Memories, Question

_OFFERED = 3
_LEAST = 0.02
"""A less likely call is not worth a line in the books."""


class RecallSpeculator:
    """Asks memory when the turn begins, and again whenever its answer has made a call: another may follow."""

    name = "recall"

    def __init__(self, memories: Memories, aside: Aside) -> None:
        self._memories = memories
        self._aside = aside

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        while True:
            made, forecast = await self._asked(turn)
            if made == len(turn.calls):  # else it answers an old question
                for prediction in _predictions(forecast):
                    offer(prediction)
            if not await turn.called(made):
                return

    async def _asked(self, turn: LiveTurn) -> tuple[int, Forecast]:
        """Memory's answer, and how many calls of the running answer it knew of."""
        made = len(turn.calls)
        waiting = self._aside.do(lambda: self._ask(turn))
        if waiting is None:  # too many questions: this one is left out
            return made, Forecast(1.0)
        return await asyncio.wrap_future(waiting)

    def _ask(self, turn: LiveTurn) -> tuple[int, Forecast]:
        """In the other thread: the question is put together when it is asked, so it is never an old one."""
        made = tuple(turn.calls)
        question = Question(turn.trajectory, turn.scope, turn.history, turn.offered, made)
        return len(made), self._memories.of(turn.tenant).forecast(question)


def _predictions(forecast: Forecast) -> Iterator[Prediction]:
    """The likeliest calls; the confidence of each is the probability that this very call comes."""
    comes = 1.0 - forecast.no_call
    for one in forecast.candidates[:_OFFERED]:
        confidence = comes * one.probability
        if confidence < _LEAST:
            continue
        name = max(confidence, comes * one.name_probability)
        yield Prediction(one.call, RecallSpeculator.name, name, confidence / name, calibrated=True)
