"""Takes runs out of the ledger: as JSON Lines, or as spans for an OTLP/HTTP receiver. The oldest come first."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agentspec.config import Settings
from agentspec.errors import ConfigError
from agentspec.memory.ledger_reader import LedgerReader, Row, RunFilter
from agentspec.proxy.telemetry.receiver import receiver

_PAGE = 200
_PARTS = ("probes", "predictions", "bets", "claims")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which runs: the one of this id, else those that fit."""

    reader: LedgerReader
    which: RunFilter = field(default_factory=RunFilter)
    trajectory: str | None = None

    def count(self) -> int:
        """How many there are."""
        return 1 if self.trajectory is not None else self.reader.count_runs(self.which)

    def rows(self) -> Iterator[tuple[str, Row]]:
        """All their rows, each with its table; a run's own row comes first, a turn's content before the turn."""
        for run in self._runs():
            yield "runs", run
            for turn in self.reader.turns(run["trajectory"]):
                if (content := self.reader.content(turn["id"])) is not None:
                    yield "contents", content
                parts = {name: turn.pop(name) for name in _PARTS}
                yield "turns", turn
                for name in _PARTS:
                    yield from ((name, row) for row in parts[name])

    def _runs(self) -> Iterator[Row]:
        if self.trajectory is not None:
            found = self.reader.run(self.trajectory)
            yield from () if found is None else (found,)
            return
        after: tuple[float, str] | None = None
        while page := self.reader.runs(self.which, _PAGE, after, oldest_first=True):
            yield from page
            after = page[-1]["ended_at"], page[-1]["trajectory"]


def to_jsonl(wanted: Wanted, output: Path | None) -> str:
    """Write a line for each row: its columns, and its table under "table". What was done, in words.

    Raises:
        ConfigError: the file cannot be written.
    """
    rows = runs = 0
    try:
        with output.open("w") if output is not None else nullcontext(sys.stdout) as file:
            for table, row in _shown(wanted):
                runs += table == "runs"
                rows += 1
                _write(file, table, row)
    except OSError as error:
        raise ConfigError(f"cannot write {output}: {error.strerror}") from error
    return f"{runs} runs, {rows} rows"


def _write(file: IO[str], table: str, row: Row) -> None:
    file.write(json.dumps({"table": table, **row}) + "\n")


def to_otlp(wanted: Wanted, settings: Settings) -> str:
    """Send the spans of all rows, with the ids that the proxy itself would send. What was done, in words.

    Raises:
        ConfigError: no receiver is set, or it takes nothing.
    """
    if receiver(settings) is None:
        raise ConfigError("no receiver is set: give --endpoint http://HOST:4318 (or OTEL_EXPORTER_OTLP_ENDPOINT)")
    from agentspec.proxy.telemetry.assembly import Assembler
    from agentspec.proxy.telemetry.otel import SpanSender, otlp_exporter, resource

    sender = SpanSender(otlp_exporter(settings), resource(settings))
    assembler, unsent = Assembler(sender.send), 0
    for table, row in _shown(wanted):
        assembler.take(table, row)
        unsent += 1
        if unsent >= _FLUSH_ROWS:
            sender.flush()
            unsent = 0
    assembler.finish()
    sender.close()
    if sender.exporter.lost:
        raise ConfigError(
            f"the receiver took {sender.exporter.sent} spans, {sender.exporter.lost} were refused or lost"
        )
    return f"{sender.exporter.sent} spans"


_FLUSH_ROWS = 5_000
"""So that the sender's queue never overflows."""


def _shown(wanted: Wanted) -> Iterator[tuple[str, Any]]:
    """The rows, with progress on standard error where somebody looks."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("runs", total=wanted.count())
        for table, row in wanted.rows():
            if table == "runs":
                progress.advance(task)
            yield table, row
