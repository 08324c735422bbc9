"""The dashboard of one proxy, put together."""

from __future__ import annotations

from agentspec.protocols import Ledger
from agentspec.proxy.dashboard.books import LedgerSource
from agentspec.proxy.dashboard.entrance import Entrance
from agentspec.proxy.dashboard.health import Health
from agentspec.proxy.dashboard.pages import Pages
from agentspec.proxy.dashboard.site import Dashboard
from agentspec.proxy.turn import Deps


def dashboard_of(deps: Deps, ledger: Ledger | None) -> Dashboard | None:
    """What people look at; None where the operator wants none. `ledger`: who writes the books here."""
    if not deps.settings.dashboard:
        return None
    source = LedgerSource(deps.settings.database, ledger)
    health = Health(deps.settings, source, deps.desk, deps.runtimes)
    pages = Pages(deps.settings, source, deps.desk, deps.runtimes, health)
    return Dashboard(Entrance(deps.settings, deps.doors), pages)
