"""Reads the books, for the terminal, the demo and the benchmarks."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from agentspec.gating.holdout import Trial
from agentspec.memory.ledger import BETS, CLAIMS, PROBES, TURNS, open_engine


class LedgerReader:
    """Reads the books, for the terminal and the demo."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)

    def trajectories(self, limit: int = 20) -> list[dict[str, Any]]:
        """The latest trajectories: id, began_at, turns, calls, claims by outcome, saved seconds; newest first."""
        turns = (
            sa.select(
                TURNS.c.trajectory,
                sa.func.min(TURNS.c.began_at).label("began_at"),
                sa.func.max(TURNS.c.began_at + sa.func.coalesce(TURNS.c.duration_s, 0.0)).label("ended_at"),
                sa.func.count().label("turns"),
                sa.func.sum(sa.func.coalesce(TURNS.c.calls, 0)).label("calls"),
                sa.func.max(TURNS.c.model).label("model"),
            )
            .group_by(TURNS.c.trajectory)
            .order_by(sa.desc("began_at"))
            .limit(limit)
        )
        found = self._rows(turns)
        for row in found:
            bets = self.outcomes(row["trajectory"])
            row |= {"bets": bets, "saved_s": self._saved_s(row["trajectory"])}
        return found

    def outcomes(self, trajectory: str | None = None) -> dict[str, int]:
        """How many bets ended in each outcome."""
        query = sa.select(BETS.c.outcome, sa.func.count()).group_by(BETS.c.outcome)
        if trajectory is not None:
            query = query.where(BETS.c.turn.in_(sa.select(TURNS.c.id).where(TURNS.c.trajectory == trajectory)))
        with self._engine.connect() as connection:
            return {outcome: count for outcome, count in connection.execute(query)}

    def _saved_s(self, trajectory: str) -> float:
        query = sa.select(sa.func.coalesce(sa.func.sum(BETS.c.saved_s), 0.0)).where(
            BETS.c.turn.in_(sa.select(TURNS.c.id).where(TURNS.c.trajectory == trajectory))
        )
        with self._engine.connect() as connection:
            return float(connection.execute(query).scalar_one())

    def find(self, prefix: str) -> str | None:
        """The newest trajectory whose id begins with `prefix`, None where there is none."""
        query = (
            sa.select(TURNS.c.trajectory)
            .where(TURNS.c.trajectory.startswith(prefix, autoescape=True))
            .order_by(TURNS.c.began_at.desc())
            .limit(1)
        )
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one_or_none()

    def turns(self, trajectory: str) -> list[dict[str, Any]]:
        """A trajectory's turns in order, each with its `probes`, `bets` and `claims`."""
        turns = self._rows(sa.select(TURNS).where(TURNS.c.trajectory == trajectory).order_by(TURNS.c.began_at))
        for turn in turns:
            for table, order in ((PROBES, "started_s"), (BETS, "offered_s"), (CLAIMS, "began_s")):
                query = sa.select(table).where(table.c.turn == turn["id"]).order_by(table.c[order])
                turn[table.name] = self._rows(query)
        return turns

    def every_turn(self) -> list[dict[str, Any]]:
        """Every turn, in order."""
        return self._rows(sa.select(TURNS).order_by(TURNS.c.began_at))

    def probes(self) -> list[dict[str, Any]]:
        """Every probe."""
        return self._rows(sa.select(PROBES))

    def bets(self) -> list[dict[str, Any]]:
        """Every bet."""
        return self._rows(sa.select(BETS))

    def discarded(self, limit: int = 50, egress_only: bool = False) -> list[dict[str, Any]]:
        """Runs ahead that nobody claimed, newest first, each with the moment (`at`, Unix time) of its offer."""
        query = (
            sa.select(BETS, (TURNS.c.began_at + BETS.c.offered_s).label("at"), TURNS.c.trajectory)
            .join(TURNS, TURNS.c.id == BETS.c.turn)
            .where(BETS.c.outcome.not_in(("hit", "joined", "vetoed")))
            .order_by(sa.desc("at"))
            .limit(limit)
        )
        return self._rows(query.where(BETS.c.egress.is_(True)) if egress_only else query)

    def trials(self) -> list[Trial]:
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
        return [Trial(bool(row["held_out"]), row["turns"], row["took_s"], row["told_s"]) for row in self._rows(query)]

    def claims(self) -> list[dict[str, Any]]:
        """Every claim."""
        return self._rows(sa.select(CLAIMS))

    def _rows(self, query: sa.Select[*tuple[Any, ...]]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
