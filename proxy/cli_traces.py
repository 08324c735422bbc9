"""The commands that look at traces: `traces`, `trace`, `discarded`, `top`, `export`."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from agentspec.config import Settings, load
from agentspec.errors import ConfigError

Database = Annotated[str | None, typer.Option(help="SQLAlchemy URL of the ledger")]
Limit = Annotated[int, typer.Option(help="how many", min=1)]


class Format(StrEnum):
    """What is exported."""

    JSONL = "jsonl"
    OTLP = "otlp"


class Outcome(StrEnum):
    """How a bet may end."""

    HIT = "hit"
    JOINED = "joined"
    MISS = "miss"
    STALE = "stale"
    FAILED = "failed"
    VETOED = "vetoed"
    UNCLAIMED = "unclaimed"


def _console() -> Console:
    return Console(highlight=False, width=None if sys.stdout.isatty() else 140)


def _settings(database: str | None) -> Settings:
    return load({"database": database})


def traces(  # noqa: PLR0913  (each is a flag)
    limit: Limit = 20,
    search: Annotated[str | None, typer.Option(help="part of the id, or of what the agent calls it")] = None,
    model: Annotated[str | None, typer.Option(help="of this model")] = None,
    tool: Annotated[str | None, typer.Option(help="that called this tool")] = None,
    outcome: Annotated[Outcome | None, typer.Option(help="with a bet that ended so")] = None,
    errors: Annotated[bool, typer.Option("--errors", help="with a turn that ended badly")] = False,
    hours: Annotated[float | None, typer.Option(help="that went on in the last so many hours", min=0)] = None,
    database: Database = None,
) -> None:
    """List the latest runs (trajectories)."""
    from agentspec.memory.ledger_reader import LedgerReader, RunFilter
    from agentspec.proxy.traces import listing

    since = None if hours is None else time.time() - hours * 3600
    which = RunFilter(search=search, model=model, tool=tool, outcome=outcome, errors=errors, since=since)
    rows = LedgerReader(_settings(database).database).trajectories(limit, which)
    if rows:
        _console().print(listing(rows))
    elif which != RunFilter():
        _console().print("no run fits; without flags the latest are listed, whatever they are")
    else:
        _console().print("no trajectories yet: point an agent's base_url at the proxy (`agentspec serve`)")


def trace(trajectory: Annotated[str, typer.Argument(help="id, or how it begins")], database: Database = None) -> None:
    """Show one run as a waterfall: turns, probes, predictions, runs ahead, calls, and what they saved."""
    from agentspec.memory.ledger_reader import LedgerReader
    from agentspec.proxy.traces import waterfall

    reader, console = LedgerReader(_settings(database).database), _console()
    found = reader.find(trajectory)
    if found is None:
        raise ConfigError(f"there is no trajectory {trajectory!r}; `agentspec traces` lists them")
    console.print(waterfall(found, reader.turns(found), console.width))


def discarded(
    limit: Limit = 50,
    egress: Annotated[bool, typer.Option("--egress", help="only those that told a third party something")] = False,
    database: Database = None,
) -> None:
    """List the latest runs ahead that nobody claimed: what wrong guesses did, and what they told."""
    from agentspec.memory.ledger_reader import LedgerReader
    from agentspec.proxy.traces import discarded_listing

    rows = LedgerReader(_settings(database).database).discarded(limit, egress)
    if not rows:
        _console().print("no run ahead was discarded" + (" that told a third party something" if egress else ""))
        return
    _console().print(discarded_listing(rows))


def top(
    every_s: Annotated[float, typer.Option("--every", help="seconds between two looks", min=0.2)] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="look once, for scripts")] = False,
    database: Database = None,
) -> None:
    """Watch what goes on: the latest runs, what is saved and wasted, tool by tool. Ends with Ctrl-C."""
    from agentspec.memory.ledger_reader import LedgerReader
    from agentspec.proxy.top import look, watch

    reader, console = LedgerReader(_settings(database).database), _console()
    if once or not sys.stdout.isatty():
        console.print(look(reader, time.time(), console.height))
    else:
        watch(reader, console, every_s)


def export(  # noqa: PLR0913  (each is a flag)
    format: Annotated[Format, typer.Option(help="jsonl: rows as they are; otlp: spans, sent to a receiver")],
    output: Annotated[Path | None, typer.Option(help="jsonl: file to write (default: standard output)")] = None,
    endpoint: Annotated[str | None, typer.Option(help="otlp: base URL of the receiver (setting otel_endpoint)")] = None,
    run: Annotated[str | None, typer.Option(help="only this run (id, or how it begins)")] = None,
    hours: Annotated[float | None, typer.Option(help="only what went on in the last so many hours", min=0)] = None,
    database: Database = None,
) -> None:
    """Export runs with all their rows as JSON Lines, or as spans to an OTLP/HTTP receiver."""
    from agentspec.memory.ledger_reader import LedgerReader, RunFilter
    from agentspec.proxy import export as exporting

    settings = load({"database": database, "otel_endpoint": endpoint})
    reader = LedgerReader(settings.database)
    which = RunFilter(since=None if hours is None else time.time() - hours * 3600)
    trajectory = None
    if run is not None and (trajectory := reader.find(run)) is None:
        raise ConfigError(f"there is no run {run!r}; `agentspec traces` lists them")
    wanted = exporting.Wanted(reader, which, trajectory)
    told = exporting.to_jsonl(wanted, output) if format is Format.JSONL else exporting.to_otlp(wanted, settings)
    Console(stderr=True, highlight=False, soft_wrap=True).print(told)


def add_trace_commands(app: typer.Typer) -> None:
    """Have the program offer them."""
    for command in (traces, trace, discarded, top, export):
        app.command()(command)
