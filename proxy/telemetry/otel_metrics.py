"""OpenTelemetry's metrics of generative AI, from the rows: how long requests to the model took, and their tokens.

Names, units and bucket boundaries are those of the conventions (opentelemetry.io, "Semantic conventions for generative
AI metrics"). OTEL_METRICS_EXPORTER=none leaves them out, for receivers that take traces only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from agentspec import __version__
from agentspec.config import Settings
from agentspec.proxy.telemetry.receiver import headers_of, receiver
from agentspec.proxy.telemetry.spans import Attribute

_TOKENS = [4.0**power for power in range(14)]
_SECONDS = [0.01 * 2**power for power in range(14)]


def wanted() -> bool:
    """Whether the environment does not speak against it."""
    return os.environ.get("OTEL_METRICS_EXPORTER", "otlp").strip().lower() != "none"


class ModelMetrics:
    """Counts turns and probes."""

    def __init__(self, reader: MetricReader, about: Resource) -> None:
        self._provider = MeterProvider([reader], about, shutdown_on_exit=False)
        meter = self._provider.get_meter("agentspec", __version__)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )

    def take(self, table: str, row: Mapping[str, Any]) -> None:
        """A row; of turns and probes only."""
        if table not in ("turns", "probes") or row["duration_s"] is None:
            return
        where = urlsplit(row.get("endpoint") or "")
        about: dict[str, Attribute | None] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": row.get("engine") or "openai",
            "gen_ai.request.model": row["model"],
            "server.address": where.hostname,
            "server.port": where.port,
            "agentspec.probe": True if table == "probes" else None,
        }
        told = {name: value for name, value in about.items() if value is not None}
        status = row.get("status", 200)
        failed = {"error.type": str(status)} if status != 200 else {}
        self._duration.record(row["duration_s"], {**told, **failed})
        for kind, name in (("input", "prompt_tokens"), ("output", "completion_tokens")):
            if row[name]:
                self._tokens.record(row[name], {**told, "gen_ai.token.type": kind})

    def close(self) -> None:
        """Send what is there."""
        self._provider.shutdown()


def otlp_reader(settings: Settings) -> MetricReader:
    """Sends once a minute (OTEL_METRIC_EXPORT_INTERVAL) to the receiver that settings or environment name."""
    base = receiver(settings)
    exporter = OTLPMetricExporter(f"{base}/v1/metrics" if base else None, headers=headers_of(settings))
    return PeriodicExportingMetricReader(exporter)
