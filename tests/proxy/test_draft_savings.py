"""Seconds that accepted drafts saved: claimed only against a pace that was measured without them."""

from __future__ import annotations

from typing import Any

import pytest

from agentspec.events import Usage
from agentspec.proxy import live as live_module
from agentspec.proxy.draft_savings import DraftSavings
from tests.speculators.turns import turn_of


@pytest.fixture
def over(monkeypatch: pytest.MonkeyPatch) -> Any:
    """over(tokens, accepted, took_s, **request): a turn that took so long from its first byte on."""

    def made(tokens: int, accepted: int | None, took_s: float, **request: Any) -> Any:
        turn = turn_of("chat", **request)
        drafted = None if accepted is None else accepted + 3
        turn.usage = Usage(100, tokens, drafted, accepted)
        turn.first_byte_s = 0.5
        monkeypatch.setattr(live_module.clock, "monotonic", lambda: turn.began_s + 0.5 + took_s)
        return turn

    return made


def test_a_saving_is_what_the_tokens_would_have_taken_less_what_they_took(over: Any) -> None:
    savings = DraftSavings()
    assert savings.of(over(101, 80, 3.0)) is None, "the pace is not known yet"
    assert [savings.of(over(101, accepted, took)) for accepted, took in ((0, 9.0), (10, 11.0))] == [0.0, 0.0]
    assert savings.of(over(101, 80, 3.0)) == pytest.approx(7.0)
    assert savings.of(over(51, 40, 6.0)) == 0.0, "drafts that cost more than they brought saved nothing"


def test_each_model_has_a_pace_of_its_own(over: Any) -> None:
    savings = DraftSavings()
    for _ in range(2):
        savings.of(over(101, 0, 10.0))
    assert savings.of(over(101, 80, 3.0, model="other")) is None


@pytest.mark.parametrize("kind", ["no counts", "short", "whole"])
def test_what_cannot_be_told_is_not(over: Any, kind: str) -> None:
    savings = DraftSavings()
    for _ in range(3):
        savings.of(over(101, 0, 10.0))
    turn = {
        "no counts": lambda: over(101, None, 3.0),
        "short": lambda: over(5, 4, 3.0),
        "whole": lambda: over(101, 80, 3.0, stream=False),
    }[kind]()
    assert savings.of(turn) is None
