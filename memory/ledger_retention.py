"""How long the books are kept: by age, and by size. Old runs go as a whole, a few at a time, between two batches."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

import sqlalchemy as sa

from agentspec.memory.ledger_tables import BETS, CLAIMS, CONTENTS, PREDICTIONS, PROBES, RUNS, TURNS

log = logging.getLogger("agentspec.ledger")

_LOOK_EVERY_S = 300.0
_FIRST_LOOK_S = 20.0
_AT_ONCE = 100
"""Runs that go in one transaction: other writers wait no longer than that takes."""

_OF_A_TURN = (PROBES, PREDICTIONS, BETS, CLAIMS, CONTENTS)


@dataclass(frozen=True, slots=True)
class Keep:
    """What is kept; None: without limit.

    Attributes:
        age_s: runs that have been quiet for longer go.
        size_bytes: when all rows and their indexes take more than about this, the oldest runs go.
    """

    age_s: float | None = None
    size_bytes: int | None = None


KEEP_ALL = Keep()


class Retention:
    """Deletes what is too old or too much. `deleted`: how many runs so far."""

    def __init__(self, engine: sa.Engine, keep: Keep) -> None:
        self._engine = engine
        self._keep = keep
        self._due_at = time.monotonic() + _FIRST_LOOK_S
        self.deleted = 0

    def step(self) -> float | None:
        """Delete a few runs where it is time to; the seconds until the next look, None: never."""
        if self._keep == KEEP_ALL:
            return None
        wait_s = self._due_at - time.monotonic()
        if wait_s > 0:
            return wait_s
        self._due_at = time.monotonic() + _LOOK_EVERY_S  # an error is no reason to hurry
        if self.sweep(time.time()):
            self._due_at = time.monotonic()
            return 0.0
        return _LOOK_EVERY_S

    def sweep(self, now: float) -> bool:
        """Delete a few of the oldest runs that must go at Unix time `now`; whether there are more."""
        with self._engine.begin() as connection:
            going = self._too_old(connection, now) or self._too_much(connection)
            if going:
                _delete(connection, going)
            self._delete_strays(connection, now)
        self.deleted += len(going)
        return len(going) == _AT_ONCE

    def _too_old(self, connection: sa.Connection, now: float) -> list[str]:
        if self._keep.age_s is None:
            return []
        oldest = sa.select(RUNS.c.trajectory).where(RUNS.c.ended_at < now - self._keep.age_s)
        return list(connection.scalars(oldest.order_by(RUNS.c.ended_at).limit(_AT_ONCE)))

    def _too_much(self, connection: sa.Connection) -> list[str]:
        if self._keep.size_bytes is None:
            return []
        total = connection.scalar(sa.select(sa.func.coalesce(sa.func.sum(RUNS.c.size_bytes), 0))) or 0
        excess, going = int(total) - self._keep.size_bytes, list[str]()
        if excess <= 0:
            return []
        oldest = sa.select(RUNS.c.trajectory, RUNS.c.size_bytes).order_by(RUNS.c.ended_at).limit(_AT_ONCE)
        for trajectory, size_bytes in connection.execute(oldest):
            if excess <= 0:
                break
            going.append(trajectory)
            excess -= size_bytes
        return going

    def _delete_strays(self, connection: sa.Connection, now: float) -> None:
        """Claims of which nobody knows whose they are have no run that they could go with."""
        if self._keep.age_s is not None:
            stray = sa.and_(CLAIMS.c.trajectory.is_(None), CLAIMS.c.at < now - self._keep.age_s)
            connection.execute(sa.delete(CLAIMS).where(stray))


def _delete(connection: sa.Connection, trajectories: list[str]) -> None:
    turns = sa.select(TURNS.c.id).where(TURNS.c.trajectory.in_(trajectories))
    for table in _OF_A_TURN:
        connection.execute(sa.delete(table).where(table.c.turn.in_(turns)))
    connection.execute(sa.delete(TURNS).where(TURNS.c.trajectory.in_(trajectories)))
    connection.execute(sa.delete(RUNS).where(RUNS.c.trajectory.in_(trajectories)))
    log.info("the ledger let go of %d old runs", len(trajectories))
