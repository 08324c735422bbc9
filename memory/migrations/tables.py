"""The tables of memory as this version knows them (the revisions in `versions` lead here), and what is a row."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import sqlalchemy as sa

from agentspec.memory.records import encode
from agentspec.recollection import Past

METADATA = sa.MetaData()
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")

TRAJECTORIES = sa.Table(
    "memory_trajectories",
    METADATA,
    sa.Column("id", _ID, primary_key=True, autoincrement=True),
    sa.Column("tenant", sa.String(200), nullable=False),
    sa.Column("trajectory", sa.String(200), nullable=False),
    sa.Column("scope", sa.String(200), nullable=False),
    sa.Column("learnt_at", sa.Float, nullable=False),
    sa.Column("messages", sa.Integer, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Column("record", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("tenant", "trajectory", name="memory_trajectories_once"),
    sa.Index("memory_trajectories_in_order", "tenant", "id"),
    sa.Index("memory_trajectories_of_scope", "tenant", "scope"),
    sqlite_autoincrement=True,
)
"""A trajectory as far as it went; one that has grown is a new row with a new id. `learnt_at`: Unix time in seconds."""

SNAPSHOTS = sa.Table(
    "memory_snapshots",
    METADATA,
    sa.Column("tenant", sa.String(200), primary_key=True),
    sa.Column("made_at", sa.Float, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("blob", sa.LargeBinary, nullable=False),
)
"""What a memory had learnt from all trajectories with ids up to `upto`."""

GENERATIONS = sa.Table(
    "memory_generations",
    METADATA,
    sa.Column("tenant", sa.String(200), primary_key=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)
"""How often something of the tenant was forgotten: who has learnt under another number starts afresh."""


def row_of(tenant: str, past: Past, learnt_at: float) -> dict[str, Any]:
    """A trajectory as a row. Raises ValueError where it is too long to be kept."""
    record = encode(past)
    return {
        "tenant": key(tenant),
        "trajectory": key(past.trajectory),
        "scope": key(past.scope),
        "learnt_at": learnt_at,
        "messages": len(past.history),
        "size_bytes": len(record),
        "record": record,
    }


def put(connection: sa.Connection, row: dict[str, Any]) -> int | None:
    """Insert the row in place of a shorter version; its id, None where a longer one is there."""
    same = sa.and_(TRAJECTORIES.c.tenant == row["tenant"], TRAJECTORIES.c.trajectory == row["trajectory"])
    there = connection.execute(
        sa.select(TRAJECTORIES.c.id, TRAJECTORIES.c.messages, TRAJECTORIES.c.record).where(same)
    ).one_or_none()
    if there is not None:
        if there.messages > row["messages"]:
            return None
        if there.record == row["record"]:
            return int(there.id)
        connection.execute(sa.delete(TRAJECTORIES).where(TRAJECTORIES.c.id == there.id))
    return int(connection.execute(sa.insert(TRAJECTORIES).values(row).returning(TRAJECTORIES.c.id)).scalar_one())


def deleted(connection: sa.Connection, tenant: str, which: sa.ColumnElement[bool]) -> int:
    """Delete trajectories of a tenant; how many."""
    return connection.execute(sa.delete(TRAJECTORIES).where(TRAJECTORIES.c.tenant == key(tenant), which)).rowcount


def key(text: str) -> str:
    """The text as a key: itself, or where a database would not take it so, what can be read of it and its hash."""
    if len(text) <= 200 and _PLAIN.fullmatch(text):
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{_STRANGE.sub('?', text[:160])}~{digest}"


_PLAIN = re.compile(r"[^\x00\ud800-\udfff]*")
_STRANGE = re.compile(r"[\x00\ud800-\udfff]")
