"""What the books come to: saved, wasted, how far confidences can be trusted, how long tools take.

Each question is about the rows since a moment (`since`, Unix time) of one tenant, or of everybody (None).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from agentspec.memory.ledger_reader import LedgerReader
from agentspec.memory.ledger_tables import BETS, CLAIMS, OUTCOMES, PREDICTIONS, PROBES, RUNS, TURNS

BINS = 10
"""Of a reliability plot: [0, 0.1), [0.1, 0.2), …, [0.9, 1.0]."""

_SERVED = ("hit", "joined")
_KEPT = ("hit", "joined", "vetoed")


@dataclass(frozen=True, slots=True)
class Window:
    """Whose rows, and since when."""

    tenant: str | None = None
    since: float = 0.0

    def of(self, table: sa.Table, moment: str = "at") -> list[sa.ColumnElement[bool]]:
        """What a row must fulfil."""
        found: list[sa.ColumnElement[bool]] = [table.c[moment] >= self.since]
        return found if self.tenant is None else [*found, table.c.tenant == self.tenant]


class Sums:
    """Sums over the books."""

    def __init__(self, reader: LedgerReader) -> None:
        self._reader = reader

    def totals(self, window: Window) -> dict[str, Any]:
        """The sums over all runs: `runs` (their number) and every count and sum of the table `runs`."""
        counted = [column for column in RUNS.c if column.server_default is not None and column.name != "tenant"]
        sums = (sa.func.coalesce(sa.func.sum(column), 0).label(column.name) for column in counted)
        query = sa.select(sa.func.count().label("runs"), *sums).where(*window.of(RUNS, "ended_at"))
        return self._reader.rows(query)[0]

    def bets_by(self, column: str, window: Window) -> list[dict[str, Any]]:
        """Bets by `tool`, `predictor`, `tier` or `effect`: how many in each outcome, `ran`, `saved_s`, `wasted_s`,
        `egress` (discarded and told a third party); those that saved most first."""
        by, saved_s = BETS.c[column], sa.func.coalesce(sa.func.sum(BETS.c.saved_s), 0.0)
        outcomes = (_count(BETS.c.outcome == name).label(name) for name in OUTCOMES)
        told = sa.and_(BETS.c.egress.is_(True), BETS.c.outcome.not_in(_KEPT))
        query = (
            sa.select(
                by.label(column),
                sa.func.count().label("bets"),
                _count(BETS.c.ran.is_(True)).label("ran"),
                *outcomes,
                saved_s.label("saved_s"),
                sa.func.coalesce(sa.func.sum(BETS.c.wasted_s), 0.0).label("wasted_s"),
                _count(told).label("egress"),
            )
            .where(*window.of(BETS))
            .group_by(by)
            .order_by(saved_s.desc(), by)
        )
        return self._reader.rows(query)

    def probes(self, window: Window) -> list[dict[str, Any]]:
        """Probes by model: `probes`, their `prompt_tokens`, `completion_tokens`, `cost_usd`, mean `duration_s`."""
        sums = (
            sa.func.coalesce(sa.func.sum(PROBES.c[name]), 0).label(name)
            for name in ("prompt_tokens", "completion_tokens", "cost_usd")
        )
        mean_s = sa.func.avg(PROBES.c.duration_s).label("duration_s")
        query = sa.select(PROBES.c.model, sa.func.count().label("probes"), *sums, mean_s).where(*window.of(PROBES))
        return self._reader.rows(query.group_by(PROBES.c.model).order_by(PROBES.c.model))

    def reliability(self, window: Window) -> list[dict[str, Any]]:
        """For each `predictor` and `bin` (0..9) of the calibrated probability: `told` (its mean), `came` (the share
        that came true), `n`."""
        tenths = PREDICTIONS.c.probability * BINS
        if self._reader.engine.dialect.name != "sqlite":  # whose CAST cuts off, where others round
            tenths = sa.func.floor(tenths)
        whole = sa.cast(tenths, sa.Integer)
        at_bin = sa.case((whole >= BINS, BINS - 1), (whole < 0, 0), else_=whole).label("bin")
        query = (
            sa.select(
                PREDICTIONS.c.predictor,
                at_bin,
                sa.func.avg(PREDICTIONS.c.probability).label("told"),
                sa.func.avg(sa.case((PREDICTIONS.c.came_true.is_(True), 1.0), else_=0.0)).label("came"),
                sa.func.count().label("n"),
            )
            .where(*window.of(PREDICTIONS), PREDICTIONS.c.came_true.is_not(None))
            .group_by(PREDICTIONS.c.predictor, at_bin)
            .order_by(PREDICTIONS.c.predictor, at_bin)
        )
        return [{**row, "came": float(row["came"])} for row in self._reader.rows(query)]

    def tools(self, window: Window) -> list[dict[str, Any]]:
        """Real calls by `tool`: `effect`, `calls`, `served`, mean and longest `latency_s`, mean `waited_s`."""
        latency_s = CLAIMS.c.latency_s
        query = (
            sa.select(
                CLAIMS.c.tool,
                sa.func.max(CLAIMS.c.effect).label("effect"),
                sa.func.count().label("calls"),
                _count(CLAIMS.c.outcome.in_(_SERVED)).label("served"),
                sa.func.avg(latency_s).label("latency_s"),
                sa.func.max(latency_s).label("longest_s"),
                sa.func.avg(CLAIMS.c.waited_s).label("waited_s"),
            )
            .where(*window.of(CLAIMS))
            .group_by(CLAIMS.c.tool)
            .order_by(sa.desc("calls"), CLAIMS.c.tool)
        )
        return self._reader.rows(query)

    def names(self, column: str, tenant: str | None = None) -> list[str]:
        """The models or endpoints that runs have, for a choice of filters."""
        query = sa.select(RUNS.c[column]).distinct().where(RUNS.c[column].is_not(None)).order_by(RUNS.c[column])
        rows = self._reader.rows(query if tenant is None else query.where(RUNS.c.tenant == tenant))
        return [row[column] for row in rows]

    def first_turn_at(self) -> float | None:
        """When the oldest turn that is kept began, Unix time."""
        found: float | None = self._reader.rows(sa.select(sa.func.min(TURNS.c.began_at).label("at")))[0]["at"]
        return found


def _count(condition: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    return sa.func.coalesce(sa.func.sum(sa.case((condition, 1), else_=0)), 0)
