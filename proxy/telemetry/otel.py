"""OpenTelemetry: spans of the ledger's rows, sent to an OTLP/HTTP receiver by the SDK, in threads of its own.

A receiver that is away costs one line and the spans of that time, which are counted; no turn ever waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from agentspec import __version__
from agentspec.config import Settings
from agentspec.proxy.telemetry.receiver import headers_of, receiver, service_name
from agentspec.proxy.telemetry.spans import CLIENT, Row, Span, span_id, trace_id

log = logging.getLogger("agentspec.otel")

_QUEUE = 20_000
_SLACK = 1_000
"""The SDK's queue drops what it does not hold without a count; ours is full before."""
_KINDS = {CLIENT: SpanKind.CLIENT}
_W3C = TraceContextTextMapPropagator()


class CountingExporter(SpanExporter):
    """An exporter that counts what it sent and what it lost; a receiver that is away is one line, not one a batch."""

    def __init__(self, inner: SpanExporter) -> None:
        self._inner = inner
        self._away = False
        self.sent = self.lost = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._inner.export(spans)
        except Exception as error:
            log.debug("%r", error)
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.sent += len(spans)
        else:
            self.lost += len(spans)
        self._tell(result is not SpanExportResult.SUCCESS)
        return result

    def _tell(self, away: bool) -> None:
        if away and not self._away:
            log.warning("the receiver of traces does not take them; they are lost until it does")
        elif self._away and not away:
            log.info("the receiver of traces takes them again")
        self._away = away

    def shutdown(self) -> None:
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self._inner.force_flush(timeout_millis)


class GivenIds(IdGenerator):
    """Ids that the rows have already. One thread starts spans: it says first which ids the next one has."""

    def __init__(self) -> None:
        self.span = self.trace = 1

    def generate_span_id(self) -> int:
        return self.span

    def generate_trace_id(self) -> int:
        return self.trace


class SpanSender:
    """Makes SDK spans of ours and hands them to an exporter, in batches. What its queue does not hold is counted."""

    def __init__(self, exporter: SpanExporter, about: Resource, queue: int = _QUEUE) -> None:
        self.exporter = CountingExporter(exporter)
        self._ids = GivenIds()
        self._provider = TracerProvider(resource=about, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(self.exporter, max_queue_size=queue + _SLACK))
        self._tracer = self._provider.get_tracer("agentspec", __version__)
        self._queue = queue
        self._queued = self._refused = 0

    @property
    def sent(self) -> int:
        """Spans that the receiver took."""
        return self.exporter.sent

    @property
    def lost(self) -> int:
        """Spans that it did not take, or that no queue held."""
        return self.exporter.lost + self._refused

    def send(self, span: Span) -> None:
        """Queue a span. Not from several threads."""
        if self._queued - self.exporter.sent - self.exporter.lost >= self._queue:
            self._refused += 1
            return
        self._ids.span = int(span.id, 16)
        parent = self._parent(span)
        made = self._tracer.start_span(
            span.name,
            context=parent,
            kind=_KINDS.get(span.kind, SpanKind.INTERNAL),
            attributes=span.attributes,
            links=list(self._links(span, parent)),
            start_time=span.start_ns,
        )
        for event in span.events:
            made.add_event(event.name, event.attributes, event.at_ns)
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, span.error))
        self._queued += made.is_recording()
        made.end(max(span.start_ns, span.end_ns))

    def _parent(self, span: Span) -> otel_context.Context:
        """The context that it starts in: the agent's own, its turn's span, or none."""
        turn = span.turn
        self._ids.trace = int(trace_id(turn["id"] if turn is not None else span.id), 16)
        if turn is None:
            return otel_context.Context()
        agents = _context_of(turn)
        if span.root:
            return agents
        told = trace.get_current_span(agents).get_span_context()
        flags = told.trace_flags if told.is_valid else TraceFlags(TraceFlags.SAMPLED)
        its_trace = told.trace_id if told.is_valid else self._ids.trace
        own = SpanContext(its_trace, int(span_id(turn["id"]), 16), False, flags, told.trace_state)
        return trace.set_span_in_context(NonRecordingSpan(own), otel_context.Context())

    def _links(self, span: Span, parent: otel_context.Context) -> Iterator[Link]:
        told = trace.get_current_span(parent).get_span_context()
        its_trace = told.trace_id if told.is_valid else self._ids.trace
        for other, what in span.links:
            linked = SpanContext(its_trace, int(other, 16), False, TraceFlags(TraceFlags.SAMPLED))
            yield Link(linked, {"agentspec.link": what})

    def flush(self) -> None:
        """Send what is queued, and wait for it."""
        self._provider.force_flush()

    def close(self) -> None:
        """Send what is queued, and end."""
        self._provider.shutdown()


def _context_of(turn: Row) -> otel_context.Context:
    """The W3C context of the agent's request (https://www.w3.org/TR/trace-context/), empty where it sent none."""
    carrier: Mapping[str, Any] = {name: turn.get(name) for name in ("traceparent", "tracestate") if turn.get(name)}
    return _W3C.extract(carrier, otel_context.Context())


def resource(settings: Settings) -> Resource:
    """Who tells: `service.name` and version, and what OTEL_RESOURCE_ATTRIBUTES says."""
    name = service_name(settings)
    about = {"service.name": name, "service.version": __version__, "openinference.project.name": name}
    return Resource.create(about)


def otlp_exporter(settings: Settings) -> SpanExporter:
    """The exporter to the receiver that settings or environment name."""
    base = receiver(settings)
    return OTLPSpanExporter(f"{base}/v1/traces" if base else None, headers=headers_of(settings))
