"""Turns, probes, bets, claims."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("trajectory", sa.String(200), index=True, nullable=False),
        sa.Column("runtime", sa.String(16)),
        sa.Column("model", sa.String(200)),
        sa.Column("began_at", sa.Float, index=True, nullable=False),
        sa.Column("first_byte_s", sa.Float),
        sa.Column("call_s", sa.Float),
        sa.Column("duration_s", sa.Float),
        sa.Column("status", sa.Integer),
        sa.Column("calls", sa.Integer),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("note", sa.String(300)),
    )
    op.create_table(
        "probes",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("turn", sa.String(32), index=True, nullable=False),
        sa.Column("started_s", sa.Float),
        sa.Column("duration_s", sa.Float),
        sa.Column("prompt_tokens", sa.Integer),
        sa.Column("completion_tokens", sa.Integer),
        sa.Column("outcome", sa.String(300)),
    )
    _create_bets()
    _create_claims()


def _create_claims() -> None:
    op.create_table(
        "claims",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("turn", sa.String(32), index=True),
        sa.Column("tool", sa.String(200), nullable=False),
        sa.Column("effect", sa.String(12)),
        sa.Column("bet", sa.String(32)),
        sa.Column("outcome", sa.String(12), nullable=False),
        sa.Column("began_s", sa.Float),
        sa.Column("waited_s", sa.Float),
        sa.Column("latency_s", sa.Float),
        sa.Column("reason", sa.String(300)),
    )


def _create_bets() -> None:
    op.create_table(
        "bets",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("turn", sa.String(32), index=True, nullable=False),
        sa.Column("predictor", sa.String(40), nullable=False),
        sa.Column("tool", sa.String(200), nullable=False),
        sa.Column("arguments", sa.Text),
        sa.Column("name_confidence", sa.Float),
        sa.Column("argument_confidence", sa.Float),
        sa.Column("probability", sa.Float),
        sa.Column("verdict", sa.String(300)),
        sa.Column("offered_s", sa.Float),
        sa.Column("latency_s", sa.Float),
        sa.Column("waited_s", sa.Float),
        sa.Column("settled_s", sa.Float),
        sa.Column("saved_s", sa.Float),
        sa.Column("cost_s", sa.Float),
        sa.Column("outcome", sa.String(12), index=True, nullable=False),
        sa.Column("reason", sa.String(300)),
    )


def downgrade() -> None:
    for table in ("claims", "bets", "probes", "turns"):
        op.drop_table(table)
