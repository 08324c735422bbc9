"""The report for people: questions, figures, how the bets ended, and where the time of one question went."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentspec.proxy.bench.figures import print_report
from agentspec.proxy.demo.agent import Answer
from agentspec.proxy.demo.outcomes import Outcomes
from agentspec.proxy.demo.report import DemoReport, Pair, typical
from agentspec.proxy.traces import waterfall as trace_waterfall

_STYLES = {"model": "blue", "tool": "yellow"}
_BARS = {"model": "█", "tool": "▒"}
_WIDTH = 56


def show(report: DemoReport, *, as_json: bool, console: Console | None = None) -> int:
    """Print a report; the exit status is 1, and standard error says why, when an answer differs or is wrong."""
    if as_json:
        print_report(report.figures(), as_json=True)
    else:
        _show_tables(report, console or Console())
    problems = report.problems()
    for problem in problems:
        print(f"WRONG: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _show_tables(report: DemoReport, console: Console) -> None:
    console.print(questions_table(report.pairs))
    console.print(report.figures().as_table())
    if report.outcomes.by_predictor:
        console.print(outcomes_table(report.outcomes))
    console.print(waterfall(report.pairs[typical(report.pairs)]))
    if report.trace is not None:
        console.print(trace_waterfall(report.trace.trajectory, report.trace.turns, console.width))


def questions_table(pairs: tuple[Pair, ...]) -> Table:
    table = Table(title="questions", title_justify="left")
    for column in ("question", "answer"):
        table.add_column(column)
    for column in ("serial s", "agentspec s", "ratio", "same", "right"):
        table.add_column(column, justify="right")
    for pair in pairs:
        times = (f"{pair.serial.seconds:.1f}", f"{pair.speculative.seconds:.1f}", f"{pair.ratio:.2f}")
        table.add_row(pair.question.text, pair.speculative.text, *times, _yes(pair.identical), _yes(pair.right))
    return table


def _yes(fact: bool) -> str:
    return "yes" if fact else "NO"


def outcomes_table(outcomes: Outcomes) -> Table:
    """One row per predictor, one column per outcome that occurred."""
    counts = outcomes.by_predictor
    occurred = sorted({outcome for ended in counts.values() for outcome in ended})
    table = Table(title="how the bets ended", title_justify="left")
    table.add_column("predictor")
    for outcome in occurred:
        table.add_column(outcome, justify="right")
    for predictor in sorted(counts):
        table.add_row(predictor, *(str(counts[predictor].get(outcome, 0)) for outcome in occurred))
    return table


def waterfall(pair: Pair) -> Text:
    """Both arms of one question on one time scale: what the agent waited for, from the question to the answer."""
    longest = max(pair.serial.seconds, pair.speculative.seconds)
    text = Text(f"{pair.question.text}\n", style="bold")
    for name, answer in (("serial", pair.serial), ("agentspec", pair.speculative)):
        text.append(f"{name:>10} ", style="default not bold")
        text.append_text(_bar(answer, longest))
        text.append(f" {answer.seconds:.1f} s\n", style="default not bold")
    text.append(" " * 11)
    for kind, meaning in (("model", "the model generates"), ("tool", "the agent waits for a tool")):
        text.append(_BARS[kind], style=f"not bold {_STYLES[kind]}")
        text.append(f" {meaning}   ", style="dim not bold")
    return text


def _bar(answer: Answer, longest: float) -> Text:
    bar = Text()
    for span in answer.spans:
        start, end = (round(at / longest * _WIDTH) for at in (span.start, span.end))
        bar.append(_BARS[span.kind] * (end - start), style=f"not bold {_STYLES[span.kind]}")
    return bar
