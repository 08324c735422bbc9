"""`agentspec top`: what goes on, as a page that is drawn again and again."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text
from sqlalchemy.exc import SQLAlchemyError

from agentspec.memory.ledger_reader import LedgerReader, Row
from agentspec.memory.ledger_sums import Sums, Window
from agentspec.proxy.traces import listing

_WINDOW_S = 3600.0
_GOING_ON_S = 10.0


def watch(reader: LedgerReader, console: Console, every_s: float) -> None:
    """Draw until interrupted; a database that is away is told and waited for."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                page = look(reader, time.time(), console.height)
            except (SQLAlchemyError, OSError) as error:
                page = Text(f"the ledger's database does not answer: {str(error).splitlines()[0]}", style="red")
            live.update(page, refresh=True)
            time.sleep(every_s)


def look(reader: LedgerReader, now: float, height: int) -> RenderableType:
    """The last hour up to Unix time `now`, in `height` lines."""
    sums, window = Sums(reader), Window(since=now - _WINDOW_S)
    tools = sums.bets_by("tool", window)[:8]
    runs = reader.trajectories(max(3, height - len(tools) - 9))
    going_on = sum(row["ended_at"] > now - _GOING_ON_S for row in runs)
    return Group(_headline(sums.totals(window), going_on), Text(), _tools(tools), Text(), listing(runs))


def _headline(totals: Row, going_on: int) -> Text:
    served, discarded = totals["hit"] + totals["joined"], totals["miss"] + totals["stale"] + totals["unclaimed"]
    told = Text("last hour: ", style="dim")
    told.append(
        f"{totals['runs']} runs ({going_on} going on), {totals['turns']} turns, {totals['calls']} calls", "bold"
    )
    told.append(f"   {served} served ahead, {totals['saved_s']:.1f} s saved", "green")
    told.append(f"   {discarded + totals['failed']} discarded, {totals['wasted_s']:.1f} tool-seconds", "yellow")
    cost = totals["probe_cost_usd"]
    told.append(f"   {totals['probes']} probes, {totals['probe_tokens']} tokens" + (f", ${cost:.2f}" if cost else ""))
    if totals["errors"]:
        told.append(f"   {totals['errors']} turns ended badly", "red")
    return told


def _tools(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("tool")
    for name in ("ran ahead", "hit", "joined", "miss", "stale", "failed", "unclaimed", "vetoed", "saved", "wasted"):
        table.add_column(name, justify="right")
    for row in rows:
        counts = (str(row[name]) for name in ("ran", "hit", "joined", "miss", "stale", "failed", "unclaimed", "vetoed"))
        table.add_row(*map(Text, (row["tool"], *counts, f"{row['saved_s']:.1f} s", f"{row['wasted_s']:.1f} s")))
    return table
