"""Who receives spans and metrics of OpenTelemetry, by the settings or by its own environment variables."""

from __future__ import annotations

import os

from agentspec.config import Settings


def receiver(settings: Settings) -> str | None:
    """The base URL that is to be told; "" where the environment names it (OTEL_EXPORTER_OTLP_*), None for nobody."""
    if settings.otel_endpoint:
        return settings.otel_endpoint.rstrip("/")
    named = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return "" if any(os.environ.get(name) for name in named) else None


def service_name(settings: Settings) -> str:
    """Under what name we tell: the setting's, where it was set, before OTEL_SERVICE_NAME."""
    if "otel_service" in settings.model_fields_set:
        return settings.otel_service
    return os.environ.get("OTEL_SERVICE_NAME") or settings.otel_service


def headers_of(settings: Settings) -> dict[str, str] | None:
    """The headers that the receiver wants; None: what OTEL_EXPORTER_OTLP_HEADERS says."""
    if settings.otel_headers is None:
        return None
    pairs = (pair.partition("=") for pair in settings.otel_headers.get_secret_value().split(","))
    return {name.strip().lower(): value.strip() for name, _, value in pairs if name.strip()}
