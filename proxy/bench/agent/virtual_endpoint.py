"""The recorded endpoint in memory: the same answers in the same pieces, at a pace of virtual time."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from agentspec.protocols import Headers, UpstreamRequest, UpstreamResponse
from agentspec.proxy.bench.agent.machine import Costs, Machine
from agentspec.proxy.replay.deltas import Delta, completion_tokens, deltas, envelope, finish_reason
from agentspec.proxy.replay.endpoint import Pace
from agentspec.proxy.replay.matching import Index, Point
from agentspec.proxy.replay.recordings import Recording

HEADERS: Headers = ((b"content-type", b"text/event-stream; charset=utf-8"),)
_PROBED_S = 0.1
"""What a probe takes that comes back at all."""
_CALLS = 100
_PIECES = 8
"""Reasoning comes in so many pieces at most; what its tokens cost is charged for each token."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the answer: due after so many tokens of it, and holding so many."""

    after_tokens: int
    tokens: int
    data: bytes


class Hostile(StrEnum):
    """How an endpoint may answer a probe that wishes us ill."""

    SILENT = "never_returns"
    GARBAGE = "garbage"
    CALLS = "100_calls"


class _Asked(msgspec.Struct):
    model: str
    messages: list[dict[str, Any]]
    continue_final_message: bool = False
    tool_choice: Any = None
    tools: list[dict[str, Any]] = []

    @property
    def probes(self) -> bool:
        return self.continue_final_message or self.tool_choice not in (None, "auto")


class Script:
    """What was recorded, and the pieces in which it is said; made once for all runs that play it."""

    def __init__(self, recordings: Iterable[Recording]) -> None:
        self.index = Index(recordings)
        self._made: dict[tuple[str, int], Sequence[Piece]] = {}

    def pieces(self, asked: _Asked) -> Sequence[Piece]:
        """The answer to a request.

        Raises:
            RequestError: nothing was recorded for it.
        """
        point = self.index.find(asked.model, asked.messages)
        key = point.recording.model, point.at
        if key not in self._made:
            self._made[key] = _pieces(point)
        return self._made[key]


class VirtualEndpoint:
    """A model that says what was recorded, on a machine that whoever listens to it loads with listening."""

    def __init__(self, script: Script, pace: Pace, machine: Machine, costs: Costs) -> None:
        self.script = script
        self._pace = pace
        self._machine = machine
        self._costs = costs

    async def pieces(self, body: bytes, *, proxy: bool) -> AsyncIterator[Piece]:
        """The answer to a chat completion, each piece when it is due; `proxy`: whether it goes through one."""
        began_s = asyncio.get_running_loop().time()
        late_s = 0.0
        for piece in self.script.pieces(msgspec.json.decode(body, type=_Asked)):
            due_s = began_s + late_s + self._pace.due(piece.after_tokens)
            if piece.tokens > 1:
                late_s += await self._listened(piece, due_s, proxy)
            else:
                await _until(due_s)
            yield piece

    async def _listened(self, piece: Piece, due_s: float, proxy: bool) -> float:
        """Wait for several tokens that come one after the other; how late the last of them is."""
        rate = self._pace.tokens_per_s
        span_s = piece.tokens / rate
        await _until(due_s - span_s)
        costs = self._costs
        with self._machine.loaded(rate * costs.agent_piece_s, proxy=rate * costs.piece_s if proxy else 0.0):
            await _until(due_s)
            late_s = span_s * (self._machine.late - 1.0)
            await asyncio.sleep(late_s)
        return late_s


async def _until(when_s: float) -> None:
    left_s = when_s - asyncio.get_running_loop().time()
    if left_s > 0:
        await asyncio.sleep(left_s)


def _pieces(point: Point) -> Sequence[Piece]:
    chunk = envelope(point, "chat.completion.chunk")
    total = completion_tokens(point.answer)
    made: list[Piece] = []
    for delta, tokens in [*_gathered(point), (Delta(total, {}), 0)]:
        reason = None if delta.body else finish_reason(point.answer)
        event = {**chunk, "choices": [{"index": 0, "delta": delta.body, "finish_reason": reason}]}
        made.append(Piece(delta.after_tokens, tokens, b"data: " + msgspec.json.encode(event) + b"\n\n"))
    made.append(Piece(total, 0, b"data: [DONE]\n\n"))
    return made


