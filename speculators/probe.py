"""The probe: the running turn itself, forked and asked for its next call (self-speculation, as in SPORK).

The fork shares the turn's prefix, so an engine with a prefix cache pays only for the few tokens of the answer. It is
asked again as the text grows: exact arguments are often unknown at the start. What a fork looks like depends on the
engine and lies behind `Fork`: a continued message for our own engines, a forced tool call for hosted endpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator
from typing import Protocol

from agentspec.calls import ToolCall
from agentspec.errors import UpstreamError
from agentspec.protocols import LiveTurn, Offer, Prediction, ProbeLog, ProbeRecord, Upstream, UpstreamRequest
from agentspec.speculators.probe_answer import ProbeAnswer

_GIVE_UP_AFTER = 3
"""Probes in a row that the endpoint may refuse before this model is not probed any more."""


_TURNS_OWN = (b"x-request-id", b"x-client-request-id", b"idempotency-key", b"x-stainless-", b"content-encoding")
"""Headers that name the turn's own request: in vLLM, for one, `X-Request-Id` becomes the engine's request id."""


class Fork(Protocol):
    """How a turn is forked on one kind of endpoint."""

    def body(self, turn: LiveTurn) -> bytes:
        """The probe's request body, given what the turn has said so far."""
        ...

    def read(self, answer: ProbeAnswer) -> list[Prediction]:
        """The calls that the fork's answer names, so far complete; empty while there is none."""
        ...

    def affordable(self) -> bool:
        """Whether another probe may be paid for."""
        ...

    def reserve(self, prompt_tokens: int) -> float:
        """Set aside what a probe may cost, in US dollars."""
        ...

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int) -> None:
        """Pay for a probe's tokens instead of what was set aside for it."""
        ...


class ProbeSpeculator:
    """Probes a turn from its first token, again as it grows, until two probes agree or its call begins."""

    name = "probe"

    def __init__(self, upstream: Upstream, fork: Fork, log: ProbeLog, step_chars: int) -> None:
        self._upstream = upstream
        self._fork = fork
        self._log = log
        self._step_chars = step_chars
        self._refused: dict[str, int] = {}

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        if not await turn.grown(1):
            return
        before: list[ToolCall] = []
        while self._wanted(turn):
            length = len(turn.said) + len(turn.reasoned)
            probe = self._log.open_probe(turn)
            found: list[ToolCall] = []
            try:
                found = await self._probe(turn, offer, probe)
            finally:
                self._log.close_probe(turn, probe)
            if found and found == before:
                return  # what the text since then said has not changed the answer
            before = found
            if not await turn.grown(length + self._step_chars):
                return

    def _wanted(self, turn: LiveTurn) -> bool:
        refused = self._refused.get(turn.request.model, 0)
        choice = turn.request.tool_choice
        return (
            refused < _GIVE_UP_AFTER
            and choice != "none"
            and not turn.call_began
            and self._fork.affordable()
            and self._log.worth_probing(turn)
        )

    async def _probe(self, turn: LiveTurn, offer: Offer, probe: ProbeRecord) -> list[ToolCall]:
        """One probe, paid for however it ends; only one that never reached the endpoint is free."""
        headers = [(k, v) for k, v in turn.headers if not k.lower().startswith(_TURNS_OWN)]
        request = UpstreamRequest("POST", turn.path, headers, self._fork.body(turn))
        probe.prompt_tokens, probe.outcome = len(request.body) // 4, "cut off"  # until the endpoint tells its usage
        reserved_usd = self._fork.reserve(probe.prompt_tokens)
        answer, reached = ProbeAnswer(), True
        try:
            predictions = await self._ask(turn, request, answer, probe)
        except UpstreamError as error:
            probe.outcome, reached = error.code, bool(answer.tokens or answer.calls)
            return []
        finally:
            self._pay(reserved_usd, answer if reached else None, probe)
        cost_s = turn.elapsed_s() - probe.started_s
        for found in predictions:
            offer(dataclasses.replace(found, cost_s=cost_s, tokens=probe.completion_tokens))
        return [found.call for found in predictions]

    def _pay(self, reserved_usd: float, answer: ProbeAnswer | None, probe: ProbeRecord) -> None:
        if answer is None:
            self._fork.settle(reserved_usd, 0, 0)
            return
        probe.completion_tokens = answer.completion_tokens
        if answer.prompt_tokens:
            probe.prompt_tokens = answer.prompt_tokens
            self._fork.settle(reserved_usd, answer.prompt_tokens, answer.completion_tokens)

    async def _ask(
        self, turn: LiveTurn, request: UpstreamRequest, answer: ProbeAnswer, probe: ProbeRecord
    ) -> list[Prediction]:
        response = await self._upstream.open(request)
        try:
            if response.status != 200:
                probe.outcome = f"refused with {response.status}"
                self._refused[turn.request.model] = self._refused.get(turn.request.model, 0) + 1
                return []
            self._refused.pop(turn.request.model, None)
            predictions = await self._listen(response.chunks(), answer)
        finally:
            with contextlib.suppress(Exception):
                await response.close()
        probe.outcome = "predicted" if predictions else "no call"
        return predictions

    async def _listen(self, chunks: AsyncIterator[bytes], answer: ProbeAnswer) -> list[Prediction]:
        """Read until the call is complete; closing the answer then tells the engine to stop."""
        async for chunk in chunks:
            if answer.feed(chunk) and (found := self._fork.read(answer)):
                return found
        answer.finish()
        return self._fork.read(answer)
