"""The one place where concrete classes meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentspec.aside import Aside
from agentspec.config import Engine, Settings
from agentspec.errors import ConfigError
from agentspec.gating.averages import Averages
from agentspec.gating.calibration import Calibration
from agentspec.gating.gate import Policy
from agentspec.memory.keeper import Keeper
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_retention import Keep
from agentspec.memory.recall import Recall
from agentspec.memory.store import Limits, MemoryStore
from agentspec.protocols import Ledger, Speculator
from agentspec.proxy.app import App
from agentspec.proxy.books import Books
from agentspec.proxy.brakes import Brakes
from agentspec.proxy.dashboard.built import dashboard_of
from agentspec.proxy.desk import Desk
from agentspec.proxy.doors import Doors
from agentspec.proxy.draft_offers import DraftOffers
from agentspec.proxy.egress import EgressBudget
from agentspec.proxy.endpoints import Endpoints, endpoints_of
from agentspec.proxy.engine_load import EngineLoad
from agentspec.proxy.judge import Judge
from agentspec.proxy.learning import Learner
from agentspec.proxy.runtimes import Runtimes
from agentspec.proxy.scribe import Kept, Scribe
from agentspec.proxy.telemetry.built import sight_of
from agentspec.proxy.tenant_secret import tenant_secret
from agentspec.proxy.trajectories import TrajectoryIndex
from agentspec.proxy.turn import Deps
from agentspec.recollection import Memories
from agentspec.speculators.chain import ChainSpeculator
from agentspec.speculators.forks import forks_for
from agentspec.speculators.probe import ProbeSpeculator
from agentspec.speculators.recall import RecallSpeculator

log = logging.getLogger("agentspec.memory")

_CLOSE_S = 5.0
"""Longest time that memory may take at the end to learn and to save."""


def _as_usual(desk: Desk, usual: Sequence[Speculator]) -> Sequence[Speculator]:
    return usual


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of its own that a program brings along, which no operator sets; None: the usual one.

    Attributes:
        endpoints: where requests go.
        ledger: who writes the books down.
        memories: where memory is kept.
        aside: where memory is asked.
        speculators: given the desk and the usual speculators, says who predicts.
    """

    endpoints: Endpoints | None = None
    ledger: Ledger | None = None
    memories: Memories | None = None
    aside: Aside | None = None
    speculators: Callable[[Desk, Sequence[Speculator]], Sequence[Speculator]] = _as_usual


def build(settings: Settings, extra_speculators: Sequence[Speculator] = (), parts: Parts | None = None) -> App:
    """The proxy as an ASGI application.

    Raises:
        ConfigError: there is no upstream, or a database cannot be opened.
    """
    if not (settings.upstream or settings.upstreams):
        raise ConfigError("no endpoint is set: give --upstream http://HOST:PORT/v1 (or AGENTSPEC_UPSTREAM)")
    parts = parts or Parts()
    ledger = parts.ledger or _ledger(settings)
    sight = sight_of(settings, ledger)
    scribe = Scribe(sight.ledger, Kept.by(settings))
    averages = Averages()
    endpoints = parts.endpoints or endpoints_of(settings)
    brakes = _brakes(settings, averages, endpoints)
    egress = EgressBudget(settings.egress_discards_per_hour)
    books = Books(scribe, averages, bet_limit_s=settings.bet_limit_s, egress=egress, brakes=brakes)
    speculators: list[Speculator] = list(extra_speculators)
    forks = forks_for(settings)
    judge = _judge(settings, averages, brakes, frozenset(forks))
    desk = Desk(books, judge, scribe, speculators, settings.write_window_s)
    forget_nothing = _remember(settings, desk, speculators, parts)
    if forks:
        speculators.append(ProbeSpeculator(forks, desk, settings.probe_step_chars))
    desk.drafts = drafts = DraftOffers(endpoints.all(), settings, desk.fault)
    desk.speculators = parts.speculators(desk, speculators)
    engine_load = EngineLoad(endpoints.all(), brakes) if forks and settings.engine_metrics else None

    async def close() -> None:
        try:
            await drafts.close()
            await endpoints.close()
            await forget_nothing()
        finally:
            if sight.ledger is not None:
                await sight.ledger.close()

    doors, runtimes = Doors(settings), Runtimes(by_key=bool(settings.keys))
    salt = tenant_secret(settings)
    deps = Deps(settings, doors, endpoints, runtimes, TrajectoryIndex(), desk, salt, engine_load)
    return App(deps, close, sight.pages(desk, runtimes, ledger), dashboard_of(deps, ledger))


def _ledger(settings: Settings) -> Ledger | None:
    """Who writes the books down; nobody, where the operator wants no traces."""
    if not settings.tracing:
        return None
    age_s = settings.keep_days * 86_400 or None
    return SqlLedger(settings.database, settings.ledger_queue, Keep(age_s, settings.keep_mib * 2**20 or None))


def _brakes(settings: Settings, averages: Averages, endpoints: Endpoints) -> Brakes:
    """All that holds bets and probes back; endpoints of the file have budgets of their own."""
    brakes = Brakes(settings, averages)
    for endpoint, named in zip(endpoints.all(), settings.upstreams, strict=False):  # the default one comes last
        brakes.limit(endpoint.upstream, named.budget)
    return brakes


def _judge(settings: Settings, averages: Averages, brakes: Brakes, probed: frozenset[Engine]) -> Judge:
    """The gate, with all that it decides on."""
    policy = Policy(miss_cost_share=settings.miss_cost_share, max_runs_per_turn=settings.max_runs_per_turn)
    calibration = Calibration(settings.max_discarded_share)
    return Judge(averages, calibration, policy, brakes, frozenset(settings.tools_off), probed)


def _remember(
    settings: Settings, desk: Desk, speculators: list[Speculator], parts: Parts
) -> Callable[[], Awaitable[None]]:
    """Have memory asked and told; what to await at the end."""
    if not (settings.speculation and settings.memory):
        return _nothing
    memories, forget = (parts.memories, _nothing) if parts.memories is not None else _kept(settings)
    aside = parts.aside or Aside("agentspec-recall")
    desk.chains.depth, desk.chains.foresees = settings.chain_depth, ChainSpeculator(memories, aside)
    desk.learner = learner = Learner(memories, aside, settings.memory_idle_s, desk.fault)
    speculators.append(RecallSpeculator(memories, aside))

    async def close() -> None:
        await learner.flush()
        aside.close()
        await forget()

    return close


def _kept(settings: Settings) -> tuple[Memories, Callable[[], Awaitable[None]]]:
    """Memory as it is kept in a database, and what to await when it is to be closed."""
    store = _memory_store(settings)
    keeper = Keeper(store, Recall, Limits(max_trajectories=settings.memory_trajectories, close_s=_CLOSE_S))

    async def close() -> None:
        await asyncio.to_thread(keeper.close)
        if store is not None:
            store.close()

    return keeper, close


async def _nothing() -> None:
    """Without memory there is nothing to keep."""


def _memory_store(settings: Settings) -> MemoryStore | None:
    """Where memory is kept. Its usual place may be missing (a container without a home); one that was named may not."""
    if not settings.memory_database:
        return None
    try:
        return MemoryStore(settings.memory_database)
    except ConfigError as error:
        if "memory_database" in settings.model_fields_set:
            raise
        log.warning("memory is kept in this process only: %s", error)
        return None