def _gathered(point: Point) -> Iterator[tuple[Delta, int]]:
    """The answer's deltas, those of its reasoning several in one, each with how many tokens it holds."""
    all_tokens = completion_tokens(point.answer)
    most = max(1, all_tokens // _PIECES)
    held: list[str] = []
    for delta in deltas(point.answer):
        text = delta.body.get("reasoning_content")
        if text is not None:
            held.append(text)
        if held and (text is None or len(held) == most):
            yield Delta(delta.after_tokens - (text is None), {"reasoning_content": "".join(held)}), len(held)
            held = []
        if text is None:
            yield delta, 1


class VirtualUpstream:
    """The proxy's way to that endpoint; what the proxy does for a request and for its pieces is charged here."""

    def __init__(
        self, endpoint: VirtualEndpoint, machine: Machine, costs: Costs, probed: Hostile | None = None
    ) -> None:
        self._endpoint = endpoint
        self._machine = machine
        self._costs = costs
        self._probed = probed
        self.probes = 0

    async def open(self, request: UpstreamRequest) -> UpstreamResponse:
        await self._relayed()
        asked = msgspec.json.decode(request.body, type=_Asked)
        if not asked.probes:
            return _Response(self._endpoint.pieces(request.body, proxy=True), self._machine, self._costs.piece_s)
        self.probes += 1
        return _Response(_ill(asked, self._probed), self._machine, self._costs.piece_s, 200 if self._probed else 400)

    async def _relayed(self) -> None:
        """What is waited for, and what goes on beside it from now on."""
        waited_s, turn_s = self._costs.relay_s, self._costs.turn_s
        await self._machine.work(min(waited_s, turn_s), proxy=True)
        await asyncio.sleep(max(0.0, waited_s - turn_s))
        self._machine.occupied(max(0.0, turn_s - waited_s), proxy=True)

    async def close(self) -> None:
        return


async def _ill(asked: _Asked, hostile: Hostile | None) -> AsyncIterator[Piece]:
    """The answer to a probe."""
    if hostile is Hostile.SILENT:
        await asyncio.Event().wait()
    await asyncio.sleep(_PROBED_S)
    if hostile is Hostile.GARBAGE:
        rubbish = hashlib.shake_256(str(len(asked.messages)).encode()).digest(4096)
        yield Piece(0, 1, rubbish + b"data: {]}\n\n" + rubbish)
    elif hostile is Hostile.CALLS:
        for nth in range(_CALLS):
            yield Piece(0, 1, _call_event(nth, asked))


def _call_event(nth: int, asked: _Asked) -> bytes:
    """One of many calls: as text that continues `{"name": "`, and as a tool call."""
    tool = asked.tools[nth % len(asked.tools)]["function"]
    arguments = {name: f"nobody-{len(asked.messages)}-{nth}" for name in tool["parameters"]["properties"]}
    if asked.continue_final_message:
        text = f'{tool["name"]}", "arguments": {json.dumps(arguments)}}}'
        delta: dict[str, Any] = {"content": text if nth == 0 else f'{{"name": "{text}'}
    else:
        function = {"name": tool["name"], "arguments": json.dumps(arguments)}
        delta = {"tool_calls": [{"index": nth, "id": f"call_{nth}", "type": "function", "function": function}]}
    return b"data: " + msgspec.json.encode({"choices": [{"index": 0, "delta": delta}]}) + b"\n\n"


class _Response:
    def __init__(self, pieces: AsyncIterator[Piece], machine: Machine, piece_s: float, status: int = 200) -> None:
        self.status = status
        self.headers: Headers = HEADERS
        self._pieces = pieces
        self._machine = machine
        self._piece_s = piece_s

    async def chunks(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            if piece.tokens <= 1:
                await self._machine.work(self._piece_s, proxy=True)
            yield piece.data

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        async for chunk in self.chunks():
            take(chunk)
        return True

    async def close(self) -> None:
        return
