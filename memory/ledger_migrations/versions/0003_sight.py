"""Runs summed up, predictions, contents; whose a row is and when it was; costs, tokens, thresholds, trace contexts.

Rows of before get what can be told of them: their trajectory, their time and their runs.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_NAME = sa.String(200)
_WORDS = sa.String(300)
_OUTCOMES = ("hit", "joined", "miss", "stale", "failed", "vetoed", "unclaimed")
_COUNTS = ("turns", "errors", "calls", "probes", "predictions", *_OUTCOMES, "egress", "claims", "served", "spans")
_BIG_COUNTS = ("prompt_tokens", "completion_tokens", "probe_tokens", "size_bytes")
_SUMS = ("saved_s", "wasted_s", "cost_usd", "probe_cost_usd")


def _owner() -> tuple[sa.Column[Any], ...]:
    return sa.Column("trajectory", _NAME), sa.Column("tenant", _NAME), sa.Column("at", sa.Float)


def upgrade() -> None:
    _create_runs()
    _create_predictions_and_contents()
    _widen_turns()
    _widen_probes()
    _widen_bets()
    _widen_claims()
    _tell_owners()
    _sum_up()


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("trajectory", _NAME, primary_key=True),
        sa.Column("tenant", _NAME, nullable=False, server_default=""),
        sa.Column("session", _NAME),
        sa.Column("model", _NAME),
        sa.Column("endpoint", _WORDS),
        sa.Column("runtime", sa.String(16)),
        sa.Column("held_out", sa.Boolean),
        sa.Column("began_at", sa.Float, nullable=False),
        sa.Column("ended_at", sa.Float, nullable=False),
        *(sa.Column(name, sa.Integer, nullable=False, server_default="0") for name in _COUNTS),
        *(sa.Column(name, sa.BigInteger, nullable=False, server_default="0") for name in _BIG_COUNTS),
        *(sa.Column(name, sa.Float, nullable=False, server_default="0") for name in _SUMS),
    )
    op.create_index("runs_latest", "runs", ["ended_at"])
    op.create_index("runs_of_tenant", "runs", ["tenant", "ended_at"])


def _create_predictions_and_contents() -> None:
    op.create_table(
        "predictions",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("turn", sa.String(32), nullable=False),
        *_owner(),
        sa.Column("predictor", sa.String(40), nullable=False),
        sa.Column("tool", _NAME),
        sa.Column("arguments", sa.Text),
        *(sa.Column(name, sa.Float) for name in ("confidence", "probability", "rests_on", "offered_s")),
        sa.Column("verdict", _WORDS),
        sa.Column("bet", sa.String(32)),
        sa.Column("came_true", sa.Boolean),
    )
    op.create_index("predictions_of_turn", "predictions", ["turn"])
    op.create_index("predictions_of_tenant", "predictions", ["tenant", "at"])
    op.create_table(
        "contents",
        sa.Column("turn", sa.String(32), primary_key=True),
        *(sa.Column(name, sa.Text) for name in ("said", "answer", "reasoning", "calls")),
    )


def _widen_turns() -> None:
    texts = {"tenant": 200, "session": 200, "api": 40, "endpoint": 300, "engine": 16, "finish": 40, "traceparent": 55}
    for name, length in {**texts, "tracestate": 512}.items():
        op.add_column("turns", sa.Column(name, sa.String(length)))
    for name in ("first_token_s", "reasoning_s", "cost_usd"):
        op.add_column("turns", sa.Column(name, sa.Float))
    op.add_column("turns", sa.Column("stream", sa.Boolean))
    for name in ("drafts_taken", "drafted_tokens", "accepted_tokens"):
        op.add_column("turns", sa.Column(name, sa.Integer))
    op.add_column("turns", sa.Column("draft_saved_s", sa.Float))
    op.drop_index("ix_turns_trajectory", "turns")
    op.drop_index("ix_turns_began_at", "turns")
    op.create_index("turns_in_order", "turns", ["trajectory", "began_at"])
    op.create_index("turns_latest", "turns", ["began_at"])


def _ids_as_text(table: str) -> None:
    """Rows get their ids where they are made, not where they are written."""
    op.drop_index(f"ix_{table}_turn", table)
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"ALTER TABLE {table} ALTER COLUMN id DROP DEFAULT")
        op.execute(f"ALTER TABLE {table} ALTER COLUMN id TYPE VARCHAR(32) USING id::varchar")
        op.execute(f"DROP SEQUENCE IF EXISTS {table}_id_seq")
        return
    with op.batch_alter_table(table, recreate="always") as batch:
        batch.alter_column("id", existing_type=sa.Integer(), type_=sa.String(32), existing_nullable=False)


def _widen_probes() -> None:
    _ids_as_text("probes")
    _add_columns("probes", *_owner(), sa.Column("model", _NAME), sa.Column("cost_usd", sa.Float))
    _add_columns("probes", sa.Column("offered_chars", sa.Integer))
    op.create_index("probes_of_turn", "probes", ["turn"])


def _widen_bets() -> None:
    _add_columns("bets", *_owner(), *(sa.Column(name, sa.Float) for name in ("threshold", "expected_s", "wasted_s")))
    _add_columns("bets", sa.Column("effect", sa.String(12)), sa.Column("ran", sa.Boolean))
    _add_columns("bets", sa.Column("tokens", sa.Integer))
    op.drop_index("ix_bets_turn", "bets")
    op.drop_index("ix_bets_outcome", "bets")
    op.create_index("bets_of_turn", "bets", ["turn"])
    op.create_index("bets_of_tenant", "bets", ["tenant", "at"])


def _widen_claims() -> None:
    _ids_as_text("claims")
    _add_columns("claims", *_owner(), sa.Column("arguments", sa.Text))
    op.create_index("claims_of_turn", "claims", ["turn"])
    op.create_index("claims_of_tenant", "claims", ["tenant", "at"])


def _add_columns(table: str, *columns: sa.Column[Any]) -> None:
    for column in columns:
        op.add_column(table, column)


def _tell_owners() -> None:
    for table, moment in (("probes", "started_s"), ("bets", "offered_s"), ("claims", "began_s")):
        of_turn = f"FROM turns WHERE turns.id = {table}.turn"
        op.execute(
            f"UPDATE {table} SET trajectory = (SELECT turns.trajectory {of_turn}),"
            f" at = (SELECT turns.began_at {of_turn}) + coalesce({moment}, 0)"
        )
    op.execute("UPDATE bets SET ran = (outcome <> 'vetoed')")
    kept = "outcome IN ('hit', 'joined', 'vetoed')"
    op.execute(f"UPDATE bets SET wasted_s = CASE WHEN {kept} THEN 0 ELSE coalesce(latency_s, 0) END")


def _sum_up() -> None:
    bad = "CASE WHEN status = 200 AND coalesce(note, '') = '' THEN 0 ELSE 1 END"
    op.execute(
        "INSERT INTO runs (trajectory, model, runtime, held_out, began_at, ended_at,"
        " turns, errors, calls, prompt_tokens, completion_tokens, spans)"
        " SELECT trajectory, max(model), max(runtime), max(CASE WHEN held_out THEN 1 ELSE 0 END) = 1,"
        f" min(began_at), max(began_at + coalesce(duration_s, 0)), count(*), sum({bad}), coalesce(sum(calls), 0),"
        " coalesce(sum(prompt_tokens), 0), coalesce(sum(completion_tokens), 0), count(*)"
        " FROM turns GROUP BY trajectory"
    )
    tokens = "sum(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0))"
    _add_up("probes", {"probes": "count(*)", "probe_tokens": tokens})
    outcomes = {name: f"sum(CASE WHEN outcome = '{name}' THEN 1 ELSE 0 END)" for name in _OUTCOMES}
    sums = {"saved_s": "sum(coalesce(saved_s, 0))", "wasted_s": "sum(coalesce(wasted_s, 0))"}
    told = "sum(CASE WHEN egress AND outcome NOT IN ('hit', 'joined', 'vetoed') THEN 1 ELSE 0 END)"
    _add_up("bets", {**outcomes, **sums, "egress": told})
    served = "sum(CASE WHEN outcome IN ('hit', 'joined') THEN 1 ELSE 0 END)"
    _add_up("claims", {"claims": "count(*)", "served": served})
    op.execute("UPDATE runs SET size_bytes = 400 * spans")


def _add_up(table: str, columns: dict[str, str]) -> None:
    """Bring a table's sums into the runs, in one pass over it."""
    sums = ", ".join(f"{expression} AS {name}" for name, expression in columns.items())
    op.execute(
        f"CREATE TEMPORARY TABLE summed AS SELECT trajectory, count(*) AS n, {sums} FROM {table}"
        " WHERE trajectory IS NOT NULL GROUP BY trajectory"
    )
    op.execute("CREATE INDEX summed_trajectory ON summed (trajectory)")
    one = "FROM summed WHERE summed.trajectory = runs.trajectory"
    sets = ", ".join(f"{name} = (SELECT summed.{name} {one})" for name in columns)
    op.execute(
        f"UPDATE runs SET {sets}, spans = spans + (SELECT summed.n {one})"
        " WHERE trajectory IN (SELECT trajectory FROM summed)"
    )
    op.execute("DROP TABLE summed")


def downgrade() -> None:
    raise NotImplementedError("rows would be lost; keep a copy of the database instead")
