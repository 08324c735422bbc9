"""Puts the ledger and those who are told of its rows together, as the settings say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from agentspec.config import Settings
from agentspec.memory.ledger import SqlLedger
from agentspec.protocols import Ledger
from agentspec.proxy.desk import Desk
from agentspec.proxy.runtimes import Runtimes
from agentspec.proxy.telemetry.gauges import Gauges
from agentspec.proxy.telemetry.metrics import RowMetrics
from agentspec.proxy.telemetry.pages import MachinePages
from agentspec.proxy.telemetry.receiver import receiver
from agentspec.proxy.telemetry.teller import Several, Sink, Teller

if TYPE_CHECKING:
    from agentspec.proxy.telemetry.otel import SpanSender


@dataclass(frozen=True, slots=True)
class Sight:
    """Who is told what happens.

    Attributes:
        ledger: where rows go; None: nothing is written down.
        registry: metrics, None where they are not wanted.
        sender: who sends spans, None where nobody receives them.
    """

    ledger: Ledger | None
    registry: CollectorRegistry | None = None
    sender: SpanSender | None = None

    def pages(self, desk: Desk, runtimes: Runtimes, books: Ledger | None) -> MachinePages:
        """The pages for machines; `books`: the ledger whose counts they tell."""
        counted = books if isinstance(books, SqlLedger) else None
        if self.registry is not None:
            self.registry.register(Gauges(desk, runtimes, counted, self.sender))
        return MachinePages(self.registry, counted)


def sight_of(settings: Settings, ledger: Ledger | None) -> Sight:
    """Have those told that the settings name. A ledger that is not in SQL is a program's own: it is told alone."""
    if not isinstance(ledger, SqlLedger):
        return Sight(ledger)
    registry = CollectorRegistry(auto_describe=False) if settings.metrics else None
    plain: list[Sink] = [RowMetrics(registry)] if registry is not None else []
    exported = _exported(settings)
    if not plain and exported is None:
        return Sight(ledger)
    if exported is None:
        return Sight(Several(ledger, Teller(plain, max_queued=settings.ledger_queue)), registry)
    sender, told, closing = exported
    teller = Teller(plain, told, closing, settings.ledger_queue)
    return Sight(Several(ledger, teller), registry, sender)


def _exported(settings: Settings) -> tuple[SpanSender, list[Sink], list[Callable[[], None]]] | None:
    """Where settings or environment name a receiver: who sends spans, what is told rows, what is to be closed."""
    if receiver(settings) is None:
        return None
    from agentspec.proxy.telemetry import otel, otel_metrics
    from agentspec.proxy.telemetry.assembly import Assembler

    about = otel.resource(settings)
    sender = otel.SpanSender(otel.otlp_exporter(settings), about)
    assembler = Assembler(sender.send)
    told: list[Sink] = [assembler]
    closing: list[Callable[[], None]] = [assembler.finish, sender.close]
    if otel_metrics.wanted():
        metrics = otel_metrics.ModelMetrics(otel_metrics.otlp_reader(settings), about)
        told.append(metrics)
        closing.append(metrics.close)
    return sender, told, closing
