"""Predicts from memory what the next turn calls, given what this one's calls are assumed to give."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agentspec.aside import Aside
from agentspec.protocols import LiveTurn, Prediction
from agentspec.recollection import Forecast, Memories, Question
from agentspec.speculators.recall import predictions_of
from agentspec.trajectory import Said, answered_ids

_OFFERED = 2


class ChainSpeculator:
    """Asks memory what follows messages that nobody has said yet. Implements `Foresees`.

    Its predictions have another name where the result of a call is not known: those are worth less.
    """

    name = "chain"
    blind = "chain_blind"

    def __init__(self, memories: Memories, aside: Aside) -> None:
        self._memories = memories
        self._aside = aside

    async def after(self, turn: LiveTurn, messages: Sequence[Said]) -> Sequence[Prediction]:
        waiting = self._aside.do(lambda: self._ask(turn, messages))
        if waiting is None:  # too many questions: this one is left out
            return ()
        made = {call.id for said in messages for call in said.calls}
        seen = made <= set(answered_ids(messages))
        return list(_named(await asyncio.wrap_future(waiting), self.name if seen else self.blind))

    def _ask(self, turn: LiveTurn, messages: Sequence[Said]) -> Forecast:
        question = Question(turn.trajectory, turn.scope, turn.history, turn.offered, ahead=messages)
        return self._memories.of(turn.tenant).forecast(question)


def _named(forecast: Forecast, name: str) -> Iterator[Prediction]:
    for prediction in list(predictions_of(forecast))[:_OFFERED]:
        yield replace(prediction, predictor=name, family=prediction.predictor)
