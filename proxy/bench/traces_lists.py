"""Fills a ledger with spans, and takes the time that its list of runs needs."""

from __future__ import annotations

import secrets
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from agentspec.errors import ConfigError
from agentspec.memory.ledger_reader import LedgerReader, RunFilter
from agentspec.proxy.bench.figures import Figure

Progress = Callable[[str], None]

_TURNS, _PROBES, _PREDICTIONS, _BETS, _CLAIMS = 10, 5, 15, 12, 8
"""Of a run."""
_SPANS_A_RUN = _TURNS + _PROBES + _PREDICTIONS + _BETS + _CLAIMS
_TENANTS = 20
_REPEATS = 15
_PAGE = 50
_NAME = "list_ms.1m"


def list_figures(folder: Path, postgres: str, spans: int, progress: Progress) -> list[Figure]:
    """The time that a page takes on SQLite and on PostgreSQL (None where no server answers), and the greater one."""
    found = {"sqlite": _measured(f"sqlite:///{folder / 'lists.sqlite3'}", spans, progress), "postgresql": list[float]()}
    try:
        with schema(postgres) as url:
            found["postgresql"] = _measured(url, spans, progress)
    except (ConfigError, SQLAlchemyError, ModuleNotFoundError) as error:
        progress(f"PostgreSQL is left out (--postgres names another): {str(error).splitlines()[0]}")
    slowest = max((times for times in found.values() if times), key=statistics.median)
    return [_figure(_NAME, slowest), *(_figure(f"{_NAME}.{name}", times) for name, times in found.items())]


def _figure(name: str, times_ms: list[float]) -> Figure:
    if not times_ms:
        return Figure(name, None, "ms")
    return Figure(name, statistics.median(times_ms), "ms", min(times_ms), max(times_ms), len(times_ms))


@contextmanager
def schema(postgres: str) -> Iterator[str]:
    """The URL of an empty schema, which is gone afterwards."""
    engine, name = sa.create_engine(postgres, connect_args={"connect_timeout": 3}), f"bench_{secrets.token_hex(6)}"
    with engine.begin() as connection:
        connection.execute(sa.text(f"CREATE SCHEMA {name}"))
    try:
        given = {"options": f"-csearch_path={name}", "connect_timeout": "3"}
        yield sa.make_url(postgres).update_query_dict(given).render_as_string(hide_password=False)
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA {name} CASCADE"))
        engine.dispose()


def _measured(url: str, spans: int, progress: Progress) -> list[float]:
    """How long a page took, in milliseconds, each time that it was asked for in the slowest way."""
    reader = LedgerReader(url)
    try:
        began_s = time.monotonic()
        _fill(reader.engine, spans // _SPANS_A_RUN)
        kind = reader.engine.dialect.name
        progress(f"{kind}: {spans} spans written in {time.monotonic() - began_s:.1f} s")
        asked = (RunFilter(), RunFilter(tenant="tenant 3"), RunFilter(outcome="miss"))
        times_ms = max((_times_ms(reader, which) for which in asked), key=statistics.median)
        progress(f"{kind}: a page of {_PAGE} runs in {statistics.median(times_ms):.1f} ms")
        return times_ms
    finally:
        reader.close()


def _times_ms(reader: LedgerReader, which: RunFilter) -> list[float]:
    times_ms = []
    for _ in range(_REPEATS):
        reader.close()  # the next question connects anew
        began_s = time.perf_counter()
        rows = reader.trajectories(_PAGE, which)
        times_ms.append((time.perf_counter() - began_s) * 1000)
        if len(rows) != _PAGE:
            raise ConfigError(f"the list has {len(rows)} runs instead of {_PAGE}")
    return times_ms


def _fill(engine: sa.Engine, runs: int) -> None:
    """So many runs with all their rows, made by the database itself."""
    with engine.begin() as connection:
        for table, columns, each in _ROWS:
            names = ", ".join(columns)
            values = ", ".join(columns.values())
            connection.execute(
                sa.text(f"INSERT INTO {table} ({names}) {_numbers(engine, runs * each)} SELECT {values} FROM n")
            )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(sa.text("ANALYZE"))


def _numbers(engine: sa.Engine, count: int) -> str:
    if engine.dialect.name == "postgresql":
        return f"WITH n AS (SELECT generate_series(0, {count - 1}) AS i)"
    return f"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count - 1})"


def _of_run(each: int) -> dict[str, str]:
    """A row of a run that has so many: whose it is, and when it was."""
    run = f"(i / {each})"
    return {"trajectory": f"'run ' || {run}", "tenant": f"'tenant ' || ({run} % {_TENANTS})"}


def _part(table: str, each: int, more: dict[str, str]) -> tuple[str, dict[str, str], int]:
    turn = f"'turn ' || ((i / {each}) * {_TURNS} + i % {_TURNS})"
    at = f"1.7e9 + (i / {each}) * 60.0 + i % {each}"
    return table, {"id": f"'{table} ' || i", "turn": turn, **_of_run(each), "at": at, **more}, each


_ROWS = (
    (
        "runs",
        {
            **_of_run(1),
            "model": "'a model'",
            "began_at": "1.7e9 + i * 60.0",
            "ended_at": "1.7e9 + i * 60.0 + 45.0",
            "turns": str(_TURNS),
            "hit": "i % 4",
            "miss": "CASE WHEN i % 7 = 0 THEN 1 ELSE 0 END",
            "saved_s": "1.5 * (i % 4)",
            "spans": str(_SPANS_A_RUN),
        },
        1,
    ),
    (
        "turns",
        {
            "id": "'turn ' || i",
            **_of_run(_TURNS),
            "model": "'a model'",
            "began_at": f"1.7e9 + (i / {_TURNS}) * 60.0 + i % {_TURNS}",
            "duration_s": "2.5",
            "status": "200",
            "note": "''",
        },
        _TURNS,
    ),
    _part("probes", _PROBES, {"duration_s": "0.4", "outcome": "'predicted'"}),
    _part("predictions", _PREDICTIONS, {"predictor": "'recall'", "tool": "'get_order'", "probability": "0.4"}),
    _part("bets", _BETS, {"predictor": "'recall'", "tool": "'get_order'", "outcome": "'vetoed'", "verdict": "'no'"}),
    _part("claims", _CLAIMS, {"tool": "'get_order'", "outcome": "'miss'", "waited_s": "1.0"}),
)
