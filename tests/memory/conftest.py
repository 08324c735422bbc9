"""Ledgers on SQLite and, where a server answers, on PostgreSQL: each test in a schema of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

SERVER = "postgresql+psycopg://postgres@127.0.0.1:5432/{}?connect_timeout=3"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def postgres() -> Iterator[str]:
    """URL of an empty schema."""
    pytest.importorskip("psycopg")
    engine, name = None, f"ledger_{secrets.token_hex(6)}"
    for database in ("test", "postgres"):
        engine = sa.create_engine(SERVER.format(database))
        try:
            with engine.begin() as connection:
                connection.execute(sa.text(f"CREATE SCHEMA {name}"))
            break
        except sa.exc.OperationalError:
            engine.dispose()
    else:
        pytest.skip("no PostgreSQL on 127.0.0.1:5432")
    yield f"{engine.url.render_as_string(hide_password=False)}&options=-csearch_path%3D{name}"
    with engine.begin() as connection:
        connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
    engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'folder' / 'ledger.sqlite3'}"
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def turn() -> Callable[..., dict[str, Any]]:
    """A row of a turn."""

    def row(name: str, trajectory: str = "t", **more: Any) -> dict[str, Any]:
        whole = {
            "id": name,
            "trajectory": trajectory,
            "runtime": None,
            "model": "m",
            "began_at": 1000.0,
            "first_byte_s": 0.1,
            "call_s": None,
            "duration_s": 2.0,
            "status": 200,
            "calls": 1,
            "prompt_tokens": 10,
            "completion_tokens": 5,
            "note": "",
        }
        return {**whole, **more}

    return row


@pytest.fixture
def bet() -> Callable[..., dict[str, Any]]:
    """A row of a bet."""

    def row(name: str, turn: str, outcome: str = "hit", **more: Any) -> dict[str, Any]:
        whole = {
            "id": name,
            "turn": turn,
            "trajectory": "t",
            "at": 1000.5,
            "predictor": "probe",
            "tool": "f",
            "arguments": None,
            "name_confidence": 0.9,
            "argument_confidence": 0.8,
            "probability": 0.72,
            "verdict": "go",
            "offered_s": 0.5,
            "latency_s": 1.0,
            "waited_s": 0.25,
            "settled_s": 2.0,
            "saved_s": 0.75,
            "cost_s": 0.1,
            "outcome": outcome,
            "reason": "",
        }
        return {**whole, **more}

    return row
