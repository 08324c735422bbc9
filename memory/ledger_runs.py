"""A run's line in `runs`, kept up from the rows that are written: what each adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from agentspec.memory.ledger_tables import OUTCOMES, RUNS

Row = Mapping[str, Any]

SIZE_BYTES = {"turns": 900, "probes": 500, "predictions": 600, "bets": 800, "claims": 500, "contents": 200}
"""About what a row takes on disk with its indexes, its long texts (`arguments`, contents) apart."""

_LONG = {
    "predictions": ("arguments",),
    "bets": ("arguments",),
    "claims": ("arguments",),
    "contents": ("said", "answer", "reasoning", "calls"),
}
_SERVED = ("hit", "joined")
_SUMS = tuple(column.name for column in RUNS.c if column.server_default is not None and column.name != "tenant")
_FACTS = ("session", "model", "endpoint", "runtime", "held_out")

COLUMNS = ("trajectory", "tenant", *_FACTS, "began_at", "ended_at", *_SUMS)
_NOTHING: dict[str, Any] = {**dict.fromkeys(COLUMNS), "tenant": "", **dict.fromkeys(_SUMS, 0)}


def sums_of(rows: Iterable[tuple[str, Row]]) -> list[dict[str, Any]]:
    """What these rows add to their runs: a row of `runs` for each, by name, so that writers never deadlock."""
    found: dict[str, dict[str, Any]] = {}
    for table, row in rows:
        trajectory = row.get("trajectory")
        if trajectory is None or table not in _ADDS:
            continue
        run = found.get(trajectory)
        if run is None:
            run = found[trajectory] = _NOTHING | {"trajectory": trajectory}
        run["spans"] += table != "contents"
        run["size_bytes"] += SIZE_BYTES[table] + sum(len(row.get(name) or "") for name in _LONG.get(table, ()))
        run["tenant"] = run["tenant"] or row.get("tenant") or ""
        _ADDS[table](run, row)
    return [found[trajectory] for trajectory in sorted(found) if found[trajectory]["ended_at"] is not None]


def _lasted(run: dict[str, Any], at: float | None, until: float | None) -> None:
    if at is None:
        return
    until = at if until is None else until
    run["began_at"] = at if run["began_at"] is None else min(run["began_at"], at)
    run["ended_at"] = until if run["ended_at"] is None else max(run["ended_at"], until)


def _turn(run: dict[str, Any], row: Row) -> None:
    _lasted(run, row["began_at"], row["began_at"] + (row.get("duration_s") or 0.0))
    for name in _FACTS:
        if row.get(name) is not None:
            run[name] = row[name]
    run["turns"] += 1
    run["errors"] += row.get("status") != 200 or bool(row.get("note"))
    for name in ("calls", "prompt_tokens", "completion_tokens", "cost_usd"):
        run[name] += row.get(name) or 0


def _probe(run: dict[str, Any], row: Row) -> None:
    _lasted(run, row.get("at"), None)
    run["probes"] += 1
    run["probe_tokens"] += (row.get("prompt_tokens") or 0) + (row.get("completion_tokens") or 0)
    run["probe_cost_usd"] += row.get("cost_usd") or 0.0


def _prediction(run: dict[str, Any], row: Row) -> None:
    _lasted(run, row.get("at"), None)
    run["predictions"] += 1


def _bet(run: dict[str, Any], row: Row) -> None:
    _lasted(run, row.get("at"), None)
    outcome = row["outcome"]
    if outcome in OUTCOMES:
        run[outcome] += 1
    run["saved_s"] += row.get("saved_s") or 0.0
    run["wasted_s"] += row.get("wasted_s") or 0.0
    run["egress"] += bool(row.get("egress")) and outcome not in (*_SERVED, "vetoed")


def _claim(run: dict[str, Any], row: Row) -> None:
    at = row.get("at")
    _lasted(run, at, None if at is None else at + (row.get("waited_s") or 0.0))
    run["claims"] += 1
    run["served"] += row["outcome"] in _SERVED


def _content(run: dict[str, Any], row: Row) -> None:
    _lasted(run, row.get("at"), None)


_ADDS: Mapping[str, Callable[[dict[str, Any], Row], None]] = {
    "turns": _turn,
    "probes": _probe,
    "predictions": _prediction,
    "bets": _bet,
    "claims": _claim,
    "contents": _content,
}


def upsert(dialect: str) -> sa.Insert:
    """The statement that adds such a row to what is there."""
    insert = postgresql.insert(RUNS) if dialect == "postgresql" else sqlite.insert(RUNS)
    new, old = insert.excluded, RUNS.c
    sets: dict[str, sa.ColumnElement[Any]] = {name: old[name] + new[name] for name in _SUMS}
    sets |= {name: sa.func.coalesce(new[name], old[name]) for name in _FACTS}
    sets["tenant"] = sa.case((new.tenant != sa.literal_column("''"), new.tenant), else_=old.tenant)
    sets["began_at"] = sa.case((new.began_at < old.began_at, new.began_at), else_=old.began_at)
    sets["ended_at"] = sa.case((new.ended_at > old.ended_at, new.ended_at), else_=old.ended_at)
    return insert.on_conflict_do_update(index_elements=[old.trajectory], set_=sets)
