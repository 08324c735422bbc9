"""The one place where concrete classes meet."""

from __future__ import annotations

from collections.abc import Sequence

from agentspec.averages import Averages
from agentspec.config import Settings
from agentspec.errors import ConfigError
from agentspec.gate import Policy
from agentspec.memory.last_calls import LastCalls
from agentspec.memory.ledger import SqlLedger
from agentspec.protocols import Ledger, NextCalls, Speculator
from agentspec.proxy.app import App
from agentspec.proxy.books import Books
from agentspec.proxy.desk import Desk
from agentspec.proxy.doors import Doors
from agentspec.proxy.egress import EgressBudget
from agentspec.proxy.endpoints import endpoints_of
from agentspec.proxy.runtimes import Runtimes
from agentspec.proxy.trajectories import TrajectoryIndex
from agentspec.proxy.turn import Deps
from agentspec.speculators.forks import forks_for
from agentspec.speculators.last_calls import LastCallsSpeculator
from agentspec.speculators.probe import ProbeSpeculator


def build(settings: Settings, extra_speculators: Sequence[Speculator] = ()) -> App:
    """The proxy as an ASGI application.

    Raises:
        ConfigError: there is no upstream, or the ledger's database cannot be opened.
    """
    if not (settings.upstream or settings.upstreams):
        raise ConfigError("no endpoint is set: give --upstream http://HOST:PORT/v1 (or AGENTSPEC_UPSTREAM)")
    ledger: Ledger = SqlLedger(settings.database)
    averages, memory = Averages(), LastCalls()
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
    desk = Desk(books, averages, policy, ledger, memory, speculators, settings.write_window_s, tools_off)
    speculators += _speculators(settings, memory, desk)

    async def close() -> None:
        await endpoints.close()
        await ledger.close()

    return App(
        Deps(settings, Doors(settings), endpoints, Runtimes(by_key=bool(settings.keys)), TrajectoryIndex(), desk), close
    )


def _speculators(settings: Settings, memory: NextCalls, desk: Desk) -> list[Speculator]:
    chosen: list[Speculator] = []
    if settings.last_calls:
        chosen.append(LastCallsSpeculator(memory))
    if forks := forks_for(settings):
        chosen.append(ProbeSpeculator(forks, desk, settings.probe_step_chars))
    return chosen
