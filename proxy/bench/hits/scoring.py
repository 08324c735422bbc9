"""What a forecast was worth: points, and the rates that they add up to. Pure functions over frozen data.

A step is an assistant message that was due an answer. Its calls are scored one after another, each given the real calls
before it (`CallPoint`); at its start memory also says whether it calls anything at all, and what it would call without
being told of any real call (`StepPoint`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentspec.calls import ToolCall, canonical_arguments, same_call
from agentspec.gating import calibration
from agentspec.recollection import Forecast
from agentspec.wire.request import Schemas

FIFTHS = 5
RESAMPLES = 200
SEED = 7


@dataclass(frozen=True, slots=True)
class CallPoint:
    """A real call and where the forecast had it.

    Attributes:
        probability: of the first candidate, given that a call comes; None where there was no candidate.
        exact_rank: place of the first candidate that is the same call, from 1; None where none is.
        name_rank: place of its name among the predicted names, from 1; None where it is none of them. A memory that
            predicts no names apart is taken by its candidates' distinct names.
    """

    probability: float | None = None
    exact_rank: int | None = None
    name_rank: int | None = None

    @property
    def offered(self) -> bool:
        """Whether a call was offered at all; one at most is."""
        return self.probability is not None

    @property
    def hit(self) -> bool:
        """Whether the call offered is the real one."""
        return self.exact_rank == 1


@dataclass(frozen=True, slots=True)
class StepPoint:
    """The start of a step.

    Attributes:
        calls: how many calls it really makes.
        no_call: the probability told for none.
        bet: the probability told for the first candidate, a call coming or not.
        bet_right: whether the first candidate is the step's first call.
        blind_offers, blind_hits: calls predicted with no real call told, and how many of them the step makes.
    """

    calls: int
    no_call: float
    bet: float = 0.0
    bet_right: bool = False
    blind_offers: int = 0
    blind_hits: int = 0


@dataclass(frozen=True, slots=True)
class Bin:
    """Forecasts of about the same probability: its mean, and the share that were right."""

    told: float
    right: float
    n: int


def call_point(real: ToolCall, forecast: Forecast, tools: Schemas) -> CallPoint:
    """Where a forecast had the call that was made."""
    offered = [candidate.call for candidate in forecast.candidates]
    if not offered:
        return CallPoint()
    names = [name for name, _ in forecast.names] or list(dict.fromkeys(call.name for call in offered))
    schema = tools.get(real.name)
    exact = next((rank for rank, call in enumerate(offered, 1) if same_call(call, real, schema)), None)
    return CallPoint(
        forecast.candidates[0].probability, exact, names.index(real.name) + 1 if real.name in names else None
    )


def step_point(real: Sequence[ToolCall], start: Forecast, blind: Sequence[ToolCall], tools: Schemas) -> StepPoint:
    """What the forecast at a step's start was worth; `blind`: the calls that memory would have expected."""
    top = start.candidates[0] if start.candidates else None
    return StepPoint(
        calls=len(real),
        no_call=start.no_call,
        bet=(1.0 - start.no_call) * top.probability if top else 0.0,
        bet_right=bool(top and real and same_call(top.call, real[0], tools.get(real[0].name))),
        blind_offers=len(blind),
        blind_hits=matched(blind, real, tools),
    )


def matched(offered: Iterable[ToolCall], real: Iterable[ToolCall], tools: Schemas) -> int:
    """How many of the calls offered are real ones, in any order, each real one matched at most once."""

    def key(call: ToolCall) -> tuple[str, str]:
        return call.name, canonical_arguments(call.arguments, tools.get(call.name))

    return (Counter(map(key, offered)) & Counter(map(key, real))).total()


def share(of: Iterable[bool]) -> float | None:
    """The share that is true; None of nothing."""
    return ratio(*_counted(of))


def ratio(part: float, whole: float) -> float | None:
    """One over the other; None of nothing."""
    return part / whole if whole else None


