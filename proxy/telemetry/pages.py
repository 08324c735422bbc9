"""The pages for machines: /metrics for Prometheus, /healthz and /readyz for whoever restarts and routes."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from agentspec.protocols import Headers
from agentspec.proxy.asgi import Send, header, send_json
from agentspec.proxy.telemetry.gauges import Counted


class MachinePages:
    """Says how the proxy does.

    Attributes:
        registry: the metrics, None where they are not wanted.
        ready: whether requests are served: true between start and stop.
    """

    def __init__(self, registry: CollectorRegistry | None, ledger: Counted | None) -> None:
        self.registry = registry
        self.ready = False
        self._ledger = ledger

    async def healthz(self, send: Send) -> None:
        """Alive: the event loop answers."""
        await send_json(send, 200, {"status": "ok"})

    async def readyz(self, send: Send) -> None:
        """Ready: it serves. A database that is away is told, but is no reason to send agents elsewhere."""
        ledger = self._ledger
        rows = {} if ledger is None else {"dropped_rows": ledger.dropped, "waiting_rows": ledger.waiting}
        await send_json(send, 200 if self.ready else 503, {"status": "ready" if self.ready else "not ready", **rows})

    async def metrics(self, send: Send, headers: Headers) -> None:
        """All metrics, in the format that the scraper accepts; made beside the event loop."""
        encode, content_type = choose_encoder(header(headers, b"accept") or "")
        page: bytes = await asyncio.to_thread(encode, self.registry or CollectorRegistry())
        fields = [(b"content-type", content_type.encode()), (b"content-length", str(len(page)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": fields})
        await send({"type": "http.response.body", "body": page})
