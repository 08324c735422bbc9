"""A run as bars on one time axis, and its serial ghost: how long it would have taken one after the other.

All times in seconds from the run's first request. The ghost makes the same calls at the same moments of each turn; a
call that got a run ahead's result takes as long as that run took, and what comes later comes as much later as the
turn's last result did. Calls of one turn that went on side by side do so in the ghost as well, so it never claims more
than the agent's clock would have shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentspec.memory.ledger_queries import DISCARDED, SERVED
from agentspec.proxy.dashboard.words import gate_said, why_discarded, why_not_run

Row = Mapping[str, Any]


@dataclass(slots=True)
class Bar:
    """One line of the waterfall.

    Attributes:
        kind: turn, reasoning, probe, prediction (did not run), ahead (a pre-execution) or tool (a real call).
        ghost_start_s, ghost_end_s: where it would lie in the ghost; turns and tools only.
        longer_to_s: a tool: until when it would have run here, had nothing run ahead.
        marks: moments of a turn: first_byte, first_token, call.
        serves: an ahead bar: the id of the tool bar that got its result; a tool bar: that of the run it got.
        why: in words, why it did not run or was not used; `gate`: what the gate decided on.
    """

    id: str
    kind: str
    turn: int
    label: str
    start_s: float
    end_s: float
    outcome: str | None = None
    ghost_start_s: float | None = None
    ghost_end_s: float | None = None
    longer_to_s: float | None = None
    marks: dict[str, float] = field(default_factory=dict)
    serves: str | None = None
    why: str = ""
    gate: str = ""
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waterfall:
    """The bars in order, how long the run took, and how long its ghost."""

    bars: list[Bar]
    took_s: float
    serial_s: float

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is empty is left out of the bars."""
        bars = [
            {name: value for name, value in asdict(bar).items() if value not in (None, "", {})} for bar in self.bars
        ]
        return {"bars": bars, "took_s": self.took_s, "serial_s": self.serial_s}


def waterfall(turns: Sequence[Row]) -> Waterfall:
    """The waterfall of a run's turns, each with its probes, predictions, bets and claims."""
    bars: list[Bar] = []
    origin = turns[0]["began_at"] if turns else 0.0
    later, took_s = 0.0, 0.0
    for number, turn in enumerate(turns, 1):
        base = turn["began_at"] - origin
        of_turn = list(_of_turn(turn, number, base, later))
        bars += of_turn
        real = max((bar.end_s for bar in of_turn if bar.kind in ("turn", "tool")), default=base)
        serial = max((bar.longer_to_s or bar.end_s for bar in of_turn if bar.kind in ("turn", "tool")), default=base)
        later += serial - real
        took_s = max(took_s, real)
    serial_s = max((bar.ghost_end_s for bar in bars if bar.ghost_end_s is not None), default=0.0)
    return Waterfall(bars, took_s, max(took_s, serial_s))


def _of_turn(turn: Row, number: int, base: float, later: float) -> Iterator[Bar]:
    yield _turn_bar(turn, number, base, later)
    if turn.get("reasoning_s"):
        start = base + (turn["first_token_s"] or turn["first_byte_s"] or 0.0)
        yield Bar(f"r{turn['id']}", "reasoning", number, "reasoning", start, start + turn["reasoning_s"])
    rest = [_probe(probe, number, base) for probe in turn["probes"]]
    judged = {bet["id"] for bet in turn["bets"]}
    rest += [_prediction(one, number, base) for one in turn["predictions"] if one["bet"] not in judged]
    served = {claim["bet"]: claim["id"] for claim in turn["claims"] if claim["bet"] and claim["outcome"] in SERVED}
    rest += [_bet(bet, turn, number, base, served) for bet in turn["bets"]]
    rest += [_claim(claim, number, base, later) for claim in turn["claims"]]
    yield from sorted(rest, key=lambda bar: bar.start_s)


