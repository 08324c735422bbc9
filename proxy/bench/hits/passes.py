"""One pass over a pool: predict each call, learn each trajectory when it is over, and time both."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agentspec.calls import ToolCall
from agentspec.proxy.bench.hits.pools import Pool, Trajectory
from agentspec.proxy.bench.hits.scoring import CallPoint, StepPoint, call_point, step_point
from agentspec.recollection import Forecast, Past, Question, Recollection

Build = Callable[[frozenset[str]], Recollection]
"""Makes an empty memory without the parts named. Passes in other processes need one that can be pickled."""

SCOPE = "bench"
_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Kind:
    """What is different in this pass.

    Attributes:
        scoped: each trajectory is an end user of its own.
        without: parts of memory that are left out.
    """

    scoped: bool = False
    without: frozenset[str] = frozenset()

    @property
    def headline(self) -> bool:
        """Whether it is the pass that everything is taken from; the others are for exact hits alone."""
        return not self.scoped and not self.without


HEADLINE, SCOPED = Kind(), Kind(scoped=True)


@dataclass(frozen=True, slots=True)
class Scored:
    """What a trajectory came to; `steps` only in the headline's pass."""

    calls: tuple[CallPoint, ...]
    steps: tuple[StepPoint, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passed:
    """What a pass came to, trajectory by trajectory, and how long each forecast and each lesson took."""

    trajectories: tuple[Scored, ...]
    forecast_ms: tuple[float, ...]
    learn_ms: tuple[float, ...]

    @property
    def calls(self) -> list[CallPoint]:
        return [point for one in self.trajectories for point in one.calls]

    @property
    def steps(self) -> list[StepPoint]:
        return [point for one in self.trajectories for point in one.steps]


@dataclass
class Timed:
    """A memory, and how long it took each time."""

    memory: Recollection
    forecast_ms: list[float] = field(default_factory=list)
    learn_ms: list[float] = field(default_factory=list)

    def forecast(self, question: Question) -> Forecast:
        started = time.perf_counter_ns()
        forecast = self.memory.forecast(question)
        self.forecast_ms.append((time.perf_counter_ns() - started) / _NS_PER_MS)
        return forecast

    def learn(self, past: Past) -> None:
        started = time.perf_counter_ns()
        self.memory.learn(past)
        self.learn_ms.append((time.perf_counter_ns() - started) / _NS_PER_MS)


def run_pass(build: Build, pool: Pool, kind: Kind = HEADLINE) -> Passed:
    """Read a pool and pass over it with an empty memory."""
    trajectories = pool.trajectories()
    leave_alone()
    return passed(build(kind.without), trajectories, kind)


def leave_alone() -> None:
    """What is there already is not gone through when garbage is collected while memory is timed: it is not memory's."""
    gc.collect()
    gc.freeze()


def passed(memory: Recollection, trajectories: Iterable[Trajectory], kind: Kind = HEADLINE) -> Passed:
    """Predict and learn trajectory after trajectory."""
    timed = Timed(memory)
    scored = tuple(_scored(timed, trajectory, kind) for trajectory in trajectories)
    return Passed(scored, tuple(timed.forecast_ms), tuple(timed.learn_ms))


def _scored(memory: Timed, trajectory: Trajectory, kind: Kind) -> Scored:
    scope = trajectory.id if kind.scoped else SCOPE
    calls: list[CallPoint] = []
    steps: list[StepPoint] = []
    for at in trajectory.steps():
        real = trajectory.history[at].calls
        if not real and (trajectory.history[at].made or not kind.headline):
            continue  # a call that nobody can read is neither a call to predict nor none
        found, step = _step(memory, trajectory, scope, at, kind)
        calls += found
        steps += step
    memory.learn(Past(trajectory.id, scope, trajectory.history, trajectory.tools))
    return Scored(tuple(calls), tuple(steps), tuple(call.name for call in trajectory.calls) if kind.headline else ())


def _step(
    memory: Timed, trajectory: Trajectory, scope: str, at: int, kind: Kind
) -> tuple[list[CallPoint], list[StepPoint]]:
    history, real, tools = trajectory.history[:at], trajectory.history[at].calls, trajectory.tools

    def forecast(emitted: Sequence[ToolCall] = ()) -> Forecast:
        return memory.forecast(Question(trajectory.id, scope, history, tools, tuple(emitted)))

    start = forecast()
    forecasts = [start, *(forecast(real[:nth]) for nth in range(1, len(real)))][: len(real)]
    calls = [call_point(call, told, tools) for call, told in zip(real, forecasts, strict=True)]
    if not kind.headline:
        return calls, []
    return calls, [step_point(real, start, _blind(forecast, start, len(real)), tools)]


def _blind(forecast: Callable[[Sequence[ToolCall]], Forecast], start: Forecast, most: int) -> list[ToolCall]:
    """The calls that memory expects of this step, each given only those that it expected before."""
    expected: list[ToolCall] = []
    told = start
    while len(expected) < most and told.candidates:
        expected.append(told.candidates[0].call)
        if len(expected) < most:
            told = forecast(expected)
    return expected
