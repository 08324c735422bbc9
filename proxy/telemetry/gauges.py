"""Metrics that are read off the proxy at each scrape: what goes on now, and counters that live elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from agentspec import __version__
from agentspec.proxy.desk import Desk
from agentspec.proxy.runtimes import Runtimes

if TYPE_CHECKING:
    from agentspec.proxy.telemetry.otel import SpanSender


class Counted(Protocol):
    """A ledger that says how it does."""

    @property
    def written(self) -> int: ...

    @property
    def dropped(self) -> int: ...

    @property
    def waiting(self) -> int: ...


@dataclass(slots=True, eq=False)
class Gauges(Collector):
    """What the proxy is asked at each scrape."""

    desk: Desk
    runtimes: Runtimes
    ledger: Counted | None = None
    sender: SpanSender | None = None

    def collect(self) -> Iterator[Metric]:
        """The metrics as they are now."""
        yield InfoMetricFamily("agentspec_build", "The version that runs.", {"version": __version__})
        books, brakes = self.desk.books, self.desk.judge.brakes
        yield GaugeMetricFamily("agentspec_runtimes", "Connected runtimes.", len(self.runtimes))
        yield GaugeMetricFamily("agentspec_open_bets", "Bets without an outcome yet.", books.open_bets)
        yield _by("faults", "Faults that ended in the serial path, by part.", "part", books.faults)
        yield _by("refused", "Runs and probes that a brake held back, by brake.", "brake", dict(brakes.refused))
        calibration = self.desk.judge.calibration
        errors = GaugeMetricFamily(
            "agentspec_calibration_error", "Expected calibration error by predictor.", labels=["predictor"]
        )
        for predictor in calibration.predictors():
            if (error := calibration.error(predictor)) is not None:
                errors.add_metric([predictor], error)
        yield errors
        yield from self._ledger()

    def _ledger(self) -> Iterator[Metric]:
        if self.ledger is not None:
            rows = {"written": self.ledger.written, "dropped": self.ledger.dropped}
            yield _by("ledger_rows", "Rows of the ledger by what became of them.", "result", rows)
            yield GaugeMetricFamily("agentspec_ledger_waiting_rows", "Rows that wait for it.", self.ledger.waiting)
        if self.sender is not None:
            spans = {"sent": self.sender.sent, "lost": self.sender.lost}
            yield _by("otel_spans", "Spans for OpenTelemetry by what became of them.", "result", spans)


def _by(name: str, what: str, label: str, counts: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"agentspec_{name}", what, labels=[label])
    for value, count in counts.items():
        family.add_metric([value], count)
    return family
