"""What an arm's books say of its predictions, held against what the recorded model did in each turn."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentspec.calls import canonical_json
from agentspec.gating.calibration import expected_calibration_error
from agentspec.memory.ledger_reader import LedgerReader
from agentspec.proxy.replay.recordings import Call, Recording

SERVED = ("hit", "joined")
_SETTLES_AFTER = 500
"""Predictions after which calibration is looked at."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Books:
    """The rows of one arm."""

    turns: Sequence[Row]
    """In the order in which they began."""
    bets: Sequence[Row]
    claims: Sequence[Row]
    probes: Sequence[Row]

    @classmethod
    def read(cls, url: str) -> Books:
        """From a ledger's database."""
        reader = LedgerReader(url)
        return cls(reader.every_turn(), reader.bets(), reader.claims(), reader.probes())


@dataclass(slots=True)
class Tally:
    """What an arm's predictions came to.

    Attributes:
        calls: calls that the model made of tools that may run ahead.
        named, exact: those of them that a prediction named, and that one foresaw with all arguments.
        claims, committed: real calls of such tools, and those that got a result of a run ahead.
        discarded: runs ahead that nobody got; `wasted_s`: how long they ran.
        told: the probability of each prediction, and whether the call was made, in order.
    """

    calls: int = 0
    named: int = 0
    exact: int = 0
    claims: int = 0
    committed: int = 0
    discarded: int = 0
    wasted_s: float = 0.0
    egress: int = 0
    requests: int = 0
    told: list[tuple[float, bool]] = field(default_factory=list)

    @property
    def discarded_per_hit(self) -> float | None:
        """Runs thrown away for each that was used."""
        return self.discarded / self.committed if self.committed else None


def tallied(books: Books, recordings: Iterable[Recording], ahead: frozenset[str]) -> Tally:
    """Hold an arm's books against these recordings; `ahead`: the tools that may run ahead."""
    tally, made = Tally(), _made(books.turns, recordings)
    offered: defaultdict[str, list[Row]] = defaultdict(list)
    for bet in books.bets:
        offered[bet["turn"]].append(bet)
    for turn in books.turns:
        if turn["id"] in made:
            tally.requests += 1
            _add_turn(tally, made[turn["id"]], offered[turn["id"]], ahead)
    tally.requests += sum(probe["turn"] in made for probe in books.probes)
    for claim in books.claims:
        if claim["turn"] in made and claim["tool"] in ahead:
            tally.claims += 1
            tally.committed += claim["outcome"] in SERVED
    return tally


def _made(turns: Iterable[Row], recordings: Iterable[Recording]) -> dict[str, Sequence[Call]]:
    """The calls of each turn, by its id: the turns of the session of a recording's name are its answers, in order."""
    answers = {
        one.model: iter([step.calls for at, step in enumerate(one.steps) if step.role == "assistant" and at > 0])
        for one in recordings
    }
    sessions = ((turn["id"], turn["trajectory"].rpartition(":")[2]) for turn in turns)
    return {identity: next(answers[session], ()) for identity, session in sessions if session in answers}


def _add_turn(tally: Tally, calls: Sequence[Call], bets: Sequence[Row], ahead: frozenset[str]) -> None:
    made = {(call.name, canonical_json(call.arguments)) for call in calls}
    guessed = [bet for bet in bets if bet["predictor"] != "eager" and not _is_about_another_turn(bet)]
    foreseen = {(bet["tool"], bet["arguments"]) for bet in guessed}
    named = {bet["tool"] for bet in guessed}
    for call in calls:
        if call.name in ahead:
            tally.calls += 1
            tally.named += call.name in named
            tally.exact += (call.name, canonical_json(call.arguments)) in foreseen
    for bet in bets:
        if bet["outcome"] not in (*SERVED, "vetoed"):
            tally.discarded += 1
            ran_s = bet["latency_s"] if bet["latency_s"] is not None else bet["settled_s"] - bet["offered_s"]
            tally.wasted_s += max(0.0, ran_s)
        tally.egress += bool(bet["egress"]) and bet["outcome"] != "vetoed"
    tally.told += [(bet["probability"], (bet["tool"], bet["arguments"]) in made) for bet in guessed]


def _is_about_another_turn(bet: Row) -> bool:
    """Whether it was predicted of the next turn and never handed on to that: else it was offered before it began."""
    return str(bet["predictor"]).startswith("chain") and bet["offered_s"] >= 0


def calibration_error(told: Sequence[tuple[float, bool]]) -> tuple[float | None, int]:
    """Expected calibration error of what was told after the first `_SETTLES_AFTER` (or half, if those are fewer)."""
    counted = told[min(_SETTLES_AFTER, len(told) // 2) :]
    if not counted:
        return None, 0
    return expected_calibration_error(counted), len(counted)
