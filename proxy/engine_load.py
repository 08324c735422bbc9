"""Asks engines of one's own how many requests they keep waiting. In a task of its own: no turn waits for the answer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from agentspec.config import Engine
from agentspec.gating.load import queue_depth
from agentspec.protocols import Upstream, UpstreamRequest
from agentspec.proxy.brakes import Brakes
from agentspec.proxy.endpoints import Endpoint
from agentspec.proxy.upstream import HttpUpstream

log = logging.getLogger("agentspec.load")

ENGINES = (Engine.VLLM, Engine.SGLANG, Engine.AGENTSPEC)
_EVERY_S = 2.0
_LIMIT_S = 2.0
_AFTER_FAULT_S = 60.0
_MAX_BYTES = 4 * 2**20


class EngineLoad:
    """Tells the brakes what engines' pages of metrics say, while probes of them are thought of.

    An engine without such a page is asked again a minute later.
    """

    def __init__(self, endpoints: Sequence[Endpoint], brakes: Brakes) -> None:
        self._asked = [one for one in endpoints if one.engine in ENGINES]
        self._brakes = brakes
        self.faults = 0

    async def run(self) -> None:
        """Ask for ever."""
        await asyncio.gather(*(self._watch(endpoint) for endpoint in self._asked))

    async def _watch(self, endpoint: Endpoint) -> None:
        engine = HttpUpstream(endpoint.url.removesuffix("/v1"), _LIMIT_S)
        try:
            while True:
                told = not self._brakes.wants_load(endpoint.upstream) or await self._ask(engine, endpoint)
                await asyncio.sleep(_EVERY_S if told else _AFTER_FAULT_S)
        finally:
            await engine.close()

    async def _ask(self, engine: Upstream, endpoint: Endpoint) -> bool:
        try:
            async with asyncio.timeout(_LIMIT_S):
                depth = queue_depth(await _page(engine, endpoint))
        except Exception as error:
            self.faults += 1
            if self.faults == 1:
                log.warning("%s tells nothing of its load (setting engine_metrics): %r", endpoint.url, error)
            return False
        if depth is not None:
            self._brakes.queue(endpoint.upstream, depth)
        return depth is not None


async def _page(engine: Upstream, endpoint: Endpoint) -> str:
    request = UpstreamRequest("GET", "/metrics", [*endpoint.key, (b"accept-encoding", b"identity")], b"")
    response = await engine.open(request)
    try:
        page = bytearray()
        async for chunk in response.chunks():
            page += chunk
            if len(page) > _MAX_BYTES:
                break
        return page.decode("utf-8", "replace")
    finally:
        with contextlib.suppress(Exception):
            await response.close()
