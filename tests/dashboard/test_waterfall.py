"""A run as bars, its serial ghost, and reasons in words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.proxy.dashboard.waterfall import waterfall
from agentspec.proxy.dashboard.words import why_discarded, why_not_run

Row = dict[str, Any]


def turn(began_at: float, duration_s: float, claims: list[Row] | None = None, bets: list[Row] | None = None) -> Row:
    return {
        "id": f"t{began_at}",
        "began_at": began_at,
        "duration_s": duration_s,
        "calls": len(claims or []),
        "note": "",
        "probe_verdict": "",
        "reasoning_s": None,
        "probes": [],
        "predictions": [],
        "claims": claims or [],
        "bets": bets or [],
    }


def claim(began_s: float, waited_s: float, latency_s: float, outcome: str = "hit", nth: int = 0) -> Row:
    return {
        "id": f"c{nth}",
        "tool": "get",
        "bet": f"b{nth}",
        "outcome": outcome,
        "began_s": began_s,
        "waited_s": waited_s,
        "latency_s": latency_s,
    }


def bet(**more: Any) -> Row:
    row = dict.fromkeys(("settled_s", "saved_s", "wasted_s", "threshold", "probability", "latency_s", "expected_s"))
    return {
        **row, "id": "b", "tool": "get", "predictor": "p", "ran": True, "offered_s": 0.0, "outcome": "miss",
        "reason": "the turn made no such call", "verdict": "v", **more,
    }  # fmt: skip


def test_the_ghost_takes_as_long_as_the_tools_would_have() -> None:
    found = waterfall([turn(100.0, 2.0, [claim(2.0, 0.1, 3.0)]), turn(102.2, 1.0)])
    assert (found.took_s, found.serial_s) == (pytest.approx(3.2), pytest.approx(6.1))
    first, call, second = found.bars
    assert call.longer_to_s == pytest.approx(5.0)
    assert second.ghost_start_s == pytest.approx(5.1), "what comes later comes as much later"
    assert first.ghost_start_s == 0.0


def test_calls_side_by_side_go_side_by_side_in_the_ghost() -> None:
    found = waterfall([turn(0.0, 1.0, [claim(1.0, 0.0, 2.0, nth=1), claim(1.0, 0.0, 2.0, nth=2)])])
    assert found.serial_s == pytest.approx(3.0)


SECONDS = st.floats(0.0, 20.0)
CLAIMS = st.builds(claim, SECONDS, SECONDS, SECONDS, st.sampled_from(["hit", "joined", "miss"]))
TURNS = st.lists(st.tuples(SECONDS, SECONDS, st.lists(CLAIMS, max_size=3)), min_size=1, max_size=5)


@given(TURNS)
def test_no_ghost_is_faster_than_the_run_and_none_claims_more_than_the_hits_saved(drawn: Any) -> None:
    at, turns = 1000.0, []
    for gap_s, duration_s, claims in drawn:
        at += gap_s
        turns.append(turn(at, duration_s, claims))
        at += max([duration_s, *(one["began_s"] + one["waited_s"] for one in claims)])
    found = waterfall(turns)
    told = sum(
        max(0.0, one["latency_s"] - one["waited_s"])
        for _, _, claims in drawn
        for one in claims
        if one["outcome"] != "miss"
    )
    assert found.took_s - 1e-6 <= found.serial_s <= found.took_s + told + 1e-6
    ghosts = [bar for bar in found.bars if bar.ghost_start_s is not None and bar.ghost_end_s is not None]
    assert all(bar.ghost_start_s >= bar.start_s and bar.ghost_end_s >= bar.ghost_start_s for bar in ghosts)


def test_a_run_without_turns_is_empty() -> None:
    assert waterfall([]).as_json() == {"bars": [], "took_s": 0.0, "serial_s": 0.0}


def test_hits_and_the_calls_that_they_served_point_at_each_other() -> None:
    hit = bet(id="b1", outcome="hit", latency_s=1.0)
    found = waterfall([turn(0.0, 1.0, [claim(1.0, 0.0, 1.0, nth=1)], [hit])])
    ahead, call = (next(bar for bar in found.bars if bar.kind == kind) for kind in ("ahead", "tool"))
    assert (ahead.serves, call.serves) == (call.id, ahead.id)


def test_a_run_that_was_stopped_ends_where_it_was_stopped() -> None:
    found = waterfall([turn(0.0, 5.0, bets=[bet(offered_s=1.0, settled_s=3.5)])])
    assert found.bars[1].end_s == 3.5


def test_a_prediction_that_became_a_bet_is_shown_once() -> None:
    one = turn(0.0, 1.0, bets=[bet(outcome="vetoed", ran=False)])
    offered = {"id": "q", "tool": "get", "offered_s": 0.1, "verdict": "v", "bet": "b"}
    one["predictions"] = [offered, {**offered, "id": "r", "bet": None}]
    assert [bar.kind for bar in waterfall([one]).bars] == ["turn", "prediction", "prediction"]


@pytest.mark.parametrize(
    ("row", "calls", "said"),
    [
        (bet(), 0, "it answered in words and called nothing"),
        (bet(), 1, "it called something else"),
        (bet(reason="the turn called look, and seldom calls twice"), 1, "called look instead; it seldom calls twice"),
        (bet(outcome="stale", reason="a call that may write was relayed"), 1, "may be out of date"),
        (
            bet(outcome="failed", reason="ValueError: no"),
            1,
            "so the tool ran as usual. ValueError: no.",
        ),
        (bet(outcome="unclaimed", reason="the client left"), 1, "The agent went away"),
        (bet(outcome="stale", reason="the workspace has changed"), 1, "out of date. The workspace has changed."),
        (bet(wasted_s=0.25, latency_s=0.25), 0, "The run was over after 250 ms; its result was thrown away."),
        (bet(wasted_s=2.0), 0, "The run was stopped after 2.00 s"),
    ],
)
def test_discarded_runs_say_why_in_words(row: Row, calls: int, said: str) -> None:
    assert said in why_discarded(row, {"claims": [], "calls": calls})


def test_a_miss_names_what_was_called_instead() -> None:
    claims = [claim(0.0, 0.0, 0.0), {**claim(0.0, 0.0, 0.0), "tool": "look"}]
    said = why_discarded(bet(), {"claims": claims, "calls": 2})
    assert "it called get with other arguments and look." in said


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("p=0.09 does not reach p*=0.14 (would save 0.85 s)", "Too unlikely for what it would save"),
        ("p=0.50 is below 0.61, which the bound on discarded runs asks for", "too many of its kind were wrong"),
        ("would save 3 ms, too little", "Not worth it"),
        ("get is switched off (tools_off)", "Get is switched off (tools_off)."),
        ("", "It was not run."),
    ],
)
def test_what_did_not_run_says_why(verdict: str, said: str) -> None:
    assert said in why_not_run(verdict, "")
