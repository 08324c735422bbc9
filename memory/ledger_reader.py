"""Reads the books, for the terminal, the dashboard, the demo and the benchmarks.

Whoever may see one tenant's rows only says so with `tenant`; None stands for everybody's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentspec.gating.holdout import Trial
from agentspec.memory.ledger_opening import open_engine
from agentspec.memory.ledger_tables import BETS, CLAIMS, CONTENTS, OUTCOMES, PREDICTIONS, PROBES, RUNS, TURNS

_PARTS = ((PROBES, "started_s"), (PREDICTIONS, "offered_s"), (BETS, "offered_s"), (CLAIMS, "began_s"))
_IN_ONE_QUERY = 500

Row = dict[str, Any]
Select = sa.Select[*tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs are meant; None: any.

    Attributes:
        search: part of the trajectory's or the session's name, whatever its case.
        outcome: at least one bet ended so.
        tool: it was really called.
        errors: at least one turn ended badly.
        since, until: Unix time of the last that is known of it.
    """

    tenant: str | None = None
    search: str | None = None
    model: str | None = None
    endpoint: str | None = None
    outcome: str | None = None
    tool: str | None = None
    held_out: bool | None = None
    errors: bool = False
    since: float | None = None
    until: float | None = None

    def conditions(self) -> list[sa.ColumnElement[bool]]:
        """What a row of `runs` must fulfil.

        Raises:
            ValueError: there is no such outcome.
        """
        run = RUNS.c
        same = ((run.tenant, self.tenant), (run.model, self.model), (run.endpoint, self.endpoint))
        found: list[sa.ColumnElement[bool]] = [column == wanted for column, wanted in same if wanted is not None]
        if self.held_out is not None:
            found.append(run.held_out.is_(self.held_out))
        if self.errors:
            found.append(run.errors > 0)
        if self.since is not None:
            found.append(run.ended_at >= self.since)
        if self.until is not None:
            found.append(run.ended_at < self.until)
        return found + self._what_happened()

    def _what_happened(self) -> list[sa.ColumnElement[bool]]:
        run, found = RUNS.c, list[sa.ColumnElement[bool]]()
        if self.search:
            names = (run.trajectory, run.session)
            found.append(sa.or_(*(name.icontains(self.search, autoescape=True) for name in names)))
        if self.outcome is not None:
            if self.outcome not in OUTCOMES:
                raise ValueError(f"there is no outcome {self.outcome!r}")
            found.append(run[self.outcome] > 0)
        if self.tool is not None:
            found.append(run.trajectory.in_(sa.select(CLAIMS.c.trajectory).where(CLAIMS.c.tool == self.tool)))
        return found


