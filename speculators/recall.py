"""Predicts from memory: what is likely to come next, by what happened before. Milliseconds, no model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

from agentspec.aside import Aside
from agentspec.calls import ToolCall
from agentspec.protocols import LiveTurn, Offer, Prediction
from agentspec.recollection import Forecast, Memories, Question

_OFFERED = 3
_LEAST = 0.02
"""A less likely call is not worth a line in the books."""
_NOT_ASKED = Forecast(1.0)

IN_STEP = "recall_in_step"
"""Predictor name of what may follow a call that is itself a guess."""

_MOST_ASSUMED = 4
"""Calls of one answer that are assumed, one after the other, to predict the call after them."""

_LEAST_ASSUMED = 0.3
"""What is assumed is at least so likely, all of it together."""


class RecallSpeculator:
    """Asks memory when the turn begins, and again whenever its answer has made a call: another may follow.

    Where an answer may make several calls, memory is asked on: if it makes the likeliest of them, what is the next?
    """

    name = "recall"

    def __init__(self, memories: Memories, aside: Aside) -> None:
        self._memories = memories
        self._aside = aside

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        while True:
            made = await self._offer_all(turn, offer)
            if turn.request.one_call or not await turn.called(made):
                return

    async def _offer_all(self, turn: LiveTurn, offer: Offer) -> int:
        """Offer what may come next, and what may follow that; how many calls of the answer were known."""
        assumed: tuple[ToolCall, ...] = ()
        chance = 1.0
        made, forecast = await self._asked(turn, assumed)
        known = made
        if made == len(turn.calls) and forecast is not _NOT_ASKED and forecast.no_call >= _LEAST:
            turn.expects_no_call(self.name, forecast.no_call)
        while known == made == len(turn.calls):  # else it answers an old question
            found = [_after(one, chance, assumed) for one in predictions_of(forecast) if one.call not in assumed]
            for prediction in found:
                offer(prediction)
            chance *= found[0].confidence if found else 0.0
            if not _LEAST_ASSUMED <= chance <= 1.0 or len(assumed) >= _MOST_ASSUMED or turn.request.one_call:
                break
            assumed += (found[0].call,)
            known, forecast = await self._asked(turn, assumed)
        return made

    async def _asked(self, turn: LiveTurn, assumed: tuple[ToolCall, ...]) -> tuple[int, Forecast]:
        """Memory's answer, and how many calls of the running answer it knew of."""
        made = len(turn.calls)
        waiting = self._aside.do(lambda: self._ask(turn, assumed))
        if waiting is None:  # too many questions: this one is left out
            return made, _NOT_ASKED
        return await asyncio.wrap_future(waiting)

    def _ask(self, turn: LiveTurn, assumed: tuple[ToolCall, ...]) -> tuple[int, Forecast]:
        """In the other thread: the question is put together when it is asked, so it is never an old one."""
        made = tuple(turn.calls)
        question = Question(turn.trajectory, turn.scope, turn.history, turn.offered, (*made, *assumed))
        return len(made), self._memories.of(turn.tenant).forecast(question)


def _after(one: Prediction, chance: float, assumed: tuple[ToolCall, ...]) -> Prediction:
    """The same as a prediction of what comes after calls that are assumed."""
    if not assumed:
        return one
    return replace(one, predictor=IN_STEP, family=one.predictor, rests_on=chance, follows=assumed)


def predictions_of(forecast: Forecast) -> Iterator[Prediction]:
    """The likeliest calls; the confidence of each is the probability that this very call comes."""
    comes = 1.0 - forecast.no_call
    for one in forecast.candidates[:_OFFERED]:
        confidence = comes * one.probability
        if confidence < _LEAST:
            continue
        name = max(confidence, comes * one.name_probability)
        yield Prediction(one.call, RecallSpeculator.name, name, confidence / name, calibrated=True)