def _turn_bar(turn: Row, number: int, base: float, later: float) -> Bar:
    end = base + (turn["duration_s"] or 0.0)
    moments = {"first_byte": "first_byte_s", "first_token": "first_token_s", "call": "call_s"}
    names = ("model", "endpoint", "api", "status", "finish", "calls", "prompt_tokens", "completion_tokens", "cost_usd")
    return Bar(
        turn["id"],
        "turn",
        number,
        f"turn {number}",
        base,
        end,
        ghost_start_s=base + later,
        ghost_end_s=end + later,
        marks={name: base + turn[column] for name, column in moments.items() if turn.get(column) is not None},
        why=turn["note"] or "",
        gate=turn["probe_verdict"] or "",
        details=_told(turn, *names, "held_out"),
    )


def _probe(probe: Row, number: int, base: float) -> Bar:
    start = base + (probe["started_s"] or 0.0)
    end = start + (probe["duration_s"] or 0.0)
    details = _told(probe, "outcome", "prompt_tokens", "completion_tokens", "cost_usd")
    return Bar(f"p{probe['id']}", "probe", number, "probe", start, end, details=details)


def _prediction(one: Row, number: int, base: float) -> Bar:
    """A candidate that became no bet: it predicts "no call", or that call was on the books already."""
    start = base + (one["offered_s"] or 0.0)
    details = _told(one, "predictor", "arguments", "confidence", "probability", "came_true")
    label = one["tool"] or "no call"
    why = why_not_run(one["verdict"] or "", "") if one["tool"] else "The predictor expects that nothing is called."
    return Bar(f"q{one['id']}", "prediction", number, label, start, start, why=why, details=details)


def _bet(bet: Row, turn: Row, number: int, base: float, served: Mapping[str, str]) -> Bar:
    start, outcome = base + (bet["offered_s"] or 0.0), bet["outcome"]
    ran = bool(bet["ran"]) if bet["ran"] is not None else outcome != "vetoed"
    names = ("predictor", "arguments", "name_confidence", "argument_confidence", "probability", "threshold")
    bar = Bar(
        bet["id"],
        "ahead" if ran else "prediction",
        number,
        bet["tool"],
        start,
        start + _run_s(bet) if ran else start,
        outcome=outcome,
        serves=served.get(bet["id"]),
        gate=gate_said(bet),
        details=_told(
            bet, *names, "expected_s", "verdict", "tier", "effect", "egress", "saved_s", "wasted_s", "reason"
        ),
    )
    if outcome in DISCARDED:
        bar.why = why_discarded(bet, turn)
    elif not ran or outcome == "vetoed":
        bar.why = why_not_run(bet["verdict"] or "", bet["reason"] or "")
    return bar


def _run_s(bet: Row) -> float:
    """How long its run took; of one that was stopped, until then."""
    if bet["latency_s"] is not None:
        return float(bet["latency_s"])
    return max(0.0, (bet["settled_s"] or 0.0) - (bet["offered_s"] or 0.0))


def _claim(claim: Row, number: int, base: float, later: float) -> Bar:
    start = base + (claim["began_s"] or 0.0)
    waited_s, latency_s = claim["waited_s"] or 0.0, claim["latency_s"] or 0.0
    longer_s = max(waited_s, latency_s) if claim["outcome"] in SERVED else waited_s
    return Bar(
        claim["id"],
        "tool",
        number,
        claim["tool"],
        start,
        start + waited_s,
        outcome=claim["outcome"],
        ghost_start_s=start + later,
        ghost_end_s=start + later + longer_s,
        longer_to_s=start + longer_s,
        serves=claim["bet"] if claim["outcome"] in SERVED else None,
        details=_told(claim, "effect", "arguments", "latency_s", "waited_s", "reason"),
    )


def _told(row: Row, *names: str) -> dict[str, Any]:
    return {name: row[name] for name in names if row.get(name) not in (None, "")}
