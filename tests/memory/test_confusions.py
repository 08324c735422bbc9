"""Habits of being wrong: they are counted, they fade, and they really change what is forecast."""

from __future__ import annotations

import random

import pytest

from agentspec.memory.confusions import FADE, Confusions
from agentspec.memory.recall import Recall
from agentspec.recollection import Forecast
from tests.memory.talks import Talk

TOOLS = {"f": {}, "g": {}, "h": {}}


def test_shares_are_of_what_came() -> None:
    confusions = Confusions()
    assert confusions.share("f", "U", "g") == (0.0, 0.0)
    for actual in ("g", "g", "g", "f"):
        confusions.learn("f", "U", actual)
    shares = {name: confusions.share("f", "U", name)[0] for name in "fgh"}
    assert shares["g"] > shares["f"] > shares["h"] == 0.0
    assert sum(shares.values()) == pytest.approx(1.0)
    assert confusions.share("g", "U", "g") == confusions.share("f", "A", "g") == (0.0, 0.0)


def test_old_habits_fade() -> None:
    confusions = Confusions()
    for actual in ["g"] * 50 + ["h"] * 50:
        confusions.learn("f", "U", actual)
    assert confusions.share("f", "U", "h")[0] > 0.75
    assert confusions.share("f", "U", "h")[1] <= 1 / (1 - FADE) + 1


def test_contexts_are_bounded_and_the_oldest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.memory.confusions.MAX_CONTEXTS", 10)
    confusions = Confusions()
    for i in range(100):
        confusions.learn("f", "kept", "g")
        confusions.learn("f", f"a{i}", "g")
    assert len(confusions.counts) == 10
    assert confusions.share("f", "kept", "g")[0] == 1.0
    assert confusions.share("f", "a0", "g") == (0.0, 0.0)


def talk(name: str, first: str, scope: str = "s") -> Talk:
    return Talk(name, scope, TOOLS).user("please do it").call(first).says("done")


def asked(memory: Recall) -> Forecast:
    return memory.forecast(Talk("asked", "s", TOOLS).user("please do it").question())


def test_learning_tells_the_tracker_what_was_predicted_and_what_came() -> None:
    memory = Recall()
    for i in range(6):
        memory.learn(talk(f"t{i}", "f").past())
    assert asked(memory).candidates[0].call.name == "f"
    share, weight = memory.parts.confusions.share("f", "U", "f")
    assert share > 0.5 and weight >= 3
    memory.learn(talk("other", "g").past())
    assert memory.parts.confusions.share("f", "U", "g")[0] > 0.0


@pytest.mark.parametrize("without", [frozenset(), frozenset({"confusions"})], ids=["heard", "left out"])
def test_a_habit_changes_the_forecast(without: frozenset[str]) -> None:
    memory, rng = Recall(without), random.Random(1)
    for i in range(40):
        memory.learn(talk(f"t{i}", rng.choice("fffgg")).past())
    told = {repr(asked(memory))}
    for actual in "fgh":
        for predicted in "fgh":
            for _ in range(200):
                memory.parts.confusions.learn(predicted, "U", actual)
        told.add(repr(asked(memory)))
    assert (len(told) > 1) == (not without)
