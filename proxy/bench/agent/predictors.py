"""Who predicts in the arms that are no product of ours: the baselines, and those that may look at the recorded answer.

An arm that looks says so in its name (`oracle`, `declared`). The others see what any speculator sees.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from agentspec.calls import ToolCall, canonical_json
from agentspec.effects import ToolSpec
from agentspec.errors import RequestError
from agentspec.protocols import LiveTurn, Offer, Prediction, ProbeLog, Speculator
from agentspec.proxy.replay.matching import Index
from agentspec.trajectory import calls_in

CONFIDENT = 0.95


class Answers:
    """What was recorded for the point at which a turn stands."""

    def __init__(self, index: Index, seed: int = 1) -> None:
        self._index = index
        self._seed = seed

    def to(self, turn: LiveTurn) -> list[ToolCall]:
        """The calls that the answer will make; none where the point is not recorded."""
        body = msgspec.json.decode(turn.body)
        try:
            point = self._index.find(turn.request.model, body["messages"])
        except RequestError:
            return []
        return [ToolCall(call.name, dict(call.arguments)) for call in point.answer.calls]

    def chance(self, turn: LiveTurn) -> float:
        """A number from 0 to 1 that depends on the seed and on where the turn stands, and on nothing else."""
        return random.Random(f"{self._seed}|{turn.request.model}|{len(turn.history)}").random()


@dataclass(slots=True, eq=False)
class Oracle:
    """Always right, after a stated time, and says so: its probabilities are true. It peeks at the recorded answer."""

    answers: Answers
    after_s: float
    name: str = "oracle"

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        await asyncio.sleep(self.after_s)
        for call in self.answers.to(turn):
            offer(Prediction(call, self.name, 1.0, 1.0, calibrated=True))


@dataclass(slots=True, eq=False)
class DeclaredProbe:
    """Stands in for a probe, which a recording cannot answer: right with a stated probability, after a stated time.

    It peeks at the recorded answer for that, and asks the gate before it begins, as a probe does. It is as sure of a
    wrong guess as of a right one.
    """

    answers: Answers
    accuracy: float
    after_s: float
    log: ProbeLog
    name: str = "probe"

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        if not await turn.grown(1) or not self.log.worth_probing(turn):
            return
        probe = self.log.open_probe(turn)
        try:
            await asyncio.sleep(self.after_s)
            probe.outcome = "predicted"
        finally:
            self.log.close_probe(turn, probe)
        calls = self.answers.to(turn)
        if self.answers.chance(turn) >= self.accuracy:
            calls = [wrong for wrong in [wrong_call(turn)] if wrong is not None]
        for call in calls[:1]:
            offer(Prediction(call, self.name, CONFIDENT, 1.0, cost_s=self.after_s))


@dataclass(slots=True, eq=False)
class Wrong:
    """Always confident and always wrong; its confidence claims to be a probability."""

    after_s: float
    name: str = "wrong"

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        await asyncio.sleep(self.after_s)
        call = wrong_call(turn)
        if call is not None:
            offer(Prediction(call, self.name, CONFIDENT, 1.0, cost_s=self.after_s, calibrated=True))


class MostFrequent:
    """The call that was made most often so far, in all trajectories of this proxy."""

    name = "most_frequent"

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._read: dict[str, int] = {}

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        made = calls_in(turn.history)
        for call in made[self._read.get(turn.trajectory, 0) :]:
            self._counts[call.name, canonical_json(call.arguments)] += 1
        self._read[turn.trajectory] = len(made)
        fitting = [(key, count) for key, count in self._counts.most_common() if key[0] in turn.tools]
        if fitting:
            (tool, arguments), _ = fitting[0]
            offer(Prediction(ToolCall(tool, msgspec.json.decode(arguments)), self.name, CONFIDENT, 1.0))


class RandomCall:
    """A tool at random, with arguments at random from those of earlier calls of its."""

    name = "random"

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._seen: dict[str, list[dict[str, Any]]] = {}

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        for call in calls_in(turn.history)[-2:]:
            self._seen.setdefault(call.name, []).append(call.arguments)
        tools = sorted(turn.tools)
        if tools:
            tool = self._random.choice(tools)
            arguments = self._random.choice(self._seen.get(tool) or [_made_up(turn.tools[tool], "random")])
            offer(Prediction(ToolCall(tool, arguments), self.name, CONFIDENT, 1.0))


@dataclass(slots=True, eq=False)
class WrongArguments:
    """Memory's predictions, each with an argument spoilt: the right tools, never the right call."""

    inner: Speculator
    name: str = "wrong_arguments"

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        def spoilt(prediction: Prediction) -> None:
            call = replace(prediction.call, arguments=_spoilt(prediction.call.arguments))
            offer(replace(prediction, call=call, predictor=self.name))

        await self.inner.speculate(turn, spoilt)


def wrong_call(turn: LiveTurn) -> ToolCall | None:
    """A call that nobody makes, of the first tool that may run ahead; None where none may."""
    tools: Mapping[str, ToolSpec] = turn.tools
    return ToolCall(min(tools), _made_up(tools[min(tools)], f"nobody-{len(turn.history)}")) if tools else None


_MADE_UP: dict[str, Callable[[str], Any]] = {
    "integer": len,
    "number": len,
    "boolean": bool,
    "array": lambda text: [],
    "object": lambda text: {},
}


def _made_up(spec: ToolSpec, text: str) -> dict[str, Any]:
    properties: Mapping[str, Any] = spec.parameters.get("properties", {})
    needed = spec.parameters.get("required", properties)
    return {name: _MADE_UP.get(properties.get(name, {}).get("type"), str)(text) for name in needed}


def _spoilt(arguments: Mapping[str, Any]) -> dict[str, Any]:
    spoilt = dict(arguments)
    for name, value in spoilt.items():
        if isinstance(value, str):
            return {**spoilt, name: f"{value}-not"}
    return {name: value + 1 if isinstance(value, (int, float)) else value for name, value in spoilt.items()}
