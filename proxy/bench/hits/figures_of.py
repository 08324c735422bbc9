"""The figures that the passes come to; their names are the same whatever was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentspec.proxy.bench.figures import Figure
from agentspec.proxy.bench.hits import scoring
from agentspec.proxy.bench.hits.baseline import name_trigram
from agentspec.proxy.bench.hits.passes import HEADLINE, SCOPED, Kind, Passed
from agentspec.proxy.bench.hits.under_load import Loaded
from agentspec.proxy.bench.wire_load import percentile

BETS = (0.50, 0.85)


def figures_of(
    pools: Mapping[str, Mapping[Kind, Passed]], loaded: Loaded, parts: Sequence[str] = ()
) -> tuple[Figure, ...]:
    """All figures: of each pool, then of the full memory.

    Args:
        pools: the passes over each pool; one that was not made gives figures without a value.
        loaded: what the full memory was measured to do.
        parts: the parts of memory that figures are given without.
    """
    of_pools = (figure for pool, passes in pools.items() for figure in _of_pool(pool, passes, parts))
    return (*of_pools, *_of_full_memory(loaded))


def _of_pool(pool: str, passes: Mapping[Kind, Passed], parts: Sequence[str]) -> Iterator[Figure]:
    headline = passes[HEADLINE]
    yield from _of_calls(pool, headline)
    yield _exact(f"exact_hit1_scoped.{pool}", passes.get(SCOPED))
    for part in parts:
        yield _exact(f"exact_hit1.{pool}.without_{part}", passes.get(Kind(without=frozenset({part}))))
    yield from _of_steps(pool, headline)
    yield from _of_growth(pool, headline)
    yield from _times(headline.forecast_ms, headline.learn_ms, f".{pool}")


def _of_calls(pool: str, headline: Passed) -> Iterator[Figure]:
    calls = headline.calls
    yield _exact(f"exact_hit1.{pool}", headline)
    for name, value, unit in (
        ("exact_hit3", scoring.exact_hit(calls, 3), "share"),
        ("name_hit1", scoring.name_hit(calls), "share"),
        ("name_hit3", scoring.name_hit(calls, 3), "share"),
        ("name_trigram", name_trigram(one.names for one in headline.trajectories), "share"),
        ("offers_per_call", scoring.offers_per_call(calls), "offers per real call"),
        ("coverage", scoring.offers_per_call(calls), "share"),
    ):
        yield Figure(f"{name}.{pool}", value, unit, n=len(calls))
    told = sum(point.offered for point in calls)
    yield Figure(f"ece.{pool}", scoring.calibration_error(calls), "probability", n=told)


def _of_steps(pool: str, headline: Passed) -> Iterator[Figure]:
    steps = headline.steps
    calls, quiet = sum(step.calls for step in steps), sum(step.calls == 0 for step in steps)
    said_quiet = sum(step.no_call >= 0.5 for step in steps)
    yield Figure(f"exact_hit1_blind.{pool}", scoring.blind_hit(steps), "share", n=calls)
    yield Figure(f"offers_per_call_blind.{pool}", scoring.blind_offers_per_call(steps), "offers per real call", n=calls)
    yield Figure(f"nocall_precision.{pool}", scoring.no_call_precision(steps), "share", n=said_quiet)
    yield Figure(f"nocall_recall.{pool}", scoring.no_call_recall(steps), "share", n=quiet)
    for likely in BETS:
        name, bets = f"{pool}.{likely * 100:.0f}", sum(step.bet >= likely for step in steps)
        yield Figure(f"bet_precision.{name}", scoring.bet_precision(steps, likely), "share", n=bets)
        yield Figure(f"bet_share.{name}", scoring.bet_share(steps, likely), "share of steps", n=len(steps))


def _of_growth(pool: str, headline: Passed) -> Iterator[Figure]:
    calls = headline.calls
    yield Figure(f"growth.{pool}", scoring.growth(calls), "last fifth / first fifth - 1", n=len(calls))
    for nth, value in enumerate(scoring.fifths(calls), 1):
        yield Figure(f"exact_hit1.{pool}.fifth{nth}", value, "share", n=len(calls) // scoring.FIFTHS)


def _exact(name: str, made: Passed | None) -> Figure:
    """Exact hits with their spread over trajectories."""
    if made is None:
        return Figure(name, None, "share")
    low, high = scoring.spread([one.calls for one in made.trajectories])
    return Figure(name, scoring.exact_hit(made.calls), "share", low, high, len(made.calls))


def _of_full_memory(loaded: Loaded) -> Iterator[Figure]:
    yield from _times(loaded.forecast_ms, loaded.learn_ms)
    size_mib = None if loaded.size_bytes is None else loaded.size_bytes / 2**20
    yield Figure("memory_mib", size_mib, "MiB", n=loaded.held)
    yield Figure("fill_s", loaded.fill_s, "s, making them included", n=loaded.held)


def _times(forecast_ms: Sequence[float], learn_ms: Sequence[float], suffix: str = "") -> Iterator[Figure]:
    for what, taken_ms in (("predict", forecast_ms), ("learn", learn_ms)):
        for at in (50, 99):
            yield Figure(f"{what}_p{at}_ms{suffix}", percentile(taken_ms, at / 100), "ms", n=len(taken_ms))
