"""Those who wish us ill, in virtual time: a predictor that is always sure and always wrong, endpoints that answer
probes never, with garbage, or with a hundred calls. They cost what the tasks take longer than straight to the endpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentspec.config import Engine
from agentspec.protocols import LiveTurn, Offer, Prediction, Speculator
from agentspec.proxy.bench.agent.cells import Cell, Hits
from agentspec.proxy.bench.agent.grid import setting_of
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.predictors import wrong_call
from agentspec.proxy.bench.agent.virtual_endpoint import Hostile, VirtualEndpoint
from agentspec.proxy.bench.agent.virtual_world import Setting, off, on
from agentspec.proxy.desk import Desk

_CELLS = (
    Cell(0.05, 20, Hits.NONE, 0.0, 1),
    Cell(0.5, 200, Hits.NONE, 0.0, 1),
    Cell(0.5, 200, Hits.NONE, 0.0, 16),
    Cell(3.0, 20, Hits.NONE, 0.0, 1),
    Cell(3.0, 20, Hits.NONE, 0.0, 16),
)
_AT_ONCE = 8
"""Wrong calls that the hostile predictor offers in each turn."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one of them cost, as a share of the time without agentspec."""

    who: str
    cell: Cell
    share: float


class HostilePredictor:
    """Offers calls that nobody makes, at once, each with certainty, and says that it is calibrated."""

    name = "hostile"

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        for nth in range(_AT_ONCE):
            call = wrong_call(turn)
            if call is not None:
                spoilt = {name: f"{value}-{nth}" for name, value in call.arguments.items()}
                offer(Prediction(replace(call, arguments=spoilt), self.name, 1.0, 1.0, calibrated=True))


def hostile_costs(costs: Costs, seed: int = 1) -> list[Cost]:
    """Each of them in each cell."""
    found = []
    for cell in _CELLS:
        setting = setting_of(cell, costs, seed)
        direct_s = off(setting).seconds
        for who, hostile in _hostile(setting):
            predicts = _predictor if who == "predictor" else _as_usual
            ahead_s = on(hostile, predicts).seconds
            found.append(Cost(who, cell, ahead_s / direct_s - 1.0))
    return found


def _hostile(setting: Setting) -> list[tuple[str, Setting]]:
    """The predictor; then each way to answer a probe, on an engine of one's own and on a hosted endpoint."""
    paid = {"probe_money_cap_usd": 1e6, "price_input_usd_per_mtok": 1.0, "price_output_usd_per_mtok": 1.0}
    found = [("predictor", setting)]
    for way in Hostile:
        found.append((f"engine_{way}", replace(setting, engine=Engine.VLLM, probed=way)))
        found.append((f"hosted_{way}", replace(setting, engine=Engine.OPENAI, probed=way, options=paid)))
    return found


def _predictor(endpoint: VirtualEndpoint, desk: Desk, usual: Sequence[Speculator]) -> Sequence[Speculator]:
    return [HostilePredictor()]


def _as_usual(endpoint: VirtualEndpoint, desk: Desk, usual: Sequence[Speculator]) -> Sequence[Speculator]:
    return usual
