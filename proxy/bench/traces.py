"""`agentspec bench traces`: what tracing costs.

* `cpu_us_added`: CPU time that a request costs the proxy more with tracing than without: two proxies on one core, real
  sockets, 16 connections that ask for whole answers of 1 KB; window by window in turn, median of the differences, low
  and high their quartiles. What the ledger's threads do after the last answer is counted.
* `list_ms.1m`: how long the first page of the list of runs takes with 10^6 spans in the database, a new connection
  each time; the slowest of three ways to ask (the latest, those of one tenant, those with a discarded run).
* `dropped_uncounted`: rows that are neither in the database nor counted as dropped, after a queue that ran over, a
  database that was locked, and a server that was cut off and came back.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import uvloop

from agentspec.errors import ConfigError
from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.proxy.bench.traces_lists import list_figures
from agentspec.proxy.bench.traces_losses import uncounted_rows
from agentspec.proxy.bench.wire import quiet
from agentspec.proxy.bench.wire_arms import Arm, Child, Cores, answers, endpoint, on_core, port_of, proxy
from agentspec.proxy.bench.wire_bodies import Size, bodies
from agentspec.proxy.bench.wire_endpoint import Beat
from agentspec.proxy.bench.wire_load import LoadFailed, connected

Progress = Callable[[str], None]

POSTGRES = "postgresql+psycopg://postgres@127.0.0.1:5432/postgres"
_CONNECTIONS = 16
_TRACED, _UNTRACED = "traced", "untraced"


@dataclass(frozen=True, slots=True)
class Plan:
    """How often and how long the two proxies are asked; how many spans the lists have."""

    rounds: int = 15
    seconds: float = 2.0
    warm_s: float = 0.5
    spans: int = 1_000_000


FULL = Plan()
QUICK = Plan(rounds=6, seconds=0.6, warm_s=0.2)


def run(quick: bool = False, *, postgres: str = POSTGRES, progress: Progress = lambda line: None) -> Report:
    """Measure.

    Raises:
        ConfigError: a server does not start, or it answers wrongly.
    """
    plan = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as name:
        folder = Path(name)
        added = _cpu_added(folder, plan, progress)
        lists = list_figures(folder, postgres, plan.spans, progress)
        losses = uncounted_rows(folder, postgres, progress)
    return Report("tracing", (_added(added), *lists, losses), environment())


def _added(differences_us: Sequence[float]) -> Figure:
    low, middle, high = statistics.quantiles(differences_us, n=4)
    return Figure("cpu_us_added", middle, "µs", low, high, len(differences_us))


def _cpu_added(folder: Path, plan: Plan, progress: Progress) -> list[float]:
    """Microseconds of CPU time a request that tracing adds, round by round."""
    cores = Cores.usable()
    with endpoint(folder, cores.load, Beat()) as source:
        port = port_of(source)
        traced, untraced = _proxy(folder, cores, port, _TRACED), _proxy(folder, cores, port, _UNTRACED)
        with _child(traced) as one, _child(untraced) as other, on_core(cores.load):
            for arm, child in ((traced, one), (untraced, other)):
                child.wait_for(partial(answers, arm.target.port))
                child.pause()
            try:
                return uvloop.run(_rounds((traced, untraced), plan, progress))
            except LoadFailed as error:
                raise ConfigError(f"the run was broken off: {error}") from error


def _proxy(folder: Path, cores: Cores, port: int, name: str) -> Arm:
    below = folder / name
    below.mkdir()
    arm = proxy(below, cores.server, port, speculation=False)
    told = {"AGENTSPEC_TRACING": "true" if name == _TRACED else "false"}
    return replace(arm, name=name, server=replace(_child(arm), name=f"agentspec ({name})", environment=told))


def _child(arm: Arm) -> Child:
    assert arm.server is not None
    return arm.server


async def _rounds(arms: tuple[Arm, Arm], plan: Plan, progress: Progress) -> list[float]:
    found = []
    for number in range(plan.rounds):
        order = arms if number % 2 == 0 else arms[::-1]
        cost_us = {arm.name: await _window(arm, plan) for arm in order}
        found.append(cost_us[_TRACED] - cost_us[_UNTRACED])
        told = ", ".join(f"{name} {cost:.0f} µs" for name, cost in cost_us.items())
        progress(f"round {number + 1}/{plan.rounds}: {told}")
    return found


async def _window(arm: Arm, plan: Plan) -> float:
    """CPU time of the proxy for a request, in microseconds, with all that it does afterwards."""
    child = _child(arm)
    child.resume()
    pool = await connected(arm.target, [bodies(Size.SMALL, streamed=False) for _ in range(_CONNECTIONS)])
    try:
        await pool.run(plan.warm_s)
        await quiet(child)
        before_s = child.cpu_s()
        sample = await pool.run(plan.seconds)
        await quiet(child)
        return (child.cpu_s() - before_s) / len(sample.latency_ms) * 1e6
    finally:
        pool.close()
        child.pause()
