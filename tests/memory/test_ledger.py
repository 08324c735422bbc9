"""The books: what was written is read, and whatever happens to the database, no turn is hurt."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from agentspec.errors import ConfigError
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_reader import LedgerReader

pytestmark = pytest.mark.anyio
Row = Callable[..., dict[str, Any]]


async def written(database: str, *rows: tuple[str, dict[str, Any]]) -> SqlLedger:
    ledger = SqlLedger(database)
    for table, row in rows:
        ledger.record(table, row)
    await ledger.close()
    return ledger


async def test_a_trajectory_is_read_as_it_was_written(database: str, turn: Row, bet: Row) -> None:
    probe = {"id": "p", "turn": "b", "started_s": 0.1, "duration_s": 0.2, "prompt_tokens": 5, "outcome": "predicted"}
    claim = {"id": "c", "turn": "b", "tool": "f", "outcome": "hit", "began_s": 1.0, "waited_s": 0.25, "latency_s": 1.0}
    await written(
        database,
        ("turns", turn("b", began_at=1005.0)),
        ("turns", turn("a")),
        ("turns", turn("c", "other", began_at=900.0)),
        ("bets", bet("x", "b", offered_s=0.7)),
        ("bets", bet("y", "b", "vetoed", saved_s=0.0, offered_s=0.6)),
        ("bets", bet("z", "c", "miss", trajectory="other", saved_s=0.0, at=900.0)),
        ("probes", probe),
        ("claims", claim),
    )
    reader = LedgerReader(database)
    turns = reader.turns("t")
    assert [row["id"] for row in turns] == ["a", "b"]
    assert [row["id"] for row in turns[1]["bets"]] == ["y", "x"]
    assert [row["outcome"] for row in turns[1]["probes"]] == ["predicted"]
    assert [row["tool"] for row in turns[1]["claims"]] == ["f"]
    assert turns[0]["bets"] == turns[0]["probes"] == turns[0]["claims"] == turns[0]["predictions"] == []
    first, second = reader.trajectories()
    assert (first["trajectory"], first["turns"], first["calls"]) == ("t", 2, 2)
    assert (first["began_at"], first["ended_at"], first["saved_s"]) == (1000.0, 1007.0, 0.75)
    assert (first["bets"], second["bets"]) == ({"hit": 1, "vetoed": 1}, {"miss": 1})
    assert reader.outcomes() == {"hit": 1, "vetoed": 1, "miss": 1}
    assert (len(reader.bets()), len(reader.claims())) == (3, 1)
    assert [row["trajectory"] for row in reader.trajectories(1)] == ["t"]


async def test_a_trajectory_is_found_by_how_it_begins(database: str, turn: Row) -> None:
    names = ["abc", "abd", "a%", "_", "per cent"]
    rows = [("turns", turn(str(n), name, began_at=float(n))) for n, name in enumerate(names)]
    await written(database, *rows)
    reader = LedgerReader(database)
    found = [reader.find(prefix) for prefix in ("ab", "abc", "a%", "_", "%", "nope")]
    assert found == ["abd", "abc", "a%", "_", None, None]


async def test_long_texts_are_cut_and_text_of_any_kind_is_kept(database: str, turn: Row, bet: Row) -> None:
    ledger = await written(
        database,
        ("turns", turn("a", "s" * 500, model="\u00fc\U0001f600" * 500, note="'; DROP TABLE turns; --" * 50)),
        ("bets", bet("x", "a", reason="r" * 9999, arguments='{"a": "' + "b" * 100_000 + '"}')),
    )
    assert ledger.dropped == 0
    reader = LedgerReader(database)
    assert len(reader.bets()[0]["arguments"]) > 100_000
    assert reader.trajectories()[0]["turns"] == 1


@pytest.mark.parametrize(
    "bad",
    [
        {"model": "lone \ud800 surrogate"},
        {"prompt_tokens": 10**30},
        {"prompt_tokens": 2**40},
        {"note": "nul \0 byte"},
        {"duration_s": "soon"},
        {"trajectory": None},
        {"id": "good0"},
        {"no_such_column": 1},
        {"model": {"a": 1}},
        {"model": object()},
        {"duration_s": float("nan")},
    ],
)
async def test_a_row_that_does_not_fit_takes_no_other_row_with_it(
    database: str, turn: Row, bad: dict[str, Any]
) -> None:
    ledger = SqlLedger(database)
    for n in range(3):
        ledger.record("turns", turn(f"good{n}"))
    ledger.record("turns", turn("bad", **bad) if "id" not in bad else turn(**{"name": "good0"}))
    for n in range(3, 6):
        ledger.record("turns", turn(f"good{n}"))
    await ledger.close()
    kept = {row["id"] for row in LedgerReader(database).turns("t")}
    assert {f"good{n}" for n in range(6)} <= kept
    assert ledger.dropped <= 1
    assert not ledger._batches.thread.is_alive()


async def test_rows_of_an_unknown_table_are_dropped_and_counted(database: str) -> None:
    ledger = await written(database, ("nonsense", {"id": 1}))
    assert ledger.dropped == 1


async def test_a_queue_that_is_full_drops_and_counts_and_never_waits(tmp_path: Path, turn: Row) -> None:
    file = tmp_path / "l.sqlite3"
    ledger = SqlLedger(f"sqlite:///{file}", max_queued=5)
    with sqlite3.connect(file, isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        for n in range(1000):
            ledger.record("turns", turn(str(n)))
        assert time.monotonic() - began < 1.0
        other.execute("COMMIT")
    await ledger.close()
    kept = len(LedgerReader(f"sqlite:///{file}").turns("t"))
    assert kept >= 5
    assert kept + ledger.dropped == 1000


async def test_a_database_that_is_taken_away_costs_rows_and_one_line_each_time(
    tmp_path: Path, turn: Row, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "l.sqlite3"
    ledger = SqlLedger(f"sqlite:///{file}")
    with sqlite3.connect(file) as other:
        other.execute("DROP TABLE turns")
    with caplog.at_level(logging.WARNING):
        ledger.record("turns", turn("a"))
        await ledger.close()
    assert ledger.dropped == 1
    assert all("\n" not in record.getMessage() and not record.exc_info for record in caplog.records)


async def test_closing_twice_and_writing_after_the_end_hurts_nobody(tmp_path: Path, turn: Row) -> None:
    ledger = SqlLedger(f"sqlite:///{tmp_path / 'l.sqlite3'}", max_queued=3)
    await ledger.close()
    for n in range(10):
        ledger.record("turns", turn(str(n)))
    assert ledger.dropped >= 7


async def test_two_proxies_that_start_together_both_start(database: str) -> None:
    barrier, failed = threading.Barrier(6), []

    def start() -> None:
        barrier.wait()
        try:
            LedgerReader(database)
        except ConfigError as error:
            failed.append(str(error))

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize(
    "url",
    [
        "nonsense",
        "",
        "nosuch://x/y",
        "sqlite:////proc/nope/l.sqlite3",
        "sqlite:////dev/null/l.sqlite3",
        "postgresql+psycopg://postgres@127.0.0.1:1/test?connect_timeout=2",
        "postgresql+psycopg://postgres:hush@127.0.0.1:1/test?connect_timeout=2",
    ],
)
def test_a_bad_database_url_is_one_clear_line_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        SqlLedger(url)
    assert str(caught.value).startswith("setting database: ")
    assert "\n" not in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_file_that_is_no_database_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "l.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(ConfigError, match="setting database: cannot open"):
        SqlLedger(f"sqlite:///{tmp_path / 'l.sqlite3'}")


def _wait_for_rows(reader: LedgerReader) -> None:
    while not reader.turns("t"):
        time.sleep(0.02)


async def test_a_server_that_restarted_costs_no_row(postgres: str, turn: Row) -> None:
    ledger, engine = SqlLedger(f"{postgres}&application_name=restarted"), sa.create_engine(postgres)
    ledger.record("turns", turn("a"))
    await asyncio.to_thread(_wait_for_rows, LedgerReader(postgres))
    kill = "SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity WHERE application_name = 'restarted'"
    with engine.connect() as connection:
        assert connection.execute(sa.text(kill)).scalars().all() == [True]
    engine.dispose()
    ledger.record("turns", turn("b"))
    await ledger.close()
    assert [row["id"] for row in LedgerReader(postgres).turns("t")] == ["a", "b"]
    assert ledger.dropped == 0
