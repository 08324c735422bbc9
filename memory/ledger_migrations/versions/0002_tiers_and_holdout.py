"""Where a bet ran and whom it told something; the control group. Databases without revisions may have some of these."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ADDED: tuple[tuple[str, str, Any], ...] = (
    ("bets", "tier", sa.String(4)),
    ("bets", "egress", sa.Boolean),
    ("turns", "held_out", sa.Boolean),
    ("turns", "probe_verdict", sa.String(300)),
)


def upgrade() -> None:
    inspector = sa.inspect(op.get_bind())
    there = {table: {column["name"] for column in inspector.get_columns(table)} for table in ("bets", "turns")}
    for table, name, kind in _ADDED:
        if name not in there[table]:
            op.add_column(table, sa.Column(name, kind))


def downgrade() -> None:
    for table, name, _ in _ADDED:
        op.drop_column(table, name)
