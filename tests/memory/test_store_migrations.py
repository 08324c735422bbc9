"""Memory's database reaches the newest revision from wherever it is, however many open it at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from agentspec.calls import ToolCall
from agentspec.errors import ConfigError
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.memory.migrations import VERSION_TABLE
from agentspec.memory.migrations.opening import ADVISORY_LOCK
from agentspec.memory.migrations.tables import METADATA
from agentspec.memory.store import MemoryStore
from agentspec.recollection import Past
from agentspec.trajectory import Said

PAST = Past("t", "s", (Said("assistant", bytes(16), (ToolCall("f", {}),)),))


def test_the_revisions_lead_to_the_tables_that_the_code_knows(database: str) -> None:
    MemoryStore(database).close()
    engine = sa.create_engine(database)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []
        assert context.get_current_heads() == ("0001",)
    engine.dispose()


def test_a_database_that_is_opened_again_is_as_it_was(database: str) -> None:
    MemoryStore(database).remember("a", PAST)
    assert [past for _, past in MemoryStore(database).pasts("a")] == [PAST]


def test_ids_are_never_used_again(database: str) -> None:
    store = MemoryStore(database)
    first = store.remember("a", PAST)
    store.forget_tenant("a")
    again = MemoryStore(database).remember("a", PAST)
    assert first is not None
    assert again is not None
    assert again > first


def test_it_may_share_a_database_with_the_ledger(database: str) -> None:
    LedgerReader(database)
    MemoryStore(database).remember("a", PAST)
    assert LedgerReader(database).trajectories() == []


def test_a_newer_revision_is_refused_and_left_alone(database: str) -> None:
    MemoryStore(database).remember("a", PAST)
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(ConfigError, match=r"written by a newer agentspec .revision '9999'") as caught:
        MemoryStore(database)
    assert "\n" not in str(caught.value)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM memory_trajectories")).scalar_one() == 1
    engine.dispose()


def test_many_openers_at_once_all_succeed(database: str) -> None:
    barrier, failed = threading.Barrier(4), []

    def start() -> None:
        barrier.wait()
        try:
            MemoryStore(database).close()
        except Exception as error:
            failed.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_processes_that_open_it_at_once_all_succeed(database: str) -> None:
    code = "import sys; from agentspec.memory.store import MemoryStore; MemoryStore(sys.argv[1])"
    openers = [
        subprocess.Popen([sys.executable, "-c", code, database], stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [opener.communicate(timeout=100)[1] for opener in openers] == ["", "", ""]


def test_an_opener_waits_for_the_one_before(postgres: str) -> None:
    engine = sa.create_engine(postgres)
    opener = threading.Thread(target=lambda: MemoryStore(postgres).close())
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(ADVISORY_LOCK)))
        opener.start()
        opener.join(1.0)
        assert opener.is_alive()
    opener.join(20)
    assert not opener.is_alive()
    engine.dispose()


def test_an_odd_path_is_a_path(tmp_path: Path) -> None:
    MemoryStore(f"sqlite:///{tmp_path / '100% odd' / 'm m.sqlite3'}").remember("a", PAST)
