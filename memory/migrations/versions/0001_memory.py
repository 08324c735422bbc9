"""Trajectories, snapshots, generations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "memory_trajectories",
        sa.Column("id", _ID, primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String(200), nullable=False),
        sa.Column("trajectory", sa.String(200), nullable=False),
        sa.Column("scope", sa.String(200), nullable=False),
        sa.Column("learnt_at", sa.Float, nullable=False),
        sa.Column("messages", sa.Integer, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("tenant", "trajectory", name="memory_trajectories_once"),
        sqlite_autoincrement=True,
    )
    op.create_index("memory_trajectories_in_order", "memory_trajectories", ["tenant", "id"])
    op.create_index("memory_trajectories_of_scope", "memory_trajectories", ["tenant", "scope"])
    op.create_table(
        "memory_snapshots",
        sa.Column("tenant", sa.String(200), primary_key=True),
        sa.Column("made_at", sa.Float, nullable=False),
        sa.Column("upto", sa.BigInteger, nullable=False),
        sa.Column("blob", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "memory_generations",
        sa.Column("tenant", sa.String(200), primary_key=True),
        sa.Column("n", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in ("memory_generations", "memory_snapshots", "memory_trajectories"):
        op.drop_table(table)
