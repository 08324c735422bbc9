"""What memory learns from and what it learnt, in SQL: trajectories, snapshots, and how often something was forgotten.

Each write takes its tenant's row of `memory_generations` first: writers of one tenant go one after the other, in the
order of their ids, and none of them meets a deletion halfway.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import sqlalchemy as sa

from agentspec.errors import ConfigError
from agentspec.memory.databases import WRITES, again_when_locked
from agentspec.memory.migrations.opening import open_engine
from agentspec.memory.migrations.tables import GENERATIONS, SNAPSHOTS, TRAJECTORIES, deleted, key, put, row_of
from agentspec.memory.records import decode, from_line, to_line
from agentspec.memory.store_listing import Listing
from agentspec.recollection import Past, Recollection

log = logging.getLogger("agentspec.memory")

_T, _S, _G = TRAJECTORIES.c, SNAPSHOTS.c, GENERATIONS.c
_BATCH = 64


class Storable(Recollection, Protocol):
    """A memory that can be put away."""

    def dump(self) -> bytes:
        """All that it has learnt."""
        ...

    def restore(self, blob: bytes) -> None:
        """Take over what `dump` gave. Raises ValueError for a dump of another version."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is kept, and how often the keeper acts. `replayed`: pasts that a memory without a snapshot learns."""

    max_tenants: int = 64
    max_queued: int = 1000
    save_every: int = 200
    replayed: int = 2000
    look_every_s: float = 30.0
    pause_s: float = 5.0
    close_s: float = 10.0
    max_trajectories: int | None = 50_000
    max_age_s: float | None = None
    max_bytes: int | None = 2**30


