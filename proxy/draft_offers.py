"""Hands what probes wrote over to the engine, as drafts for the turn that is still being written.

A probe's text is a guess of the turn's text to come, whatever becomes of the bet on it. It is offered in a task of its
own: no turn waits for it, an engine that refuses is left alone for a while, and what goes wrong is counted. A draft is
for one turn: it goes out under an id that only we and the engine know, made for that turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec import clock
from agentspec.config import Settings
from agentspec.protocols import Drafting, Headers, LiveTurn, ProbeRecord, Upstream, UpstreamRequest
from agentspec.proxy.asgi import Head
from agentspec.proxy.endpoints import Endpoint
from agentspec.proxy.upstream import HttpUpstream
from agentspec.verifier.adapters.protocol import EngineAdapter, EngineRequest
from agentspec.verifier.adapters.registry import adapter_of
from agentspec.wire.apis import CHAT, WireApi

_LIMIT_S = 2.0
_AT_ONCE = 32
_REFUSALS, _LEFT_ALONE_S = 3, 60.0
_KEYS = (b"authorization", b"x-api-key")
Fault = Callable[[str, BaseException], None]


@dataclass(slots=True, eq=False)
class _Door:
    """One endpoint that takes drafts."""

    adapter: EngineAdapter
    way: Upstream
    under_way: int = 0
    refused: int = 0
    quiet_until_s: float = 0.0

    def open(self) -> bool:
        return self.under_way < _AT_ONCE and clock.monotonic() >= self.quiet_until_s

    def answered(self, status: int) -> None:
        self.refused = 0 if status == 200 else self.refused + 1
        if self.refused >= _REFUSALS:
            self.quiet_until_s = clock.monotonic() + _LEFT_ALONE_S


@dataclass(slots=True)
class DraftCounts:
    """What became of offers since the start."""

    offered: int = 0
    taken: int = 0
    refused: int = 0
    skipped: int = 0
    faults: int = 0


class DraftOffers:
    """All endpoints that take drafts, and what they are offered."""

    def __init__(self, endpoints: Sequence[Endpoint], settings: Settings, fault: Fault) -> None:
        self._doors: dict[Upstream, _Door] = {}
        self._fault = fault
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = DraftCounts()
        for endpoint in endpoints:
            probed = settings.drafts and settings.probes_allowed(endpoint.engine)
            adapter = adapter_of(endpoint.engine) if probed else None
            if adapter is not None and (settings.drafts_shared or not adapter.shares_drafts):
                root = HttpUpstream(endpoint.url.removesuffix("/v1"), _LIMIT_S)
                self._doors[endpoint.upstream] = _Door(adapter, root)

    def name(
        self, upstream: Upstream, api: WireApi, head: Head, onward: UpstreamRequest
    ) -> tuple[UpstreamRequest, Drafting | None]:
        """Give a turn's request an id that its engine knows it by, unless the agent has given it one.

        An id of the agent's own is left alone and nothing is offered under it: another tenant may have chosen the same.
        """
        door = self._doors.get(upstream)
        header = door.adapter.request_header if door is not None else None
        if door is None or api is not CHAT or (header is not None and header in head):
            return onward, None
        if _names_itself(onward.body):
            return onward, None
        drafting = Drafting(secrets.token_hex(16))
        if header is not None:
            headers = [*onward.headers, (header, drafting.request_id.encode())]
            onward = dataclasses.replace(onward, headers=headers)
        return onward, drafting

    def offer(self, turn: LiveTurn, probe: ProbeRecord) -> int:
        """Offer what a probe wrote, if its turn is still being written; how many characters. Returns at once."""
        door, drafting = self._doors.get(turn.upstream), turn.drafting
        if door is None or drafting is None or not probe.wrote or turn.over or probe.wrote in drafting.offered:
            return 0
        asked = door.adapter.offer_drafts(drafting.request_id, [probe.wrote])
        if asked is None:
            return 0
        if not door.open():
            self.counts.skipped += 1
            return 0
        drafting.offered.append(probe.wrote)
        self.counts.offered += 1
        self._start(self._offer(door, turn, drafting, asked))
        return len(probe.wrote)

    def over(self, turn: LiveTurn) -> None:
        """The turn's answer has ended: take back what would stay for others."""
        door, drafting = self._doors.get(turn.upstream), turn.drafting
        if door is not None and drafting is not None and drafting.taken:
            asked = door.adapter.withdraw_drafts(drafting.request_id)
            if asked is not None:
                self._start(self._withdraw(door, turn, asked))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="agentspec-drafts")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _offer(self, door: _Door, turn: LiveTurn, drafting: Drafting, asked: EngineRequest) -> None:
        status = await self._send(door, turn, asked)
        if status == 200:
            drafting.taken += 1
            self.counts.taken += 1
            if turn.over:
                self.over(turn)
        elif status is not None:
            self.counts.refused += 1
        door.answered(status or 0)

    async def _withdraw(self, door: _Door, turn: LiveTurn, asked: EngineRequest) -> None:
        await self._send(door, turn, asked)

    async def _send(self, door: _Door, turn: LiveTurn, asked: EngineRequest) -> int | None:
        """The root of an offer: the status of the engine's answer, None for a fault."""
        door.under_way += 1
        try:
            async with asyncio.timeout(_LIMIT_S):
                return await _status(door.way, _request(turn.headers, asked))
        except Exception as error:
            self.counts.faults += 1
            self._fault("drafts", error)
            return None
        finally:
            door.under_way -= 1

    def as_dict(self) -> dict[str, int]:
        """The counters."""
        return dataclasses.asdict(self.counts)

    async def close(self) -> None:
        """Drop what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for door in self._doors.values():
            await door.way.close()


class _Named(msgspec.Struct):
    request_id: Any = None
    rid: Any = None


_named = msgspec.json.Decoder(_Named)


def _names_itself(body: bytes) -> bool:
    """Whether a request brings an id of its own, which a header would overrule."""
    if b'"request_id"' not in body and b'"rid"' not in body:
        return False
    try:
        found = _named.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return True
    return found.request_id is not None or found.rid is not None


def _request(turn_headers: Headers, asked: EngineRequest) -> UpstreamRequest:
    """With the keys of the turn's own request: an engine that checks them takes drafts from nobody else."""
    keys = [(name, value) for name, value in turn_headers if name in _KEYS]
    headers = [(b"content-type", b"application/json"), (b"accept-encoding", b"identity"), *keys]
    return UpstreamRequest(asked.method, asked.path, headers, msgspec.json.encode(asked.body))


async def _status(way: Upstream, request: UpstreamRequest) -> int:
    response = await way.open(request)
    try:
        async for _ in response.chunks():
            continue
        return response.status
    finally:
        with contextlib.suppress(Exception):
            await response.close()
