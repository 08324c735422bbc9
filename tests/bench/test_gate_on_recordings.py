"""Calibration and the bound on discarded runs on recorded trajectories, with memory that learns as it goes."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentspec.calls import ToolCall, canonical_json, same_call
from agentspec.gating.calibration import Calibration, Claimed, expected_calibration_error
from agentspec.gating.conformal import threshold
from agentspec.memory.recall import Recall
from agentspec.proxy.bench.hits.pools import Pool, Trajectory
from agentspec.recollection import Past, Question
from agentspec.speculators.recall import predictions_of

DATA = Path(os.environ.get("AGENTSPEC_DATA") or Path(__file__).resolve().parents[2].parent / "shared" / "data")
AIRLINE = tuple(f"tau2_airline_{agent}" for agent in ("gpt41", "sonnet45", "opus46_button", "gpt54"))
SHARE = 0.33
BREAK_EVEN = 0.13
"""Of a run of a second, with plenty of runway and the usual miss cost."""


@dataclass(frozen=True, slots=True)
class Point:
    """A call that was predicted in one turn, at its surest; what may run of it, and whether it came."""

    trajectory: str
    probability: float
    least: float
    right: bool


@dataclass(frozen=True, slots=True)
class Day:
    """What a proxy would have seen."""

    told: list[tuple[float, bool]]
    """Every prediction."""
    points: list[Point]


def offers(memory: Recall, trajectory: Trajectory) -> Iterator[list[tuple[ToolCall, float, bool]]]:
    """Turn by turn what recall offers, as it does before the proxy: at the start and after each call."""
    for at in trajectory.steps():
        real = trajectory.history[at].calls
        if not real and trajectory.history[at].made:
            continue
        found = []
        for known in range(len(real) + 1):
            question = Question(trajectory.id, "s", trajectory.history[:at], trajectory.tools, real[:known])
            for one in predictions_of(memory.forecast(question)):
                schema = trajectory.tools.get(one.call.name)
                if not any(same_call(one.call, call, schema) for call in real[:known]):
                    right = any(same_call(one.call, call, schema) for call in real[known:])
                    found.append((one.call, one.confidence, right))
        yield found


def lived(trajectories: list[Trajectory]) -> Day:
    memory, calibration, day = Recall(), Calibration(SHARE), Day([], [])
    bound = calibration.bound("recall")
    for trajectory in trajectories:
        for turn in offers(memory, trajectory):
            guesses = [(Claimed("recall", call.name, p, calibrated=True), call, right) for call, p, right in turn]
            told = [(claimed, calibration.probability(claimed), right) for claimed, _, right in guesses]
            surest: dict[str, tuple[float, bool]] = {}
            for (_, call, _), (_, p, right) in zip(guesses, told, strict=True):
                key = f"{call.name} {canonical_json(call.arguments)}"
                before, came = surest.get(key, (0.0, False))
                surest[key] = max(before, p), came or right
            least = bound.least(calibrated=True)
            day.points.extend(Point(trajectory.id, p, least, right) for p, right in surest.values())
            day.told.extend((p, right) for _, p, right in told)
            for claimed, p, right in told:
                calibration.add(claimed, p, right)
            for p, right in surest.values():
                bound.add(p, right)
        memory.learn(Past(trajectory.id, "s", trajectory.history, trajectory.tools))
    return day


@pytest.fixture(scope="module")
def airline() -> Day:
    files = tuple(DATA / "trajectories" / f"{name}.jsonl.gz" for name in AIRLINE)
    if not all(file.exists() for file in files):
        pytest.skip("the recorded trajectories are missing; set AGENTSPEC_DATA to their folder")
    return lived(Pool("airline", files).trajectories())


def test_recalls_probabilities_hold_after_five_hundred_predictions(airline: Day) -> None:
    assert len(airline.told) > 1000
    assert expected_calibration_error(airline.told[500:]) <= 0.05


def test_by_default_there_is_less_than_one_discarded_run_for_two_hits(airline: Day) -> None:
    run = [point for point in airline.points if point.probability >= max(point.least, BREAK_EVEN)]
    hits = sum(point.right for point in run)
    assert hits > 100
    assert (len(run) - hits) / hits <= 0.5


@pytest.mark.parametrize("share", [0.33, 0.5])
def test_the_bound_set_on_half_of_the_trajectories_holds_on_the_other_half(airline: Day, share: float) -> None:
    """Which half is drawn by chance, so that the two are exchangeable: missed in about one of ten draws."""
    names = sorted({point.trajectory for point in airline.points})
    missed, ran = 0, 0
    for seed in range(100):
        dev = set(random.Random(seed).sample(names, len(names) // 2))
        told = sorted((point.probability, point.right) for point in airline.points if point.trajectory in dev)
        least = threshold(told, share)
        run = [p.right for p in airline.points if p.trajectory not in dev and p.probability >= least]
        ran += bool(run)
        missed += sum(not right for right in run) > share * len(run)
    assert ran >= 50
    assert missed <= 10 + 8  # of a hundred overlapping halves, and the error of so many draws
