"""Why a prediction did not run, or why what ran was thrown away, in sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_WHY = {
    "the client left": "The agent went away before the answer was over.",
    "the trajectory went on without claiming it": (
        "The model made this call, but the agent sent its next request without asking for the result: it answered the "
        "call some other way."
    ),
    "not claimed in time": "The model made this call, but nobody asked for the result within its time limit.",
    "a call that may write was relayed": (
        "The model called a tool that may write. What was read before that may be out of date, so it was not used."
    ),
    "a call that may write is going on": (
        "When the agent asked for the result, a call that may write was still going on. The result may be out of date, "
        "so it was not used."
    ),
    "the runtime's channel closed": "The process that holds the tool left, and the result with it.",
    "granted, but the claim never reported back": (
        "The result was promised to a claim, but the claim never said that it got it."
    ),
}
_KINDS = {
    "miss": "The agent did not make this call.",
    "stale": "The result was out of date.",
    "failed": "The run failed, so the tool ran as usual.",
    "unclaimed": "Nobody asked for the result.",
    "vetoed": "It was not run.",
}


def why_discarded(bet: Row, turn: Row) -> str:
    """Why the result of this run ahead was not used; `turn` with its `claims` and how many `calls` it made."""
    reason = bet["reason"] or ""
    if bet["outcome"] == "miss":
        return f"{_missed(bet, turn, reason)} {_spent(bet)}"
    told = _WHY.get(reason) or _sentence(_KINDS.get(bet["outcome"], ""), reason)
    return f"{told} {_spent(bet)}"


def why_not_run(verdict: str, reason: str) -> str:
    """Why a prediction was not run: the gate's or the runtime's words, after what they mean."""
    said = reason or verdict
    if said.startswith("p=") and "does not reach" in said:
        return f"Too unlikely for what it would save: {said}."
    if "bound on discarded runs" in said:
        return f"It would pay, but too many of its kind were wrong: {said}."
    if said.startswith("would save"):
        return f"Not worth it: {said}."
    return _sentence("", said) or _KINDS["vetoed"]


def gate_said(bet: Row) -> str:
    """What the gate decided on, in numbers."""
    if bet.get("threshold") is None or bet.get("probability") is None:
        return _sentence("", bet["verdict"] or "")
    took = "It ran" if bet["ran"] else "It did not run"
    saves = f", and it would save {_seconds(bet['expected_s'])}" if bet.get("expected_s") is not None else ""
    return f"{took}: held to be {bet['probability']:.0%} likely, {bet['threshold']:.0%} was asked{saves}."


def _missed(bet: Row, turn: Row, reason: str) -> str:
    if reason.startswith("the turn called "):
        called, _, rest = reason.removeprefix("the turn called ").partition(",")
        return f"The model called {called} instead; it{rest.removeprefix(' and')}, so this run was stopped at once."
    if reason != "the turn made no such call":
        return _sentence(_KINDS["miss"], reason)
    instead = _called_instead(turn.get("claims") or [], bet["tool"])
    if instead:
        return f"The model did not make this call: it called {instead}."
    if turn.get("calls"):
        return "The model did not make this call: it called something else."
    return "The model did not make this call: it answered in words and called nothing."


def _called_instead(claims: Sequence[Row], tool: str) -> str:
    names = list(dict.fromkeys(claim["tool"] for claim in claims))
    shown = [f"{name} with other arguments" if name == tool else name for name in names]
    return ", ".join(shown[:-1]) + (" and " if len(shown) > 1 else "") + shown[-1] if shown else ""


def _spent(bet: Row) -> str:
    spent_s = bet.get("wasted_s") or 0.0
    if not spent_s:
        return "It had taken no tool time yet."
    ended = "was over" if bet["latency_s"] is not None else "was stopped"
    return f"The run {ended} after {_seconds(spent_s)}; its result was thrown away."


def _sentence(first: str, more: str) -> str:
    more = more.strip().rstrip(".")
    if not more:
        return first
    said = f"{more[0].upper()}{more[1:]}."
    return f"{first} {said}" if first else said


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 0.9995 else f"{value:.2f} s"
