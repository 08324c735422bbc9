"""Traces in the terminal: whatever the ledger holds, something is shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from agentspec.proxy.traces import listing, waterfall

Row = Callable[..., dict[str, Any]]


def shown(what: Any, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(what)
    return out.getvalue()


@pytest.fixture
def full(turn: Row, bet: Row) -> dict[str, Any]:
    probe = {"turn": "a", "started_s": 0.1, "duration_s": 0.2, "prompt_tokens": 1, "completion_tokens": 2}
    claim = {"turn": "a", "tool": "f", "effect": "read", "bet": "x", "outcome": "hit", "began_s": 1.0}
    return turn(
        "a",
        probes=[{**probe, "outcome": "predicted"}],
        bets=[bet("x", "a")],
        claims=[{**claim, "waited_s": 0.25, "latency_s": 1.0, "reason": "served"}],
    )


def summary(**more: Any) -> dict[str, Any]:
    whole = {"trajectory": "t", "began_at": 1000.0, "ended_at": 1002.5, "turns": 1, "calls": 2, "model": "m"}
    return {**whole, "bets": {"hit": 1, "stale": 2, "vetoed": 1}, "saved_s": 1.25, **more}


def test_a_waterfall_tells_turns_probes_bets_and_claims(full: dict[str, Any]) -> None:
    text = shown(waterfall("t", [full], 140))
    for told in ("trajectory t", "turn 1", "probe", "predicted", "ahead f", "hit", "saved 0.75 s", "f()", "served"):
        assert told in text
    assert "1 served ahead, 0.8 s saved; 0 discarded" in text


def test_no_turns_are_no_crash() -> None:
    assert "0 served ahead" in shown(waterfall("t", []))


@pytest.mark.parametrize("part", ["turn", "probes", "bets", "claims"])
def test_any_value_that_may_be_null_may_be_missing(full: dict[str, Any], part: str) -> None:
    kept = {"id", "trajectory", "began_at", "turn", "predictor", "tool", "outcome", "probes", "bets", "claims"}
    rows = [full] if part == "turn" else full[part]
    for row in rows:
        for name in [*row]:
            if name not in kept or (part == "probes" and name == "outcome"):
                row[name] = None
    assert "trajectory t" in shown(waterfall("t", [full]))


@pytest.mark.parametrize("outcome", ["refused", "HIT"])
def test_an_outcome_that_nobody_knows_is_shown(full: dict[str, Any], outcome: str) -> None:
    full["claims"][0]["outcome"] = full["bets"][0]["outcome"] = outcome
    assert outcome in shown(waterfall("t", [full]))


@pytest.mark.parametrize("name", ["[/]", "[/bold]", "[red]x", "a[b]c", "\\[", "[link=http://x]y"])
def test_names_are_shown_as_they_are_not_read_as_mark_up(full: dict[str, Any], name: str) -> None:
    full["model"] = name
    full["bets"][0]["tool"] = full["claims"][0]["tool"] = full["note"] = name
    assert shown(waterfall(name, [full])).count(name) >= 4
    assert shown(listing([summary(trajectory=name, model=name)])).count(name) == 2


@pytest.mark.parametrize("odd", [0.0, -5.0, 1e9])
def test_odd_times_are_no_crash(full: dict[str, Any], odd: float) -> None:
    full["duration_s"] = full["bets"][0]["latency_s"] = full["claims"][0]["began_s"] = odd
    full["probes"][0]["started_s"] = odd
    assert "turn 1" in shown(waterfall("t", [full]))


@pytest.mark.parametrize("width", [1, 20, 80, 300])
def test_any_width_will_do(full: dict[str, Any], width: int) -> None:
    assert shown(waterfall("t", [full] * 3, width), width)
    assert shown(listing([summary()] * 3), width)


def test_the_listing_counts_outcomes() -> None:
    line = shown(listing([summary()])).splitlines()[1].split()
    assert line[-7:] == ["2", "1", "0", "0", "3", "1.2", "s"]


def test_a_listing_without_model_and_bets_is_no_crash() -> None:
    assert "t" in shown(listing([summary(model=None, bets={}, saved_s=0.0)]))


def test_no_rows_are_no_crash() -> None:
    assert "trajectory" in shown(listing([]))


def test_a_waterfall_tells_what_was_drafted_and_what_that_saved(full: dict[str, Any]) -> None:
    full |= {"drafted_tokens": 40, "accepted_tokens": 31, "draft_saved_s": 1.5, "drafts_taken": 1}
    full["probes"][0]["offered_chars"] = 42
    text = shown(waterfall("t", [full], 140), width=220)
    assert "31 of 40 drafted tokens accepted, saved 1.50 s" in text
    assert "predicted, 42 characters offered as a draft" in text
    assert "; 31 of 40 drafted tokens accepted, 1.5 s saved" in text


def test_a_turn_without_drafts_says_nothing_of_them(full: dict[str, Any]) -> None:
    full |= {"drafted_tokens": 0, "accepted_tokens": 0, "draft_saved_s": 0.0, "drafts_taken": 0}
    assert "draft" not in shown(waterfall("t", [full], 140))
