"""How long a tool is declared to take: log-normal by the tool's class, the same for the same call in every arm."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentspec.calls import canonical_json
from agentspec.effects import Effect
from agentspec.proxy.replay.deltas import completion_tokens
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.recordings import Recording

SIGMA = 0.5
"""Of the logarithm: nine of ten calls take between 0.4 and 2.3 times the median."""
MEDIANS: Mapping[str, float] = {Effect.PURE: 0.5, Effect.READ: 1.0, Effect.WRITE: 1.5, Effect.IRREVERSIBLE: 1.5}
"""In seconds, before they are scaled to the share of the time that tools are to have."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Declared latencies. `scale`: what the medians are multiplied by."""

    scale: float = 1.0
    seed: int = 1

    def seconds(self, task: str, tool: str, effect: str, arguments: Mapping[str, Any]) -> float:
        """What this call takes."""
        drawn = random.Random(f"{self.seed}|{task}|{tool}|{canonical_json(dict(arguments))}")
        return self.scale * MEDIANS[effect] * drawn.lognormvariate(0.0, SIGMA)


def for_half_the_time(
    recordings: Sequence[Recording], effects: Mapping[str, str], pace: Pace, seed: int = 1
) -> Latencies:
    """Latencies with which tools take as long as the model does, all these recordings together."""
    plain, model_s, tools_s = Latencies(seed=seed), 0.0, 0.0
    for recording in recordings:
        for step in recording.steps:
            if step.role == "assistant":
                model_s += pace.due(completion_tokens(step))
            for call in step.calls:
                effect = effects.get(call.name, Effect.WRITE)
                tools_s += plain.seconds(recording.model, call.name, effect, call.arguments)
    return replace(plain, scale=model_s / tools_s) if tools_s else plain
