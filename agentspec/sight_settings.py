"""Settings of what can be seen afterwards: what is written down, for how long, and who else is told."""

from __future__ import annotations

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings


class SightSettings(BaseSettings):
    """What an operator may say of traces. Part of `Settings`."""

    tracing: bool = Field(True, description="false: nothing is written down, exported or counted")
    keep_arguments: bool = Field(False, description="write arguments of calls into the ledger (secrets taken out)")
    keep_content: bool = Field(
        False, description="write messages, answers, results and arguments down, and export them (secrets taken out)"
    )
    keep_days: float = Field(30.0, ge=0, description="days that a run is kept in the ledger after its end; 0: for ever")
    keep_mib: int = Field(2048, ge=0, description="about how much the ledger may hold, the oldest runs go; 0: no limit")
    ledger_queue: int = Field(
        10_000, gt=0, description="rows that may wait for the database; more are dropped, counted"
    )
    otel_endpoint: str = Field(
        "", description="base URL of an OTLP/HTTP receiver for spans and metrics (else OTEL_EXPORTER_OTLP_ENDPOINT)"
    )
    otel_headers: SecretStr | None = Field(None, description="headers for it: name=value,name=value")
    otel_service: str = Field("agentspec", description="service.name of what is exported (else OTEL_SERVICE_NAME)")
    metrics: bool = Field(True, description="serve /metrics for Prometheus")
    metrics_tenant: str = Field("metrics", description="with [[keys]]: whose key reads /metrics, which tells of all")
