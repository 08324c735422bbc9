"""What the ledger keeps and for how long; sums that are those of its rows; a database that goes away and comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.later import Later
from agentspec.memory import ledger_retention
from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_reader import LedgerReader, RunFilter
from agentspec.memory.ledger_retention import Keep, Retention
from agentspec.memory.ledger_runs import SIZE_BYTES, sums_of
from agentspec.memory.ledger_sums import Sums, Window
from agentspec.memory.ledger_tables import BETS, CLAIMS, OUTCOMES, PREDICTIONS, PROBES, TURNS
from agentspec.proxy.bench.cable import Cable

pytestmark = pytest.mark.anyio
Row = Callable[..., dict[str, Any]]


async def written(database: str, *rows: tuple[str, dict[str, Any]]) -> LedgerReader:
    ledger = SqlLedger(database)
    for table, row in rows:
        ledger.record(table, row)
    await ledger.close()
    assert ledger.dropped == 0
    assert ledger.written == len(rows)
    return LedgerReader(database)


async def some_runs(database: str, turn: Row, bet: Row, claim: Row) -> LedgerReader:
    rows = []
    for number in range(10):
        name, at = f"run {number}", 1000.0 + 100 * number
        tenant = {"tenant": f"tenant {number % 2}", "trajectory": name}
        model = "large" if number % 3 == 0 else "small"
        rows += [
            ("turns", turn(f"turn {number}", name, began_at=at, model=model, tenant=tenant["tenant"])),
            ("bets", bet(f"bet {number}", f"turn {number}", OUTCOMES[number % 7], at=at, **tenant)),
            ("claims", claim(f"claim {number}", f"turn {number}", at=at, tool=f"tool {number}", **tenant)),
        ]
    return await written(database, *rows)


async def test_runs_are_found_by_what_they_are(database: str, turn: Row, bet: Row, claim: Row) -> None:
    reader = await some_runs(database, turn, bet, claim)

    def found(**which: Any) -> list[int]:
        return [int(row["trajectory"].removeprefix("run ")) for row in reader.runs(RunFilter(**which))]

    assert found() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert found(tenant="tenant 1") == [9, 7, 5, 3, 1]
    assert found(model="large") == [9, 6, 3, 0]
    assert found(outcome="joined") == [8, 1]
    assert found(tool="tool 4") == [4]
    assert found(search="RUN 3") == [3]
    assert found(search="%") == []
    assert found(since=1800.0, until=1850.0) == [8]
    assert found(errors=True) == []
    with pytest.raises(ValueError, match="no outcome"):
        found(outcome="turns")


async def test_pages_hold_every_run_once(database: str, turn: Row, bet: Row, claim: Row) -> None:
    reader = await some_runs(database, turn, bet, claim)
    for oldest_first in (False, True):
        pages, after = [], None
        while page := reader.runs(limit=3, after=after, oldest_first=oldest_first):
            pages.append([row["trajectory"] for row in page])
            after = page[-1]["ended_at"], page[-1]["trajectory"]
        everything = [name for page in pages for name in page]
        assert [len(page) for page in pages] == [3, 3, 3, 1]
        assert everything == [f"run {n}" for n in (range(10) if oldest_first else range(9, -1, -1))]
    assert reader.count_runs(RunFilter(tenant="tenant 0")) == 5


async def test_nobody_sees_another_tenants_rows(database: str, turn: Row, bet: Row, claim: Row) -> None:
    reader = await some_runs(database, turn, bet, claim)
    assert reader.run("run 1", "tenant 0") is None
    assert reader.turns("run 1", "tenant 0") == []
    assert reader.run("run 1", "tenant 1") is not None
    assert {row["tool"] for row in Sums(reader).tools(Window("tenant 1"))} == {f"tool {n}" for n in (1, 3, 5, 7, 9)}
    assert Sums(reader).totals(Window("tenant 1"))["runs"] == 5
    assert all(row["tenant"] == "tenant 1" for row in reader.discarded(tenant="tenant 1"))


_OUTCOME = st.sampled_from(OUTCOMES)
_BET = st.fixed_dictionaries(
    {"outcome": _OUTCOME, "saved_s": st.floats(0, 5), "wasted_s": st.floats(0, 5), "egress": st.booleans()}
)


@given(st.lists(st.tuples(st.integers(0, 3), _BET), max_size=30), st.integers(1, 10))
@settings(max_examples=50, deadline=None)
def test_a_run_is_the_sum_of_its_rows_however_they_are_batched(told: list[tuple[int, Any]], size: int) -> None:
    rows = [
        ("bets", {"id": str(i), "turn": "a", "trajectory": f"run {run}", "tenant": "x", "at": float(i), **bet})
        for i, (run, bet) in enumerate(told)
    ]
    whole = {run["trajectory"]: run for run in sums_of(rows)}
    parts: dict[str, dict[str, Any]] = {}
    for first in range(0, len(rows), size):
        for run in sums_of(rows[first : first + size]):
            before = parts.setdefault(run["trajectory"], dict.fromkeys(OUTCOMES, 0) | {"spans": 0, "saved_s": 0.0})
            for name in before:
                before[name] += run[name]
    assert parts.keys() == whole.keys()
    for name, run in parts.items():
        assert run == pytest.approx({key: whole[name][key] for key in run})


async def test_predictions_tell_how_far_probabilities_can_be_trusted(database: str, turn: Row) -> None:
    rows = [("turns", turn("a"))]
    for number, (probability, came) in enumerate([(0.05, False), (0.3, True), (0.35, False), (1.0, True), (0.7, None)]):
        told = {"id": str(number), "turn": "a", "trajectory": "t", "tenant": "x", "at": 1000.0, "predictor": "recall"}
        rows.append(("predictions", {**told, "tool": "f", "probability": probability, "came_true": came}))
    reader = await written(database, *rows)
    bins = Sums(reader).reliability(Window())
    assert [(row["bin"], row["n"], row["came"]) for row in bins] == [(0, 1, 0.0), (3, 2, 0.5), (9, 1, 1.0)]
    assert bins[1]["told"] == pytest.approx(0.325)


async def test_sums_by_tool_and_predictor(database: str, turn: Row, bet: Row) -> None:
    reader = await written(
        database,
        ("turns", turn("a")),
        ("bets", bet("1", "a", "hit", saved_s=2.0, ran=True)),
        ("bets", bet("2", "a", "miss", tool="g", saved_s=0.0, wasted_s=1.5, egress=True, ran=True)),
        ("bets", bet("3", "a", "vetoed", tool="g", saved_s=0.0, egress=True, ran=False)),
    )
    first, second = Sums(reader).bets_by("tool", Window())
    assert (first["tool"], first["hit"], first["saved_s"], first["ran"]) == ("f", 1, 2.0, 1)
    assert (second["tool"], second["miss"], second["vetoed"], second["wasted_s"]) == ("g", 1, 1, 1.5)
    assert second["egress"] == 1
    assert Sums(reader).totals(Window())["egress"] == 1


async def test_values_are_made_by_the_writer_and_without_secrets(database: str, turn: Row, bet: Row) -> None:
    made: list[str] = []
    content = {
        "turn": "a",
        "trajectory": "t",
        "tenant": "x",
        "at": 1000.0,
        "said": Later(lambda: made.append("said") or "[]", 3),
        "answer": Later(lambda: "hello"),
        "reasoning": "",
        "calls": "[]",
    }
    note = "refused: key sk-abcdefghijklmnopqrstuv is not known"
    reader = await written(database, ("contents", content), ("turns", turn("a", note=note)))
    assert made == ["said"]
    assert reader.content("a") == {"turn": "a", "said": "[]", "answer": "hello", "reasoning": "", "calls": "[]"}
    assert reader.turns("t")[0]["note"] == "refused: key [redacted] is not known"


async def test_listeners_are_told_what_was_written(database: str, turn: Row) -> None:
    ledger, told = SqlLedger(database), []
    ledger.listen(lambda rows: told.extend((table, row["id"]) for table, row in rows))
    ledger.record("turns", turn("a"))
    ledger.record("nonsense", {})
    await ledger.close()
    assert told == [("turns", "a")]


def counts(reader: LedgerReader) -> list[int]:
    tables = (TURNS, PROBES, PREDICTIONS, BETS, CLAIMS)
    return [reader.rows(sa.select(sa.func.count().label("n")).select_from(table))[0]["n"] for table in tables]


async def test_old_runs_go_with_all_that_is_theirs(database: str, turn: Row, bet: Row, claim: Row) -> None:
    reader = await some_runs(database, turn, bet, claim)
    stray = SqlLedger(database)
    stray.record("claims", claim("stray", None, trajectory=None, at=1000.0))
    await stray.close()
    retention = Retention(reader.engine, Keep(age_s=500.0))
    assert retention.sweep(now=2000.0) is False
    assert [row["trajectory"] for row in reader.runs()] == ["run 9", "run 8", "run 7", "run 6", "run 5"]
    assert counts(reader) == [5, 0, 0, 5, 5]
    assert retention.deleted == 5


async def test_the_writer_lets_go_of_old_runs_by_itself(
    database: str, turn: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_retention, "_FIRST_LOOK_S", 0.5)
    ledger = SqlLedger(database, keep=Keep(age_s=3600.0))
    ledger.record("turns", turn("old", "old", began_at=time.time() - 7200.0))
    ledger.record("turns", turn("new", "new", began_at=time.time()))
    async with asyncio.timeout(20):
        while not ledger.retention.deleted:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.02)
    await ledger.close()
    assert [row["trajectory"] for row in LedgerReader(database).runs()] == ["new"]


async def test_when_it_is_too_much_the_oldest_runs_go(database: str, turn: Row, bet: Row, claim: Row) -> None:
    reader = await some_runs(database, turn, bet, claim)
    a_run = SIZE_BYTES["turns"] + SIZE_BYTES["bets"] + SIZE_BYTES["claims"]
    assert {row["size_bytes"] for row in reader.runs()} == {a_run}
    Retention(reader.engine, Keep(size_bytes=4 * a_run)).sweep(now=0.0)
    assert [row["trajectory"] for row in reader.runs()] == ["run 9", "run 8", "run 7", "run 6"]
    Retention(reader.engine, Keep()).sweep(now=1e12)
    assert len(reader.runs()) == 4


async def test_sizes_are_about_those_on_disk(tmp_path: Path, turn: Row, bet: Row, claim: Row) -> None:
    file = tmp_path / "l.sqlite3"
    rows: list[tuple[str, dict[str, Any]]] = []
    for n in range(1500):
        tenant = {"tenant": "5f1c0a" * 4, "trajectory": f"d41d8cd9:session-{n // 10}"}
        whole = {"endpoint": "http://127.0.0.1:8000/v1", "model": "Qwen2.5-Coder-0.5B", **tenant}
        rows.append(("turns", turn(f"{n:016x}", **{k: v for k, v in whole.items() if k != "trajectory"}) | tenant))
        rows.append(("bets", bet(f"{n:016x}", f"{n:016x}", verdict="p=0.62 > p*=0.14, may save 0.85 s", **tenant)))
        rows.append(("claims", claim(f"{n:024x}", f"{n:016x}", **tenant)))
    reader = await written(f"sqlite:///{file}", *rows)
    with reader.engine.connect() as connection:
        connection.execute(sa.text("PRAGMA wal_checkpoint(TRUNCATE)"))
    told = sum(row["size_bytes"] for row in reader.runs(limit=1000))
    assert 0.4 < told / file.stat().st_size < 2.5


async def test_a_server_that_goes_away_costs_counted_rows_and_is_found_again(
    postgres: str, turn: Row, caplog: pytest.LogCaptureFixture
) -> None:
    parsed = sa.make_url(postgres)
    with Cable(parsed.host or "", parsed.port or 5432) as cable:
        there = parsed.set(host="127.0.0.1", port=cable.port).render_as_string(hide_password=False)
        ledger = SqlLedger(there)
        await hand(ledger, turn, "before", lambda: ledger.written == 100)
        cable.pull()
        began = time.monotonic()
        await hand(ledger, turn, "during", lambda: ledger.dropped == 100)
        assert time.monotonic() - began < 10.0
        cable.plug()
        await hand(ledger, turn, "after", lambda: ledger.written == 200)
        await ledger.close()
    kept = {row["id"].split()[0] for row in LedgerReader(postgres).every_turn()}
    assert kept == {"before", "after"}
    assert (ledger.dropped, ledger.written) == (100, 200)
    assert len([record for record in caplog.records if "lost" in record.getMessage()]) == 1


async def hand(ledger: SqlLedger, turn: Row, name: str, done: Callable[[], bool]) -> None:
    """Hand a hundred rows over, which takes no time, and wait until they are written or lost."""
    began = time.monotonic()
    for number in range(100):
        ledger.record("turns", turn(f"{name} {number}"))
    assert time.monotonic() - began < 0.5
    async with asyncio.timeout(20):
        while not done():  # noqa: ASYNC110  (nobody is told of what is lost)
            await asyncio.sleep(0.02)


def test_contents_weigh_more_than_rows_while_they_wait(tmp_path: Path, turn: Row) -> None:
    ledger = SqlLedger(f"sqlite:///{tmp_path / 'l.sqlite3'}", max_queued=1000)
    text = json.dumps(["x" * 500_000])
    for number in range(100):
        content = {"turn": str(number), "trajectory": "t", "tenant": "", "at": 1.0}
        ledger.record("contents", {**content, "said": Later(lambda: text, 500)})
    ledger._batches.finish()
    assert ledger.dropped >= 90 - ledger.written
    assert ledger.dropped + ledger.written == 100
