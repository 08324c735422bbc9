"""What the dashboard asks of the ledger beside its sums (`ledger_sums`), of the same windows.

Quantiles and the comparison with the control group go over the newest rows, a bounded number of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentspec.gating.holdout import Trial
from agentspec.memory.ledger_reader import LedgerReader, RunFilter
from agentspec.memory.ledger_sums import Window
from agentspec.memory.ledger_tables import BETS, CLAIMS, CONTENTS, RUNS, TURNS

Row = dict[str, Any]

SERVED = ("hit", "joined")
DISCARDED = ("miss", "stale", "failed", "unclaimed")
"""Outcomes of runs ahead that nobody got."""

LATENCIES = 20_000
"""Newest runs ahead and claims that quantiles of latencies go over."""
TRIALS = 20_000
"""Newest trajectories that are compared with the control group."""


@dataclass(frozen=True, slots=True)
class ListedRuns(RunFilter):
    """Which runs a list shows; `discarded`: only those with discarded runs ahead."""

    discarded: bool = False

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """What a row of `runs` must fulfil. Raises ValueError where there is no such outcome."""
        found = RunFilter.conditions(self)
        if self.discarded:
            found.append(RUNS.c.miss + RUNS.c.stale + RUNS.c.failed + RUNS.c.unclaimed > 0)
        return found


class Queries:
    """Questions to the books. Every method may block, and raises SQLAlchemy's errors."""

    def __init__(self, reader: LedgerReader) -> None:
        self._rows = reader.rows

    def content(self, turn: str, tenant: str | None) -> Row | None:
        """What was said in a turn of this tenant's (None: of anybody's), where that is kept."""
        query = sa.select(CONTENTS).where(CONTENTS.c.turn == turn)
        if tenant is not None:
            query = query.join(TURNS, TURNS.c.id == CONTENTS.c.turn).where(TURNS.c.tenant == tenant)
        return next(iter(self._rows(query)), None)

    def trials(self, window: Window) -> list[Trial]:
        """Each trajectory with a runtime: its turns, how long they and their tools took, what its hits say they saved.

        A turn takes until its answer is over and the last of its claims has a result.
        """
        chosen = (
            sa.select(RUNS.c.trajectory, RUNS.c.saved_s)
            .where(RUNS.c.runtime.is_not(None), *window.of(RUNS, "ended_at"))
            .order_by(RUNS.c.ended_at.desc())
            .limit(TRIALS)
            .subquery()
        )
        of_chosen = TURNS.join(chosen, chosen.c.trajectory == TURNS.c.trajectory)
        last = (
            sa.select(CLAIMS.c.turn, sa.func.max(CLAIMS.c.began_s + CLAIMS.c.waited_s).label("last_s"))
            .where(CLAIMS.c.turn.in_(sa.select(TURNS.c.id).select_from(of_chosen)))
            .group_by(CLAIMS.c.turn)
            .subquery()
        )
        ended_s, last_s = sa.func.coalesce(TURNS.c.duration_s, 0.0), sa.func.coalesce(last.c.last_s, 0.0)
        query = (
            sa.select(
                sa.func.max(sa.case((TURNS.c.held_out.is_(True), 1), else_=0)).label("held_out"),
                sa.func.count().label("turns"),
                sa.func.sum(sa.case((last_s > ended_s, last_s), else_=ended_s)).label("took_s"),
                sa.func.max(chosen.c.saved_s).label("told_s"),
            )
            .select_from(of_chosen.outerjoin(last, last.c.turn == TURNS.c.id))
            .where(TURNS.c.runtime.is_not(None), TURNS.c.status == 200)
            .group_by(TURNS.c.trajectory)
        )
        return [Trial(bool(row["held_out"]), row["turns"], row["took_s"], row["told_s"]) for row in self._rows(query)]

    def first_run_at(self, window: Window) -> float | None:
        """When the window's first run ended (Unix time), None where there is none."""
        query = sa.select(sa.func.min(RUNS.c.ended_at).label("at")).where(*window.of(RUNS, "ended_at"))
        at: float | None = self._rows(query)[0]["at"]
        return at

    def over_time(self, window: Window, step_s: int) -> list[Row]:
        """Seconds saved and wasted (`saved_s`, `wasted_s`) by steps of time, each from Unix time `at` on."""
        whole = sa.cast(RUNS.c.ended_at, sa.BigInteger)
        at = (whole - whole % step_s).label("at")
        sums = (sa.func.sum(RUNS.c[name]).label(name) for name in ("saved_s", "wasted_s"))
        query = sa.select(at, *sums).where(*window.of(RUNS, "ended_at"))
        return self._rows(query.group_by(at).order_by(at))

    def reasons(self, window: Window, limit: int = 20) -> list[Row]:
        """Why runs ahead were discarded (`outcome`, `reason`, `count`, `wasted_s`), the most frequent first."""
        count = sa.func.count().label("count")
        wasted_s = sa.func.coalesce(sa.func.sum(BETS.c.wasted_s), 0.0).label("wasted_s")
        query = sa.select(BETS.c.outcome, BETS.c.reason, count, wasted_s).where(*_discarded(window))
        return self._rows(query.group_by(BETS.c.outcome, BETS.c.reason).order_by(count.desc()).limit(limit))

    def discarded(self, window: Window, limit: int = 50) -> list[Row]:
        """The newest discarded runs ahead."""
        return self._rows(sa.select(BETS).where(*_discarded(window)).order_by(BETS.c.at.desc()).limit(limit))

    def latencies(self, window: Window) -> dict[str, list[float]]:
        """By tool, the seconds that its last runs took, ahead or not."""
        found: defaultdict[str, list[float]] = defaultdict(list)
        for table, these in ((BETS, ()), (CLAIMS, (CLAIMS.c.outcome.not_in(SERVED),))):
            query = sa.select(table.c.tool, table.c.latency_s).where(
                table.c.latency_s.is_not(None), *window.of(table), *these
            )
            for row in self._rows(query.order_by(table.c.at.desc()).limit(LATENCIES)):
                found[row["tool"]].append(row["latency_s"])
        return dict(found)

    def barred(self, window: Window) -> dict[str, str]:
        """By tool, what its runtime said last when it refused to run it in its sandbox again."""
        refused = (BETS.c.outcome == "vetoed", BETS.c.reason.like("% is barred from %"))
        query = sa.select(BETS.c.tool, BETS.c.reason).where(*refused, *window.of(BETS))
        found = self._rows(query.order_by(BETS.c.at.desc()).limit(LATENCIES))
        return {row["tool"]: row["reason"] for row in reversed(found)}


def _discarded(window: Window) -> Iterator[sa.ColumnElement[bool]]:
    yield BETS.c.outcome.in_(DISCARDED)
    yield from window.of(BETS)
