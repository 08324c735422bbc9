"""Traces in the terminal: the list of runs, one of them as a waterfall on a common time axis, discarded runs ahead."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentspec.proxy.ghost import ghost

Row = Mapping[str, Any]

_COLOURS = {
    "hit": "green",
    "joined": "cyan",
    "miss": "red",
    "stale": "yellow",
    "failed": "red",
    "vetoed": "bright_black",
    "unclaimed": "yellow",
}


@dataclass(frozen=True, slots=True)
class Span:
    """One bar: seconds from the trajectory's start."""

    label: str
    start_s: float
    end_s: float
    colour: str
    note: str


def listing(rows: Sequence[Row]) -> Table:
    """The latest trajectories, one a line."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, align in (("trajectory", "left"), ("began", "left"), ("took", "right"), ("model", "left")):
        table.add_column(name, justify=align, overflow="ellipsis", no_wrap=True)  # type: ignore[arg-type]
    for name in ("turns", "calls", "hit", "joined", "miss", "other", "saved"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        bets: Mapping[str, int] = row["bets"]
        other = sum(count for outcome, count in bets.items() if outcome not in ("hit", "joined", "miss"))
        cells = (
            row["trajectory"],
            datetime.datetime.fromtimestamp(row["began_at"]).strftime("%m-%d %H:%M:%S"),
            f"{row['ended_at'] - row['began_at']:.1f} s",
            row["model"] or "",
            *(str(row[name]) for name in ("turns", "calls")),
            *(str(bets.get(outcome, 0)) for outcome in ("hit", "joined", "miss")),
            str(other),
            f"{row['saved_s']:.1f} s",
        )
        table.add_row(*map(Text, cells))  # names come from requests: shown as they are, never read as mark-up
    return table


def discarded_listing(rows: Sequence[Row]) -> Table:
    """Runs ahead that nobody claimed: when, what, where, and why not."""
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for name in ("when", "trajectory", "tool", "tier", "told others", "took", "outcome"):
        table.add_column(name, no_wrap=True)
    table.add_column("arguments", overflow="ellipsis", no_wrap=True, ratio=1)
    for row in rows:
        when = datetime.datetime.fromtimestamp(row["at"]).strftime("%m-%d %H:%M:%S")
        took = "" if row["latency_s"] is None else f"{row['latency_s']:.2f} s"
        told = Text("yes", style="yellow") if row["egress"] else Text("")
        arguments = row["arguments"] if row["arguments"] is not None else "(not kept: setting keep_arguments)"
        outcome = Text(f"{row['outcome']}: {row['reason']}"[:40], style=_colour(row["outcome"]))
        cells = (when, row["trajectory"][:12], row["tool"], row["tier"] or "", told, took, outcome, arguments)
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
    return table


def waterfall(trajectory: str, turns: Sequence[Row], width: int = 100) -> RenderableType:
    """Turns, probes, predictions, runs ahead and claims of one trajectory, each a bar on one time axis.

    The last bar is the serial ghost (`ghost`): what the same run would have taken without results from ahead.
    """
    spans, its_ghost = list(_spans(turns)), ghost(turns)
    if its_ghost.saved_s > 0.0:
        saved = f"without agentspec, one after the other: {its_ghost.saved_s:.2f} s more"
        spans.append(Span("serial", 0.0, its_ghost.serial_s, "bright_black", saved))
    end_s = max((span.end_s for span in spans), default=1.0) or 1.0
    labels = max((len(span.label) for span in spans), default=0)
    bar = max(20, min(60, width - labels - 52))
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("", no_wrap=True, min_width=labels)
    table.add_column(f"0 s{f'{end_s:.1f} s':>{bar - 3}}", no_wrap=True, width=bar, min_width=bar)
    table.add_column("s", justify="right", no_wrap=True, min_width=6)
    table.add_column("", overflow="ellipsis", no_wrap=True, ratio=1)
    for span in spans:
        table.add_row(
            Text(span.label), _bar(span, end_s, bar), f"{span.end_s - span.start_s:.2f}", Text(span.note, span.colour)
        )
    return Group(Text(f"trajectory {trajectory}", style="bold"), table, Text(_summary(turns), style="bold"))


def _bar(span: Span, end_s: float, width: int) -> Text:
    first = min(width - 1, int(span.start_s / end_s * width))
    length = max(1, round((span.end_s - span.start_s) / end_s * width))
    return Text(" " * first + "█" * min(length, width - first), style=span.colour)


def _spans(turns: Sequence[Row]) -> Iterator[Span]:
    origin = turns[0]["began_at"] if turns else 0.0
    for number, turn in enumerate(turns, 1):
        base = turn["began_at"] - origin
        tokens = f", {turn['completion_tokens']} tokens" if turn["completion_tokens"] else ""
        note = turn["note"] or f"{turn['calls']} call{'s' if turn['calls'] != 1 else ''}{tokens}{_drafts(turn)}"
        yield Span(f"turn {number}  {turn['model']}", base, base + (turn["duration_s"] or 0.0), "blue", note)
        yield from _reasoning(turn, base)
        for probe in turn["probes"]:
            start = base + (probe["started_s"] or 0.0)
            end = start + (probe["duration_s"] or 0.0)
            offered = f", {probe['offered_chars']} characters offered as a draft" if probe.get("offered_chars") else ""
            yield Span("  probe", start, end, "magenta", (probe["outcome"] or "") + offered)
        if turn.get("probe_verdict") and not turn["probes"]:
            yield Span("  no probe", base, base, "bright_black", turn["probe_verdict"])
        for bet in turn["bets"]:
            yield _bet(bet, base)
        yield from _quiet(turn, base)
        for claim in turn["claims"]:
            start = base + (claim["began_s"] or 0.0)
            note = claim["outcome"] + (f": {claim['reason']}" if claim["reason"] else "")
            end = start + (claim["waited_s"] or 0.0)
            yield Span(f"  {claim['tool']}()", start, end, _colour(claim["outcome"]), note)


def _drafts(turn: Row) -> str:
    """How many tokens of an answer were drafted and accepted, and what that saved."""
    if not turn.get("drafted_tokens"):
        return ""
    saved = f", saved {turn['draft_saved_s']:.2f} s" if turn.get("draft_saved_s") else ""
    return f", {turn['accepted_tokens'] or 0} of {turn['drafted_tokens']} drafted tokens accepted{saved}"


def _reasoning(turn: Row, base: float) -> Iterator[Span]:
    if turn.get("reasoning_s"):
        start = base + (turn["first_token_s"] or 0.0)
        yield Span("  reasoning", start, start + turn["reasoning_s"], "blue", "")


def _quiet(turn: Row, base: float) -> Iterator[Span]:
    """What was predicted and became no bet: that no call comes."""
    for one in turn.get("predictions") or ():
        if one["bet"] is None and one["tool"] is None:
            at = base + (one["offered_s"] or 0.0)
            came = {True: ", and none did", False: ", but one did", None: ""}[one["came_true"]]
            note = f"{one['predictor']} p={one['probability'] or 0.0:.2f} that no call comes{came}"
            yield Span("  no call", at, at, "bright_black", note)


def _bet(bet: Row, base: float) -> Span:
    start = base + (bet["offered_s"] or 0.0)
    length = 0.0 if bet["outcome"] == "vetoed" else bet["latency_s"] or 0.0
    saved = f", saved {bet['saved_s']:.2f} s" if bet["saved_s"] else ""
    words = [bet[name] for name in ("reason", "verdict") if bet.get(name)]
    why = f": {'; '.join(dict.fromkeys(words))}" if words else ""
    note = f"{bet['outcome']}{saved} ({bet['predictor']} p={bet['probability'] or 0.0:.2f}){why}"
    return Span(f"  ahead {bet['tool']}", start, start + length, _colour(bet["outcome"]), note)


def _colour(outcome: str) -> str:
    return _COLOURS.get(outcome, "white")


def _summary(turns: Sequence[Row]) -> str:
    bets = [bet for turn in turns for bet in turn["bets"]]
    served = [bet for bet in bets if bet["outcome"] in ("hit", "joined")]
    dropped = [bet for bet in bets if bet["outcome"] not in ("hit", "joined", "vetoed")]
    saved = sum(bet["saved_s"] or 0.0 for bet in served)
    wasted = sum(bet["latency_s"] or 0.0 for bet in dropped)
    discarded = f"{len(dropped)} discarded, {wasted:.1f} tool-seconds spent on them"
    drafted, accepted = (sum(turn.get(f"{kind}_tokens") or 0 for turn in turns) for kind in ("drafted", "accepted"))
    by_drafts = sum(turn.get("draft_saved_s") or 0.0 for turn in turns)
    drafts = f"; {accepted} of {drafted} drafted tokens accepted, {by_drafts:.1f} s saved" if drafted else ""
    its_ghost = ghost(turns)
    clock = f"; {its_ghost.took_s:.1f} s instead of {its_ghost.serial_s:.1f} s" if its_ghost.saved_s > 0.0 else ""
    return f"{len(served)} served ahead, {saved:.1f} s saved; {discarded}{drafts}{clock}"
