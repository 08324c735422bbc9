"""What the dashboard asks of the ledger, on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from agentspec.memory.ledger import SqlLedger
from agentspec.memory.ledger_queries import ListedRuns, Queries
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.memory.ledger_sums import Window
from agentspec.memory.ledger_tables import CONTENTS

pytestmark = pytest.mark.anyio

Row = dict[str, Any]
NOON = 1_800_000_000.0
ALL, MINE = Window(), Window("me")


def turn(name: str, tenant: str, at: float, **more: Any) -> Row:
    return {
        "id": name, "trajectory": f"run {name}", "tenant": tenant, "session": name, "runtime": "r", "model": "m",
        "began_at": at, "duration_s": 2.0, "status": 200, "calls": 1, "held_out": False, "note": "", **more,
    }  # fmt: skip


def bet(name: str, turn: str, tenant: str, at: float, outcome: str, **more: Any) -> Row:
    return {
        "id": name, "turn": turn, "trajectory": f"run {turn}", "tenant": tenant, "at": at, "predictor": "recall",
        "tool": "get", "ran": outcome != "vetoed", "offered_s": 0.1, "settled_s": 1.0, "latency_s": 0.5,
        "saved_s": 0.4 if outcome == "hit" else 0.0, "wasted_s": 0.5 if outcome == "miss" else 0.0, "egress": False,
        "outcome": outcome, "reason": "because", **more,
    }  # fmt: skip


def claim(name: str, turn: str, tenant: str, at: float, outcome: str, waited_s: float) -> Row:
    return {
        "id": name, "turn": turn, "trajectory": f"run {turn}", "tenant": tenant, "at": at, "tool": "get",
        "effect": "read", "bet": None, "outcome": outcome, "began_s": 2.5, "waited_s": waited_s, "latency_s": 0.7,
        "reason": "",
    }  # fmt: skip


ROWS: list[tuple[str, Row]] = [
    ("turns", turn("a", "me", NOON)),
    ("bets", bet("a1", "a", "me", NOON, "hit")),
    ("claims", claim("a2", "a", "me", NOON + 3, "hit", 0.1)),
    ("turns", turn("b", "me", NOON + 7200, held_out=True)),
    ("claims", claim("b1", "b", "me", NOON + 7203, "miss", 0.7)),
    ("turns", turn("c", "you", NOON + 60)),
    ("bets", bet("c1", "c", "you", NOON + 60, "miss", latency_s=0.9)),
    ("bets", bet("c2", "c", "you", NOON + 61, "vetoed", latency_s=None, reason="get is barred from T1: it differed")),
    ("turns", turn("d", "you", NOON + 120, runtime=None)),
]


@pytest.fixture
async def reader(database: str) -> Any:
    ledger = SqlLedger(database)
    for table, row in ROWS:
        ledger.record(table, row)
    await ledger.close()
    assert ledger.dropped == 0
    found = LedgerReader(database)
    with found.engine.begin() as connection:
        connection.execute(sa.insert(CONTENTS).values(turn="c", said="[]", answer="hush"))
    yield found
    found.close()


@pytest.fixture
def queries(reader: LedgerReader) -> Iterator[Queries]:
    yield Queries(reader)


async def test_trials_take_until_the_last_claim_has_its_result(queries: Queries) -> None:
    found = sorted((one.held_out, one.turns, one.took_s, one.told_s) for one in queries.trials(ALL))
    assert found == [
        (False, 1, pytest.approx(2.0), 0.0),
        (False, 1, pytest.approx(2.6), pytest.approx(0.4)),
        (True, 1, pytest.approx(3.2), 0.0),
    ]
    assert len(queries.trials(MINE)) == 2
    assert len(queries.trials(Window("me", NOON + 3600))) == 1


async def test_sums_over_time_begin_at_whole_steps(queries: Queries) -> None:
    hours = queries.over_time(ALL, 3600)
    assert [row["at"] % 3600 for row in hours] == [0, 0]
    assert sum(row["saved_s"] for row in hours) == pytest.approx(0.4)
    assert sum(row["wasted_s"] for row in hours) == pytest.approx(0.5)
    assert [row["wasted_s"] for row in queries.over_time(MINE, 3600)] == [0.0, 0.0]


async def test_discarded_runs_and_their_reasons_are_ones_own(queries: Queries) -> None:
    assert [row["id"] for row in queries.discarded(ALL)] == ["c1"]
    assert [(row["outcome"], row["reason"], row["count"]) for row in queries.reasons(ALL)] == [("miss", "because", 1)]
    assert queries.discarded(MINE) == queries.reasons(MINE) == []


async def test_latencies_count_each_run_once(queries: Queries) -> None:
    assert {name: sorted(found) for name, found in queries.latencies(ALL).items()} == {"get": [0.5, 0.7, 0.9]}
    assert {name: sorted(found) for name, found in queries.latencies(MINE).items()} == {"get": [0.5, 0.7]}


async def test_what_a_sandbox_refused_is_told(queries: Queries) -> None:
    assert queries.barred(ALL) == {"get": "get is barred from T1: it differed"}
    assert queries.barred(MINE) == {}


async def test_content_is_its_tenants_alone(queries: Queries) -> None:
    for tenant in (None, "you"):
        found = queries.content("c", tenant)
        assert found is not None and found["answer"] == "hush"
    assert queries.content("c", "me") is None


async def test_lists_can_be_cut_down_to_runs_with_discarded_runs(reader: LedgerReader) -> None:
    assert [row["session"] for row in reader.runs(ListedRuns(discarded=True))] == ["c"]
    assert reader.runs(ListedRuns(tenant="me", discarded=True)) == []


async def test_the_first_run_is_known(queries: Queries) -> None:
    first = queries.first_run_at(ALL)
    assert first is not None and first >= NOON
    assert queries.first_run_at(Window("nobody")) is None
