"""Figures, and the two forms they are printed in: one JSON object, or a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

Value = float | int | bool | str | None


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number.

    Attributes:
        low, high: the spread or interval that was measured, or None.
        n: how many observations it rests on.
    """

    name: str
    value: Value
    unit: str = ""
    low: float | None = None
    high: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class Report:
    """The figures of one run and where it ran; `environment` is what `environment()` returned."""

    title: str
    figures: tuple[Figure, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """The value of a figure.

        Raises:
            KeyError: there is no figure of that name.
        """
        for figure in self.figures:
            if figure.name == name:
                return figure.value
        raise KeyError(name)

    def as_dict(self) -> dict[str, Any]:
        return {"figures": [asdict(figure) for figure in self.figures], **self.environment}

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_table(self) -> Table:
        table = Table(title=self.title, title_justify="left")
        table.add_column("figure")
        for column in ("value", "low", "high", "n"):
            table.add_column(column, justify="right")
        table.add_column("unit")
        for figure in self.figures:
            bounds = (shown(figure.low), shown(figure.high), shown(figure.n))
            table.add_row(figure.name, shown(figure.value), *bounds, figure.unit)
        return table


def print_report(report: Report, *, as_json: bool, console: Console | None = None) -> None:
    """Print to standard output: one JSON object on one line, or a table for people."""
    if as_json:
        print(report.as_json())
    else:
        (console or Console()).print(report.as_table())


def shown(value: Value) -> str:
    """A value as a table cell: three significant digits for what was measured, whole numbers as they are."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    return str(value)
