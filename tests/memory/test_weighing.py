"""Evidence weighed together: honest shares, noise that keeps quiet, and the same answer for the same past."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.memory.weighing import Evidence, Weighed, Weighing

chances = st.floats(0.0, 1.0) | st.sampled_from([0.0, 1e-30, 1.0, 1.5])
marks = st.lists(st.sampled_from(["x", "y", "", "-", "none", "é\ud800"]), max_size=4)


def evidence(name: str, name_chance: float, argument_chance: float, *marks: str, made: bool = False) -> Evidence:
    return Evidence(ToolCall(name, {}), name, name_chance, argument_chance, list(marks), made)


def teach(weighing: Weighing, weighed: Weighed, right: int | None) -> None:
    """This candidate was right, None: none of them."""
    weighing.learn(weighing.example(weighed, right))


def shares(weighing: Weighing, *candidates: Evidence) -> list[float]:
    return [float(one) for one in weighing.weigh(candidates).chances]


evidences = st.lists(
    st.tuples(st.sampled_from("fgh"), chances, chances, marks, st.booleans()).map(
        lambda one: evidence(*one[:3], *one[3], made=one[4])
    ),
    max_size=6,
)


@given(st.lists(st.tuples(evidences, st.none() | st.integers(0, 5)), max_size=8), evidences)
@settings(max_examples=100, deadline=None)
def test_shares_and_that_of_none_sum_to_one(past: list[tuple[list[Evidence], int | None]], now: list[Evidence]) -> None:
    weighing = Weighing()
    for candidates, right in past:
        teach(weighing, weighing.weigh(candidates), right if right is not None and right < len(candidates) else None)
    weighed = weighing.weigh(now)
    assert len(weighed.chances) == len(now) + 1
    assert np.all(weighed.chances >= 0) and np.isfinite(weighed.chances).all()
    assert float(weighed.chances.sum()) == pytest.approx(1.0, abs=1e-5)


def test_before_it_has_learnt_the_product_decides() -> None:
    one, two, three = shares(Weighing(), evidence("f", 0.9, 0.8), evidence("g", 0.5, 0.5), evidence("h", 0.1, 0.1))[:3]
    assert one > two > three


def test_a_part_that_knows_is_soon_heard() -> None:
    weighing, rng = Weighing(), random.Random(1)
    for _ in range(150):
        right = rng.randrange(2)
        candidates = [evidence("f", 0.5, 0.5, f"hint {i == right}") for i in range(2)]
        teach(weighing, weighing.weigh(candidates), right)
    assert shares(weighing, evidence("f", 0.5, 0.5, "hint False"), evidence("f", 0.5, 0.5, "hint True"))[1] > 0.8


def test_a_part_that_is_noise_keeps_quiet() -> None:
    rng = random.Random(2)

    def trained(noise: Callable[[], list[str]]) -> Weighing:
        weighing, truth = Weighing(), random.Random(3)
        for _ in range(400):
            candidates = [evidence("f", 0.5, one, *noise()) for one in (0.8, 0.2)]
            teach(weighing, weighing.weigh(candidates), 0 if truth.random() < 0.8 else 1)
        return weighing

    noisy = trained(lambda: [f"noise {rng.randrange(4)}"])
    for mine in range(4):
        for others in range(4):
            first = shares(noisy, evidence("f", 0.5, 0.8, f"noise {mine}"), evidence("f", 0.5, 0.2, f"noise {others}"))
            assert 0.6 < first[0] < 0.95


def test_what_is_never_right_sinks_below_none() -> None:
    weighing = Weighing()
    for _ in range(150):
        teach(weighing, weighing.weigh([evidence("f", 0.9, 0.9, "vain")]), None)
    one, none = shares(weighing, evidence("f", 0.9, 0.9, "vain"))
    assert none > 0.8 and one < 0.2


def test_shares_are_honest() -> None:
    weighing, rng = Weighing(), random.Random(4)
    for _ in range(600):
        weighed = weighing.weigh([evidence("f", 0.9, 0.9), evidence("g", 0.1, 0.9)])
        teach(weighing, weighed, 0 if rng.random() < 0.6 else None)
    assert shares(weighing, evidence("f", 0.9, 0.9), evidence("g", 0.1, 0.9))[0] == pytest.approx(0.6, abs=0.12)


def test_a_world_that_changes_is_learnt_again() -> None:
    weighing = Weighing()
    pair = [evidence("f", 0.5, 0.5, "one"), evidence("g", 0.5, 0.5, "other")]
    for right in [0] * 200 + [1] * 200:
        teach(weighing, weighing.weigh(pair), right)
    first, second, _ = shares(weighing, *pair)
    assert second > first


def test_the_same_past_gives_the_same_answer() -> None:
    def run() -> list[list[float]]:
        weighing, rng = Weighing(), random.Random(5)
        told = []
        for _ in range(100):
            made = [evidence(rng.choice("fgh"), rng.random(), rng.random(), f"m {rng.randrange(3)}") for _ in range(4)]
            weighed = weighing.weigh(made)
            told.append(weighed.chances.tolist())
            teach(weighing, weighed, rng.choice([None, 0, 1, 2, 3]))
        return told

    assert run() == run()


def test_what_is_kept_for_replays_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentspec.memory.weighing.MAX_KEPT", 20)
    weighing = Weighing()
    for i in range(100):
        teach(weighing, weighing.weigh([evidence("f", 0.5, 0.5, str(i))]), 0)
    assert len(weighing._kept) <= 20
