"""The one place where concrete classes meet."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from agentspec.aside import Aside
from agentspec.averages import Averages
from agentspec.config import Settings
from agentspec.errors import ConfigError
from agentspec.gate import Policy
from agentspec.memory.keeper import Keeper
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.recall import Recall
from agentspec.memory.store import Limits, MemoryStore
from agentspec.protocols import Ledger, Speculator
from agentspec.proxy.app import App
from agentspec.proxy.books import Books
from agentspec.proxy.desk import Desk
from agentspec.proxy.doors import Doors
from agentspec.proxy.egress import EgressBudget
from agentspec.proxy.endpoints import endpoints_of
from agentspec.proxy.learning import Learner
from agentspec.proxy.runtimes import Runtimes
from agentspec.proxy.trajectories import TrajectoryIndex
from agentspec.proxy.turn import Deps
from agentspec.speculators.forks import forks_for
from agentspec.speculators.probe import ProbeSpeculator
from agentspec.speculators.recall import RecallSpeculator

log = logging.getLogger("agentspec.memory")

_CLOSE_S = 5.0
"""Longest time that memory may take at the end to learn and to save."""


def build(settings: Settings, extra_speculators: Sequence[Speculator] = ()) -> App:
    """The proxy as an ASGI application.

    Raises:
        ConfigError: there is no upstream, or a database cannot be opened.
    """
    if not (settings.upstream or settings.upstreams):
        raise ConfigError("no endpoint is set: give --upstream http://HOST:PORT/v1 (or AGENTSPEC_UPSTREAM)")
    ledger: Ledger = SqlLedger(settings.database)
    averages = Averages()
    books = Books(
        ledger,
        averages,
        keep_arguments=settings.keep_arguments,
        bet_limit_s=settings.bet_limit_s,
        egress=EgressBudget(settings.egress_discards_per_hour),
    )
    endpoints = endpoints_of(settings)
    policy = Policy(miss_cost_share=settings.miss_cost_share, max_runs_per_turn=settings.max_runs_per_turn)
    speculators: list[Speculator] = list(extra_speculators)
    tools_off = frozenset(settings.tools_off)
    desk = Desk(books, averages, policy, ledger, speculators, settings.write_window_s, tools_off)
    forget_nothing = _remember(settings, desk, speculators)
    if forks := forks_for(settings):
        speculators.append(ProbeSpeculator(forks, desk, settings.probe_step_chars))

    async def close() -> None:
        try:
            await endpoints.close()
            await forget_nothing()
        finally:
            await ledger.close()

    return App(
        Deps(settings, Doors(settings), endpoints, Runtimes(by_key=bool(settings.keys)), TrajectoryIndex(), desk), close
    )


def _remember(settings: Settings, desk: Desk, speculators: list[Speculator]) -> Callable[[], Awaitable[None]]:
    """Have memory asked and told; what to await at the end."""
    if not (settings.speculation and settings.memory):
        return _nothing
    store = _memory_store(settings)
    limits = Limits(max_trajectories=settings.memory_trajectories, close_s=_CLOSE_S)
    keeper, aside = Keeper(store, Recall, limits), Aside("agentspec-recall")
    desk.learner = learner = Learner(keeper, aside, settings.memory_idle_s, desk.fault)
    speculators.append(RecallSpeculator(keeper, aside))

    async def close() -> None:
        await learner.flush()
        aside.close()
        await asyncio.to_thread(keeper.close)
        if store is not None:
            store.close()

    return close


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
