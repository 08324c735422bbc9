"""A ledger reaches the newest revision from every version that was ever written, and what it held is still there."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from agentspec.errors import ConfigError
from agentspec.memory import ledger_migrations
from agentspec.memory.databases import tune_sqlite
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_migrations import VERSION_TABLE
from agentspec.memory.ledger_opening import open_engine
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.memory.ledger_tables import METADATA
from agentspec.memory.store import MemoryStore

pytestmark = pytest.mark.anyio

OLD = {
    "turns": [
        {"id": "a", "trajectory": "t", "model": "m", "began_at": 1000.0, "duration_s": 2.0, "status": 200, "calls": 1},
        {"id": "b", "trajectory": "t", "model": "m", "began_at": 1005.0, "duration_s": 1.0, "status": 500, "calls": 0},
    ],
    "probes": [{"id": 7, "turn": "a", "started_s": 0.5, "prompt_tokens": 3, "completion_tokens": 4}],
    "bets": [
        {"id": "x", "turn": "a", "predictor": "p", "tool": "f", "outcome": "hit", "saved_s": 0.5, "offered_s": 0.1},
        {"id": "y", "turn": "a", "predictor": "p", "tool": "f", "outcome": "miss", "latency_s": 0.7, "offered_s": 0.2},
    ],
    "claims": [{"id": 3, "turn": "a", "tool": "f", "bet": "x", "outcome": "hit", "began_s": 1.5, "waited_s": 0.1}],
}
LATER = {"tier": "VARCHAR(4)", "egress": "BOOLEAN"}, {"held_out": "BOOLEAN", "probe_verdict": "VARCHAR(300)"}


def engine_of(database: str) -> sa.Engine:
    if database.startswith("sqlite"):
        Path(database.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(database)
    if database.startswith("sqlite"):
        tune_sqlite(engine)
    return engine


def write_old(database: str, version: str) -> None:
    """A ledger as it was written before there were revisions; `version`: first, tiers or holdout."""
    engine = engine_of(database)
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(Path(ledger_migrations.__file__).parent))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(sa.text(f"DROP TABLE {VERSION_TABLE}"))
        added = [("bets", LATER[0]), ("turns", LATER[1])][: ("first", "tiers", "holdout").index(version)]
        for table, columns in added:
            for name, kind in columns.items():
                connection.execute(sa.text(f"ALTER TABLE {table} ADD COLUMN {name} {kind}"))
        for table, rows in OLD.items():
            there = sa.Table(table, sa.MetaData(), autoload_with=connection)
            for row in rows:
                connection.execute(sa.insert(there).values(row))
    engine.dispose()


def differences(database: str) -> list[Any]:
    engine = engine_of(database)
    with engine.connect() as connection:
        ours = {table.name for table in METADATA.sorted_tables}

        def counts(what: Any, name: str | None, kind: str, *_: Any) -> bool:
            return kind != "table" or name in ours

        options = {"version_table": VERSION_TABLE, "include_object": counts}
        context = MigrationContext.configure(connection, opts=options)
        found = compare_metadata(context, METADATA)
        assert context.get_current_heads() == ("0003",)
    engine.dispose()
    return found


def test_the_revisions_lead_to_the_tables_that_the_code_knows(database: str) -> None:
    open_engine(database).dispose()
    assert differences(database) == []


@pytest.mark.parametrize("version", ["first", "tiers", "holdout"])
def test_a_ledger_of_before_is_migrated_and_keeps_its_rows(database: str, version: str) -> None:
    write_old(database, version)
    reader = LedgerReader(database)
    assert differences(database) == []
    (run,) = reader.runs()
    assert (run["turns"], run["errors"], run["calls"], run["hit"], run["miss"]) == (2, 1, 1, 1, 1)
    assert (run["claims"], run["served"], run["probes"], run["probe_tokens"], run["spans"]) == (1, 1, 1, 7, 6)
    assert (run["began_at"], run["ended_at"], run["saved_s"], run["wasted_s"]) == (1000.0, 1006.0, 0.5, 0.7)
    first, second = reader.turns("t")
    assert [bet["at"] for bet in first["bets"]] == [1000.1, 1000.2]
    assert [claim["id"] for claim in first["claims"]] == ["3"]
    assert [probe["id"] for probe in first["probes"]] == ["7"]
    assert second["bets"] == []
    assert reader.outcomes() == {"hit": 1, "miss": 1}


async def test_what_was_migrated_goes_on(database: str, turn: Any, bet: Any) -> None:
    write_old(database, "holdout")
    ledger = SqlLedger(database)
    ledger.record("turns", turn("c", began_at=1010.0))
    ledger.record("bets", bet("z", "c"))
    await ledger.close()
    assert ledger.dropped == 0
    (run,) = LedgerReader(database).runs()
    assert (run["turns"], run["hit"], run["ended_at"]) == (3, 2, 1012.0)


def test_a_strangers_tables_are_refused_and_left_alone(database: str) -> None:
    engine = engine_of(database)
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE turns (id INTEGER, who VARCHAR(10))"))
    with pytest.raises(ConfigError, match=r"no ledger's .no column"):
        LedgerReader(database)
    assert sa.inspect(engine).get_table_names() == ["turns"]
    engine.dispose()


def test_a_newer_revision_is_refused(database: str) -> None:
    open_engine(database).dispose()
    engine = engine_of(database)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    engine.dispose()
    with pytest.raises(ConfigError, match=r"setting database: .* newer agentspec .revision '9999'"):
        LedgerReader(database)


def test_many_that_find_an_old_ledger_at_once_all_get_it(database: str) -> None:
    write_old(database, "tiers")
    barrier, failed = threading.Barrier(4), []

    def start() -> None:
        barrier.wait()
        try:
            LedgerReader(database).close()
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert LedgerReader(database).runs()[0]["turns"] == 2


def test_it_may_share_a_database_with_memory(database: str) -> None:
    open_engine(database).dispose()
    MemoryStore(database).close()
    assert LedgerReader(database).runs() == []