class LedgerReader:
    """Reads the books. Any thread may ask; each question is one short transaction."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    @property
    def engine(self) -> sa.Engine:
        """For those who sum up (`ledger_sums`)."""
        return self._engine

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    # Runs

    def runs(
        self,
        which: RunFilter = RunFilter(),
        limit: int = 50,
        after: tuple[float, str] | None = None,
        *,
        oldest_first: bool = False,
    ) -> list[dict[str, Any]]:
        """Runs as rows of `runs`, the one that went on last first (or last).

        `after`: `ended_at` and `trajectory` of the last row of the page before.
        """
        at, name = RUNS.c.ended_at, RUNS.c.trajectory
        query = sa.select(RUNS).where(*which.conditions()).limit(limit)
        if after is not None:
            place, mark = sa.tuple_(at, name), sa.tuple_(*map(sa.literal, after))
            query = query.where(place > mark if oldest_first else place < mark)
        return self.rows(query.order_by(at, name) if oldest_first else query.order_by(at.desc(), name.desc()))

    def count_runs(self, which: RunFilter = RunFilter()) -> int:
        """How many there are."""
        return int(
            self.rows(sa.select(sa.func.count().label("n")).select_from(RUNS).where(*which.conditions()))[0]["n"]
        )

    def run(self, trajectory: str, tenant: str | None = None) -> dict[str, Any] | None:
        """One run's row; None where there is none, or another tenant's."""
        query = sa.select(RUNS).where(RUNS.c.trajectory == trajectory)
        found = self.rows(query if tenant is None else query.where(RUNS.c.tenant == tenant))
        return found[0] if found else None

    def find(self, prefix: str) -> str | None:
        """The latest trajectory whose id begins with `prefix`, None where there is none."""
        query = (
            sa.select(RUNS.c.trajectory)
            .where(RUNS.c.trajectory.startswith(prefix, autoescape=True))
            .order_by(RUNS.c.ended_at.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one_or_none()

    def turns(self, trajectory: str, tenant: str | None = None) -> list[dict[str, Any]]:
        """A run's turns in order, each with its `probes`, `predictions`, `bets` and `claims` in order."""
        query = sa.select(TURNS).where(TURNS.c.trajectory == trajectory).order_by(TURNS.c.began_at)
        turns = self.rows(query if tenant is None else query.where(TURNS.c.tenant == tenant))
        parts = {table.name: self._parts(table, order, [turn["id"] for turn in turns]) for table, order in _PARTS}
        for turn in turns:
            turn |= {name: found.get(turn["id"], []) for name, found in parts.items()}
        return turns

    def _parts(self, table: sa.Table, order: str, turns: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """The rows of these turns, by turn."""
        found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for first in range(0, len(turns), _IN_ONE_QUERY):
            some = turns[first : first + _IN_ONE_QUERY]
            for row in self.rows(sa.select(table).where(table.c.turn.in_(some)).order_by(table.c[order])):
                found[row["turn"]].append(row)
        return found

    def content(self, turn: str) -> dict[str, Any] | None:
        """What was said in a turn, where that is kept (`keep_content`)."""
        found = self.rows(sa.select(CONTENTS).where(CONTENTS.c.turn == turn))
        return found[0] if found else None

    def trajectories(self, limit: int = 20, which: RunFilter = RunFilter()) -> list[dict[str, Any]]:
        """The latest runs, each with its `bets` by outcome."""
        found = self.runs(which, limit)
        return [{**row, "bets": {name: row[name] for name in OUTCOMES if row[name]}} for row in found]

    # Everything of a kind

    def outcomes(self, tenant: str | None = None) -> dict[str, int]:
        """How many bets ended in each outcome."""
        sums = sa.select(*(sa.func.coalesce(sa.func.sum(RUNS.c[name]), 0).label(name) for name in OUTCOMES))
        found = self.rows(sums if tenant is None else sums.where(RUNS.c.tenant == tenant))[0]
        return {name: int(count) for name, count in found.items() if count}

    def every_turn(self) -> list[dict[str, Any]]:
        """Every turn, in order."""
        return self.rows(sa.select(TURNS).order_by(TURNS.c.began_at))

    def probes(self) -> list[dict[str, Any]]:
        """Every probe."""
        return self.rows(sa.select(PROBES))

    def bets(self) -> list[dict[str, Any]]:
        """Every bet."""
        return self.rows(sa.select(BETS))

    def claims(self) -> list[dict[str, Any]]:
        """Every claim."""
        return self.rows(sa.select(CLAIMS))

    def discarded(self, limit: int = 50, egress_only: bool = False, tenant: str | None = None) -> list[dict[str, Any]]:
        """Runs ahead that nobody claimed, newest first."""
        query = sa.select(BETS).where(BETS.c.outcome.not_in(("hit", "joined", "vetoed")))
        if egress_only:
            query = query.where(BETS.c.egress.is_(True))
        if tenant is not None:
            query = query.where(BETS.c.tenant == tenant)
        return self.rows(query.order_by(BETS.c.at.desc()).limit(limit))

    def trials(self, tenant: str | None = None) -> list[Trial]:
        """Each trajectory with a runtime: its turns, how long they and their tools took, what its hits say they saved.

        A turn takes until its answer is over and the last of its claims has a result.
        """
        last = sa.func.max(CLAIMS.c.began_s + CLAIMS.c.waited_s).label("last_s")
        claims = sa.select(CLAIMS.c.turn, last).group_by(CLAIMS.c.turn).subquery()
        saved = sa.select(BETS.c.turn, sa.func.sum(BETS.c.saved_s).label("saved_s")).group_by(BETS.c.turn).subquery()
        ended_s, last_s = sa.func.coalesce(TURNS.c.duration_s, 0.0), sa.func.coalesce(claims.c.last_s, 0.0)
        query = (
            sa.select(
                sa.func.max(sa.case((TURNS.c.held_out.is_(True), 1), else_=0)).label("held_out"),
                sa.func.count().label("turns"),
                sa.func.sum(sa.case((last_s > ended_s, last_s), else_=ended_s)).label("took_s"),
                sa.func.coalesce(sa.func.sum(saved.c.saved_s), 0.0).label("told_s"),
            )
            .select_from(
                TURNS.outerjoin(claims, claims.c.turn == TURNS.c.id).outerjoin(saved, saved.c.turn == TURNS.c.id)
            )
            .where(TURNS.c.runtime.is_not(None), TURNS.c.status == 200)
            .group_by(TURNS.c.trajectory)
        )
        if tenant is not None:
            query = query.where(TURNS.c.tenant == tenant)
        return [Trial(bool(row["held_out"]), row["turns"], row["took_s"], row["told_s"]) for row in self.rows(query)]

    def rows(self, query: Select) -> list[dict[str, Any]]:
        """The rows of a query."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
