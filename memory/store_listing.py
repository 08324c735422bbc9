"""What the store keeps, as lists for people; no content."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from agentspec.memory.migrations.tables import TRAJECTORIES, key

_T = TRAJECTORIES.c


class Listing:
    """Lists trajectories and end users of a tenant. Every method may block, and raises SQLAlchemy's errors."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def trajectories(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """The newest: `trajectory`, `scope`, `learnt_at` (Unix time), `messages`, `size_bytes`."""
        columns = (_T.trajectory, _T.scope, _T.learnt_at, _T.messages, _T.size_bytes)
        query = sa.select(*columns).where(_T.tenant == key(tenant)).order_by(_T.id.desc()).limit(limit)
        return self._rows(query)

    def scopes(self, tenant: str, limit: int) -> list[dict[str, Any]]:
        """End users with values of their own, the latest first: `scope`, `trajectories`, `newest_at`, `size_bytes`."""
        newest = sa.func.max(_T.learnt_at).label("newest_at")
        query = (
            sa.select(
                _T.scope,
                sa.func.count().label("trajectories"),
                newest,
                sa.cast(sa.func.sum(_T.size_bytes), sa.BigInteger).label("size_bytes"),
            )
            .where(_T.tenant == key(tenant), _T.scope != _T.trajectory)
            .group_by(_T.scope)
        )
        return self._rows(query.order_by(newest.desc()).limit(limit))

    def _rows(self, query: sa.Select[*tuple[Any, ...]]) -> list[dict[str, Any]]:
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]
