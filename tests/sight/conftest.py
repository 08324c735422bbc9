"""The real proxy with a scripted endpoint, a receiver of OTLP on loopback, and rows as a ledger gets them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.contract.conftest import (
    _a_busy_machine_is_no_reason_for_a_miss,
    _endpoint,
    agent_of,
    cleanup,
    client_of,
    endpoint,
    join,
    start,
    way,
)
from tests.memory.conftest import bet, database, postgres, turn

__all__ = [
    "_a_busy_machine_is_no_reason_for_a_miss",
    "_endpoint",
    "agent_of",
    "bet",
    "cleanup",
    "client_of",
    "database",
    "endpoint",
    "join",
    "postgres",
    "start",
    "turn",
    "way",
]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Receiver:
    """Takes OTLP over HTTP and keeps what it was told; `status`: what it answers."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        self.resources: list[Any] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if receiver.status == 200:
                    receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                    receiver.take(self.path, self.headers.get("content-encoding") or "", body)
                self.send_response(receiver.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, path: str, encoding: str, body: bytes) -> None:
        assert encoding in ("", "identity")
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(group.resource)
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for told in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics += [metric for scope in told.scope_metrics for metric in scope.metrics]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    found = Receiver()
    yield found
    found.close()


def attributes(span: Any) -> dict[str, Any]:
    """A span's attributes as Python values."""
    return {pair.key: _value(pair.value) for pair in span.attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(one) for one in value.array_value.values]
    return getattr(value, kind)


Row = Callable[..., dict[str, Any]]


@pytest.fixture
def claim() -> Row:
    """A row of a claim."""

    def row(name: str, turn: str | None, outcome: str = "hit", **more: Any) -> dict[str, Any]:
        whole = {
            "id": name,
            "turn": turn,
            "trajectory": "t",
            "tenant": "someone",
            "at": 1002.0,
            "tool": "f",
            "effect": "read",
            "arguments": None,
            "bet": None,
            "outcome": outcome,
            "began_s": 2.0,
            "waited_s": 0.25,
            "latency_s": 1.0,
            "reason": "",
        }
        return {**whole, **more}

    return row


@pytest.fixture
def probe() -> Row:
    """A row of a probe."""

    def row(name: str, turn: str, **more: Any) -> dict[str, Any]:
        whole = {
            "id": name,
            "turn": turn,
            "trajectory": "t",
            "tenant": "someone",
            "at": 1000.2,
            "model": "m",
            "started_s": 0.2,
            "duration_s": 0.3,
            "prompt_tokens": 50,
            "completion_tokens": 7,
            "cost_usd": None,
            "outcome": "predicted",
        }
        return {**whole, **more}

    return row
