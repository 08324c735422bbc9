"""What is known of each tool: as its runtime declares it, as the books saw it, and what it may still use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from agentspec.config import Settings
from agentspec.effects import ToolSpec
from agentspec.memory.ledger_sums import Window
from agentspec.memory.ledger_tables import OUTCOMES
from agentspec.proxy.brakes import Brakes
from agentspec.proxy.dashboard.books import OpenBooks
from agentspec.proxy.dashboard.entrance import Viewer
from agentspec.proxy.runtimes import HeldTool, Runtimes


def tools(books: OpenBooks, window: Window, live: Mapping[str, HeldTool]) -> list[dict[str, Any]]:
    """Every tool that is declared now or was called or bet on in this window; the most called first."""
    bets = {row["tool"]: row for row in books.sums.bets_by("tool", window)}
    claims = {row["tool"]: row for row in books.sums.tools(window)}
    latencies, barred = books.queries.latencies(window), books.queries.barred(window)
    found = []
    for name in {**live, **claims, **bets}:
        held, bet, claim = live.get(name), bets.get(name, {}), claims.get(name, {})
        found.append(
            {
                "name": name,
                "declared": None if held is None else declaration(held.spec),
                "effect": held.spec.effect.value if held else claim.get("effect"),
                "calls": claim.get("calls", 0),
                "served": claim.get("served", 0),
                "bets": {one: bet.get(one, 0) for one in OUTCOMES},
                "saved_s": bet.get("saved_s", 0.0),
                "wasted_s": bet.get("wasted_s", 0.0),
                "p50_s": quantile(latencies.get(name, ()), 0.5),
                "p90_s": quantile(latencies.get(name, ()), 0.9),
                "seen": len(latencies.get(name, ())),
                "barred": barred.get(name),
            }
        )
    return sorted(found, key=lambda tool: (-tool["calls"], tool["name"]))


def held_by(runtimes: Runtimes, viewer: Viewer) -> dict[str, HeldTool]:
    """The tools of the viewer's runtimes that are connected now, by name."""
    links = [link for link in runtimes.all() if viewer.sees_all or link.tenant == viewer.tenant]
    return {name: held for link in links for name, held in link.tools.items()}


def declaration(spec: ToolSpec) -> dict[str, Any]:
    """What its owner said of it."""
    return {
        "effect": spec.effect.value,
        "tier": spec.sandbox.tier,
        "isolated": spec.sandbox.isolated,
        "ahead": spec.may_run_ahead,
        "needs_approval": spec.needs_approval,
        "egress": spec.egress,
        "stable_for_s": spec.stable_for_s,
        "reads": sorted(spec.reads),
        "writes": sorted(spec.writes),
        "network": spec.sandbox.network,
    }


def budgets(settings: Settings, brakes: Brakes, viewer: Viewer, live: Mapping[str, HeldTool]) -> dict[str, Any]:
    """The limits; for the operator also how much of them each tool uses, and what is switched off."""
    off = [one for one in brakes.counts()["off"] if viewer.sees_all or one.partition("/")[2] in live]
    limits = {
        "runs_at_once": settings.runs_at_once,
        "tool_runs_at_once": settings.tool_runs_at_once,
        "tool_runs_per_minute": settings.tool_runs_per_minute,
        "egress_discards_per_hour": settings.egress_discards_per_hour,
    }
    used = {name: brakes.use(held.spec) for name, held in live.items()} if viewer.sees_all else {}
    switched_off = sorted(name for name in settings.tools_off if viewer.sees_all or name in live)
    return {"limits": limits, "used": used, "paused": off, "tools_off": switched_off}


def quantile(values: Sequence[float], q: float) -> float | None:
    """The value at quantile q (0..1, nearest rank), None of nothing.

    >>> quantile([3.0, 1.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1))] if ordered else None