@dataclass(slots=True, eq=False)
class Shelf:
    """A tenant's memory. The keeper's lock guards `memory`, `loaded`, `stale` and `early`; the rest is the thread's.

    Attributes:
        loaded: whether what the store holds is in it.
        stale: how many deletions are on their way; meanwhile the memory is an empty one that learns nothing.
        early: what it learnt before it was loaded.
        upto: it knows everything stored with an id up to here; `own`: and these, which this process has written.
        unsaved: how many trajectories are not in the snapshot.
    """

    tenant: str
    memory: Storable
    loaded: bool
    stale: int = 0
    early: deque[Past] = field(default_factory=lambda: deque(maxlen=200))
    generation: int = 0
    upto: int = 0
    own: set[int] = field(default_factory=set)
    unsaved: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What is kept of one tenant. `oldest_at`, `newest_at`: Unix time in seconds, None where there is nothing."""

    trajectories: int
    size_bytes: int
    scopes: int
    oldest_at: float | None
    newest_at: float | None


class MemoryStore:
    """Keeps memory's trajectories and snapshots. Every method may block, and raises SQLAlchemy's errors."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._writer = self._engine.execution_options(**{WRITES: True})
        self.listing = Listing(self._engine)

    def close(self) -> None:
        """Let go of the connections."""
        self._engine.dispose()

    # Trajectories

    @again_when_locked
    def remember(self, tenant: str, past: Past, generation: int | None = None) -> int | None:
        """Keep a trajectory; its id. None where a longer version is there, or something was forgotten meanwhile.

        Raises:
            ValueError: it is too long to be kept.
        """
        row = row_of(tenant, past, time.time())
        with self._writing(tenant) as (connection, now):
            return None if generation not in (None, now) else put(connection, row)

    def pasts(
        self, tenant: str, after: int = 0, limit: int | None = None, skip: Collection[int] = ()
    ) -> Iterator[tuple[int, Past]]:
        """Trajectories with ids above `after`, oldest first. Broken ones are left out, which one line tells."""
        broken, given = 0, 0
        for row in self._rows(tenant, after):
            if limit is not None and given >= limit:
                break
            if row.id in skip:
                continue
            try:
                past = decode(row.record)
            except ValueError:
                broken += 1
                continue
            given += 1
            yield row.id, past
        if broken:
            log.warning("memory: %d broken records of tenant %r were left out", broken, tenant)

    def _rows(self, tenant: str, after: int) -> Iterator[sa.Row[*tuple[Any, ...]]]:
        """A few at a time, and no transaction is open in between."""
        while True:
            query = sa.select(_T.id, _T.record, _T.learnt_at).where(_T.tenant == key(tenant), _T.id > after)
            with self._engine.connect() as connection:
                rows = connection.execute(query.order_by(_T.id).limit(_BATCH)).all()
            yield from rows
            if len(rows) < _BATCH:
                return
            after = rows[-1].id

    def newest(self, tenant: str) -> int:
        """The highest id, 0 where there is none: whatever is remembered later has a higher one."""
        return self._scalar(sa.select(sa.func.max(_T.id)).where(_T.tenant == key(tenant))) or 0

    def before_newest(self, tenant: str, count: int) -> int:
        """The id after which the newest `count` trajectories lie."""
        ids = sa.select(_T.id).where(_T.tenant == key(tenant)).order_by(_T.id.desc()).offset(count).limit(1)
        return self._scalar(ids) or 0

    @again_when_locked
    def trim(
        self,
        tenant: str,
        max_trajectories: int | None = None,
        max_age_s: float | None = None,
        max_bytes: int | None = None,
    ) -> int:
        """Delete the oldest beyond these bounds; how many. What was learnt from them stays learnt."""
        earliest = None if max_age_s is None else time.time() - max_age_s
        with self._writing(tenant) as (connection, _):
            query = sa.select(_T.id, _T.size_bytes).where(_T.tenant == key(tenant))
            count, size_bytes, cut = 0, 0, 0
            with connection.execute(query.order_by(_T.id.desc())) as rows:
                for row in rows:
                    count, size_bytes = count + 1, size_bytes + row.size_bytes
                    too_many = max_trajectories is not None and count > max_trajectories
                    if too_many or (max_bytes is not None and size_bytes > max_bytes):
                        cut = row.id
                        break
            gone = _T.id <= cut if earliest is None else sa.or_(_T.id <= cut, _T.learnt_at < earliest)
            return deleted(connection, tenant, gone)

    # Forgetting

    def forget_trajectory(self, tenant: str, trajectory: str) -> int:
        """Delete one trajectory, and what was learnt from it; how many were there."""
        return self._forget(tenant, _T.trajectory == key(trajectory))

    def forget_scope(self, tenant: str, scope: str) -> int:
        """Delete an end user's trajectories, and what was learnt from them; how many there were."""
        return self._forget(tenant, _T.scope == key(scope))

    def forget_tenant(self, tenant: str) -> int:
        """Delete everything of a tenant; how many trajectories there were."""
        return self._forget(tenant, sa.true())

    def _forget(self, tenant: str, which: sa.ColumnElement[bool]) -> int:
        """What is trimmed already may still be in the snapshot, so that goes in any case."""
        count = self._delete(tenant, which)
        if self._engine.dialect.name == "sqlite":  # the log of writes still holds what was deleted
            with suppress(sqlite3.Error), self._engine.connect() as connection:
                connection.connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return count

    @again_when_locked
    def _delete(self, tenant: str, which: sa.ColumnElement[bool]) -> int:
        with self._writing(tenant) as (connection, generation):
            connection.execute(sa.update(GENERATIONS).where(_G.tenant == key(tenant)).values(n=generation + 1))
            connection.execute(sa.delete(SNAPSHOTS).where(_S.tenant == key(tenant)))
            return deleted(connection, tenant, which)

    def generation(self, tenant: str) -> int:
        """Changes whenever something of the tenant is forgotten."""
        return self._scalar(sa.select(_G.n).where(_G.tenant == key(tenant))) or 0

    # Snapshots

    @again_when_locked
    def save_snapshot(self, tenant: str, upto: int, blob: bytes, generation: int) -> bool:
        """Keep what was learnt from ids up to `upto`; False where something was forgotten since `generation`."""
        with self._writing(tenant) as (connection, now):
            if now != generation:
                return False
            connection.execute(sa.delete(SNAPSHOTS).where(_S.tenant == key(tenant)))
            row = {"tenant": key(tenant), "made_at": time.time(), "upto": upto, "blob": blob}
            connection.execute(sa.insert(SNAPSHOTS).values(row))
            return True

    def snapshot(self, tenant: str) -> tuple[int, bytes] | None:
        """The id up to which it knows everything, and the memory's dump."""
        with self._engine.connect() as connection:
            row = connection.execute(sa.select(_S.upto, _S.blob).where(_S.tenant == key(tenant))).one_or_none()
        return None if row is None else (row.upto, row.blob)

    # All of it

    def export(self, tenant: str) -> Iterator[bytes]:
        """Every trajectory as a line of JSON with its line end, oldest first."""
        for row in self._rows(tenant, 0):
            try:
                yield to_line(decode(row.record), row.learnt_at) + b"\n"
            except ValueError:
                log.warning("memory: the broken record %d of tenant %r was left out", row.id, tenant)

    def import_(self, tenant: str, lines: Iterable[bytes | str]) -> int:
        """Keep what `export` told, all of it or nothing; how many trajectories.

        Raises:
            ConfigError: a line is none of ours.
        """
        rows, now = [], time.time()
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    past, learnt_at = from_line(line)
                    rows.append(row_of(tenant, past, now if learnt_at is None else min(learnt_at, now)))
                except ValueError as error:
                    raise ConfigError(f"line {number} is no trajectory of ours: {error}") from error
        self._put_all(tenant, rows)
        return len(rows)

    @again_when_locked
    def _put_all(self, tenant: str, rows: Iterable[dict[str, Any]]) -> None:
        with self._writing(tenant) as (connection, _):
            for row in rows:
                put(connection, row)

    def tenants(self) -> list[str]:
        """Everyone of whom something is kept."""
        with self._engine.connect() as connection:
            return sorted(connection.execute(sa.union(sa.select(_T.tenant), sa.select(_S.tenant))).scalars())

    def stats(self, tenant: str) -> Stats:
        """What is kept of a tenant."""
        count, total = sa.func.count(), sa.func.coalesce(sa.func.sum(_T.size_bytes), 0)
        scopes = sa.func.count(sa.distinct(_T.scope))
        query = sa.select(count, total, scopes, sa.func.min(_T.learnt_at), sa.func.max(_T.learnt_at))
        with self._engine.connect() as connection:
            row = connection.execute(query.where(_T.tenant == key(tenant))).one()
        return Stats(row[0], int(row[1]), row[2], row[3], row[4])

    def _scalar(self, query: sa.Select[int]) -> int | None:
        with self._engine.connect() as connection:
            return connection.execute(query).scalar_one_or_none()

    @contextmanager
    def _writing(self, tenant: str) -> Iterator[tuple[sa.Connection, int]]:
        """A transaction that has the tenant to itself, and the tenant's generation."""
        query = sa.select(_G.n).where(_G.tenant == key(tenant)).with_for_update()
        with self._writer.begin() as connection:
            now = connection.execute(query).scalar_one_or_none()
            if now is None:  # a writer that is faster makes us try again
                connection.execute(sa.insert(GENERATIONS).values(tenant=key(tenant), n=0))
            yield connection, now or 0
