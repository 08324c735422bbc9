"""Puts rows together to spans as they come: a bet may be settled before its turn is over, a claim comes after."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

from agentspec.proxy.telemetry import spans
from agentspec.proxy.telemetry.spans import Row, Span

_SERVED = ("hit", "joined")


class Assembler:
    """Hands spans on when all that belongs to them is known: a child when its turn is, a served run when its claim is.

    Bounded: of more than `most` turns the one that was heard of first is given up, and what waited for it goes without.
    """

    def __init__(self, emit: Callable[[Span], None], most: int = 2_000) -> None:
        self._emit = emit
        self._most = most
        self._turns: OrderedDict[str, Row] = OrderedDict()
        self._early: OrderedDict[str, list[tuple[str, Row]]] = OrderedDict()
        """Rows whose turn is still going on."""
        self._served: OrderedDict[str, Row] = OrderedDict()
        """Runs ahead whose claim is about to come."""

    def take(self, table: str, row: Mapping[str, Any]) -> None:
        """A row, its values made and without secrets."""
        if table == "turns":
            self._turn(row)
        elif table in ("probes", "bets", "claims", "contents"):
            turn = self._turns.get(row["turn"] or "")
            if turn is None and row["turn"] is not None:
                self._wait(table, row)
            else:
                self._child(table, row, turn)

    def finish(self) -> None:
        """No more will come."""
        while self._early:
            self._give_up()
        for bet in self._served.values():
            self._emit(spans.speculate(bet, self._turns.get(bet["turn"])))
        self._served.clear()

    def _turn(self, turn: Row) -> None:
        self._turns[turn["id"]] = turn
        if len(self._turns) > self._most:
            self._turns.popitem(last=False)
        early = self._early.pop(turn["id"], [])
        vetoes = [row for table, row in early if table == "bets" and not _ran(row)]
        content = next((row for table, row in early if table == "contents"), None)
        self._emit(spans.chat(turn, vetoes, content))
        for table, row in early:
            self._child(table, row, turn)

    def _wait(self, table: str, row: Row) -> None:
        self._early.setdefault(row["turn"], []).append((table, row))
        if len(self._early) > self._most:
            self._give_up()

    def _give_up(self) -> None:
        _, early = self._early.popitem(last=False)
        for table, row in early:
            self._child(table, row, None)

    def _child(self, table: str, row: Row, turn: Row | None) -> None:
        if table == "probes":
            self._emit(spans.probe(row, turn))
        elif table == "claims":
            bet = self._served.pop(row["bet"] or "", None)
            if bet is not None:
                self._emit(spans.speculate(bet, self._turns.get(bet["turn"]), row["id"]))
            self._emit(spans.execute_tool(row, turn, bet))
        elif table == "bets" and _ran(row):
            if row["outcome"] in _SERVED:
                self._serve(row)
            else:
                self._emit(spans.speculate(row, turn))

    def _serve(self, bet: Row) -> None:
        self._served[bet["id"]] = bet
        if len(self._served) > self._most:
            _, oldest = self._served.popitem(last=False)
            self._emit(spans.speculate(oldest, self._turns.get(oldest["turn"])))


def _ran(bet: Row) -> bool:
    return bool(bet.get("ran")) or bet["outcome"] != "vetoed"
