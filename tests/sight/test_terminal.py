"""The commands that look at traces, on a run that the real proxy has written."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from agentspec.errors import ConfigError
from agentspec.proxy.cli import app
from agentspec.proxy.ghost import ghost
from tests.sight.shop import play


@pytest.fixture
def database(endpoint, start, join, agent_of) -> str:
    proxy = start(keep_arguments=True)
    play(endpoint, proxy, join, agent_of, "chat-1")
    proxy.claimed(2)
    return str(proxy.deps.settings.database)


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, arguments, catch_exceptions=False, standalone_mode=False)
    return str(done.output)


def test_runs_are_listed_and_filtered(database):
    assert "chat-1" in said("traces", "--database", database)
    for fitting in (["--search", "CHAT"], ["--tool", "get_order"], ["--outcome", "miss"], ["--hours", "1"]):
        assert "chat-1" in said("traces", *fitting, "--database", database)
    for other in (["--search", "x"], ["--tool", "search"], ["--outcome", "stale"], ["--errors"], ["--model", "x"]):
        assert said("traces", *other, "--database", database).startswith("no run fits")


def test_an_empty_ledger_says_what_to_do(tmp_path):
    assert "point an agent's base_url at the proxy" in said("traces", "--database", f"sqlite:///{tmp_path}/l.sqlite3")


def test_a_run_is_a_waterfall_with_reasons(database):
    (trajectory,) = [w for w in said("traces", "--database", database).split() if w.endswith(":chat-1")]
    text = said("trace", trajectory[:6], "--database", database)
    for told in (
        "turn 1",
        "turn 3",
        "ahead get_order",
        "ahead search",
        "get_order()",
        "hit",
        "miss",
        "p=",
        "1 discarded",
    ):
        assert told in text
    with pytest.raises(ConfigError, match="no trajectory"):
        said("trace", "nothing", "--database", database)


def test_the_ghost_is_what_serial_calls_would_have_taken():
    def turn(began_at: float, *claims: tuple[float, float, float, str]) -> dict[str, Any]:
        names = ("began_s", "waited_s", "latency_s", "outcome")
        told = [dict(zip(names, claim, strict=True)) for claim in claims]
        return {"began_at": began_at, "duration_s": 2.0, "claims": told}

    plain = ghost([turn(0.0, (2.0, 1.0, 1.0, "miss")), turn(3.0)])
    assert (plain.took_s, plain.serial_s, plain.saved_s) == (5.0, 5.0, 0.0)
    served = ghost([turn(0.0, (2.0, 0.0, 4.0, "hit")), turn(2.0, (2.0, 0.5, 1.0, "joined"))])
    assert (served.took_s, served.serial_s) == (4.5, 9.0)
    parallel = ghost([turn(0.0, (2.0, 0.0, 4.0, "hit"), (2.0, 5.0, 5.0, "miss"))])
    assert parallel.saved_s == 0.0
    assert ghost([]).serial_s == 0.0


def test_top_shows_what_goes_on(database):
    text = said("top", "--once", "--database", database)
    assert "1 runs (1 going on), 3 turns, 2 calls" in text
    assert "1 served ahead" in text
    assert "1 discarded" in text
    assert [line.split()[:2] for line in text.splitlines() if line.startswith(("get_order", "search"))] == [
        ["get_order", "1"],
        ["search", "1"],
    ]


def test_rows_are_exported_as_lines(database, tmp_path):
    file = tmp_path / "out.jsonl"
    told = said("export", "--format", "jsonl", "--output", str(file), "--database", database)
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert told.strip() == f"1 runs, {len(rows)} rows"
    assert rows[0]["session"] == "chat-1"
    assert sum(row["table"] == "turns" for row in rows) == 3
    with pytest.raises(ConfigError, match="cannot write"):
        said("export", "--format", "jsonl", "--output", str(tmp_path / "no" / "x"), "--database", database)
    with pytest.raises(ConfigError, match="no run"):
        said("export", "--format", "jsonl", "--run", "nothing", "--database", database)


def test_spans_are_exported_to_a_receiver(database, receiver):
    told = said("export", "--format", "otlp", "--endpoint", receiver.url, "--database", database)
    assert told.strip() == f"{len(receiver.spans)} spans"
    assert len(receiver.spans) == 7
    receiver.status = 400
    with pytest.raises(ConfigError, match="7 were refused or lost"):
        said("export", "--format", "otlp", "--endpoint", receiver.url, "--database", database)
    with pytest.raises(ConfigError, match="no receiver is set"):
        said("export", "--format", "otlp", "--database", database)
