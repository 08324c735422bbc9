"""The figures that the parts come to; their names are the same whatever was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from statistics import median

from agentspec.proxy.bench.agent.cells import Measured
from agentspec.proxy.bench.agent.hostile import Cost
from agentspec.proxy.bench.agent.intervals import highest, median_interval
from agentspec.proxy.bench.agent.machine import Costs
from agentspec.proxy.bench.agent.real_cells import Pairs
from agentspec.proxy.bench.figures import Figure


def of_grids(virtual: Sequence[Measured], real: Sequence[Pairs], *, quick: bool) -> Iterator[Figure]:
    """The worst cell of both grids, and what an oracle's were worth."""
    on_clock, on_sockets = max(one.ratio for one in virtual), max(pairs.ratio for pairs in real)
    count = len(virtual) + len(real)
    yield Figure("time_ratio_max", max(on_clock, on_sockets), "ratio", n=count)
    high = None if quick else highest([pairs.ratios for pairs in real])
    yield Figure("time_ratio_max_high", high, "ratio", n=sum(len(pairs.ratios) for pairs in real))
    yield Figure("time_ratio_max.virtual", on_clock, "ratio", n=len(virtual))
    yield Figure("time_ratio_max.sockets", on_sockets, "ratio", n=len(real))
    captured = [one.captured for one in virtual if one.captured is not None]
    yield Figure("oracle_capture_min", min(captured, default=None), "share", n=len(captured))
    yield Figure("oracle_capture_median", median(captured) if captured else None, "share", n=len(captured))
    differences = sum(one.differences for one in virtual) + sum(pairs.differences for pairs in real)
    yield Figure("differences", differences, "count", n=count)


def of_corners(real: Sequence[Pairs]) -> Iterator[Figure]:
    """Each corner on real sockets."""
    for pairs in real:
        yield Figure(
            f"time_ratio.{pairs.cell.name}", pairs.ratio, "ratio", *median_interval(pairs.ratios), len(pairs.ratios)
        )


def of_worst(virtual: Sequence[Measured], most: int = 5) -> Iterator[Figure]:
    """The cells of the virtual grid that came off worst."""
    for one in sorted(virtual, key=lambda one: -one.ratio)[:most]:
        yield Figure(f"time_ratio.virtual.{one.cell.name}", one.ratio, "ratio", n=sum(one.outcomes.values()))


def of_hostile(costs: Sequence[Cost]) -> Iterator[Figure]:
    """What those cost who wish us ill: the worst of all, and of each."""
    yield Figure("hostile_cost", max((cost.share for cost in costs), default=None), "share", n=len(costs))
    for who in dict.fromkeys(cost.who for cost in costs):
        shares = [cost.share for cost in costs if cost.who == who]
        yield Figure(f"hostile_cost.{who}", max(shares), "share", n=len(shares))


def of_costs(costs: Costs) -> Iterator[Figure]:
    """What was charged in virtual time."""
    by_the_clock = ("message_s", "relay_s")
    for field in fields(costs):
        unit = "us" if field.name in by_the_clock else "us of CPU"
        yield Figure(f"cost_us.{field.name.removesuffix('_s')}", getattr(costs, field.name) * 1e6, unit)