def _counted(of: Iterable[bool]) -> tuple[int, int]:
    flags = list(of)
    return sum(flags), len(flags)


def exact_hit(points: Iterable[CallPoint], within: int = 1) -> float | None:
    """The share of real calls that are among the first candidates."""
    return share(point.exact_rank is not None and point.exact_rank <= within for point in points)


def name_hit(points: Iterable[CallPoint], within: int = 1) -> float | None:
    """The share of real calls whose name is among the first distinct names."""
    return share(point.name_rank is not None and point.name_rank <= within for point in points)


def offers_per_call(points: Iterable[CallPoint]) -> float | None:
    """Predictions offered per real call."""
    return share(point.offered for point in points)


def blind_hit(steps: Sequence[StepPoint]) -> float | None:
    """The share of real calls that were predicted at their step's start."""
    return ratio(sum(step.blind_hits for step in steps), sum(step.calls for step in steps))


def blind_offers_per_call(steps: Sequence[StepPoint]) -> float | None:
    """Predictions offered at the start of steps that call something, per real call."""
    return ratio(sum(step.blind_offers for step in steps), sum(step.calls for step in steps))


def no_call_precision(steps: Iterable[StepPoint], threshold: float = 0.5) -> float | None:
    """Of the steps said to call nothing, the share that call nothing."""
    return share(step.calls == 0 for step in steps if step.no_call >= threshold)


def no_call_recall(steps: Iterable[StepPoint], threshold: float = 0.5) -> float | None:
    """Of the steps that call nothing, the share said to call nothing."""
    return share(step.no_call >= threshold for step in steps if step.calls == 0)


def bet_precision(steps: Iterable[StepPoint], threshold: float) -> float | None:
    """Of the steps with a first candidate at least so likely, the share where it is the step's first call."""
    return share(step.bet_right for step in steps if step.bet >= threshold)


def bet_share(steps: Iterable[StepPoint], threshold: float) -> float | None:
    """The share of steps with a first candidate at least so likely."""
    return share(step.bet >= threshold for step in steps)


def reliability(points: Iterable[CallPoint]) -> tuple[Bin, ...]:
    """The points with a candidate, by what was told, in bins of equal width; empty bins are left out."""
    told = [(point.probability, point.hit) for point in points if point.probability is not None]
    return tuple(Bin(*held) for held in calibration.reliability(told))


def calibration_error(points: Iterable[CallPoint]) -> float | None:
    """Expected calibration error: how far what was told is from what was right, weighted by how often."""
    bins = reliability(points)
    return ratio(sum(held.n * abs(held.told - held.right) for held in bins), sum(held.n for held in bins))


def fifths(points: Sequence[CallPoint]) -> tuple[float | None, ...]:
    """Exact hits in each fifth of the calls, in the order in which they were made."""
    edges = [len(points) * nth // FIFTHS for nth in range(FIFTHS + 1)]
    return tuple(exact_hit(points[low:high]) for low, high in pairwise(edges))


def growth(points: Sequence[CallPoint]) -> float | None:
    """By how much the last fifth is better than the first, relative to the first."""
    first, *_, last = fifths(points)
    return last / first - 1.0 if first and last is not None else None


def spread(trajectories: Sequence[Sequence[CallPoint]]) -> tuple[float | None, float | None]:
    """The 95% interval of exact hits by a bootstrap over whole trajectories: their calls are not independent."""
    sums = [(sum(point.hit for point in points), len(points)) for points in trajectories if points]
    if not sums:
        return None, None
    draw = random.Random(SEED)
    rates = sorted(_rate(draw.choices(sums, k=len(sums))) for _ in range(RESAMPLES))
    outside = int(RESAMPLES * 0.025)
    return rates[outside], rates[-outside - 1]


def _rate(sums: Sequence[tuple[int, int]]) -> float:
    return sum(hits for hits, _ in sums) / sum(calls for _, calls in sums)
