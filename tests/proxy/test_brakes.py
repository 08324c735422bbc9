"""What the brakes write down of a discarded run: what it may have cost, not what it usually costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentspec.calls import ToolCall
from agentspec.config import Settings
from agentspec.gating.averages import Averages
from agentspec.protocols import Prediction
from agentspec.proxy.brakes import GUARDED_SHARE, Brakes


def missed(discarded_s: float) -> Any:
    """A bet whose run was for nothing."""
    return SimpleNamespace(
        turn=SimpleNamespace(trajectory="t", tenant=""),
        prediction=Prediction(ToolCall("get", {}), "seer", 1.0, 1.0),
        held=None,
        dispatched=True,
        running=False,
        outcome="miss",
        served=False,
        matched=False,
        saved_s=0.0,
        gain_s=0.0,
        discarded_s=discarded_s,
    )


@pytest.mark.parametrize(
    ("settings", "share"),
    [
        ({}, GUARDED_SHARE),
        ({"miss_cost_share": 0.4}, 0.4),
        ({"tool_budgets": {"get": {"miss_cost_share": 0.0}}}, 0.0),
        ({"tool_budgets": {"get": {"miss_cost_share": 0.7}}}, 0.7),
    ],
)
def test_a_discarded_second_is_held_against_who_predicted_it(settings: dict[str, Any], share: float) -> None:
    brakes = Brakes(Settings(**settings), Averages())
    brakes.settled(missed(2.0))
    assert brakes._accounts["t"].lost_s == pytest.approx(2.0 * share)


def test_the_gate_asks_for_what_is_usual() -> None:
    brakes = Brakes(Settings(), Averages())
    assert brakes.miss_cost_share("get") == Settings().miss_cost_share < GUARDED_SHARE
