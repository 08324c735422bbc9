"""The probe: the running turn itself, forked and asked for its next call (self-speculation, as in SPORK).

The fork shares the turn's prefix, so an engine with a prefix cache pays only for the few tokens of the answer. It is
asked again as the text grows: exact arguments are often unknown at the start. What a fork looks like depends on the
engine and lies behind `Fork`: a continued message for our own engines, a forced tool call for hosted endpoints.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Mapping
from typing import Protocol

from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.errors import UpstreamError
from agentspec.protocols import LiveTurn, Offer, Prediction, ProbeLog, ProbeRecord, UpstreamRequest
from agentspec.speculators.probe_answer import Answer

_GIVE_UP_AFTER = 3
"""Probes in a row that the endpoint may refuse before this model is not probed any more."""


_TURNS_OWN = (b"x-request-id", b"x-client-request-id", b"idempotency-key", b"x-stainless-", b"content-encoding")
"""Headers that name the turn's own request: in vLLM, for one, `X-Request-Id` becomes the engine's request id."""


class Fork(Protocol):
    """How a turn is forked on one kind of endpoint."""

    def request(self, turn: LiveTurn) -> tuple[str, bytes] | None:
        """The probe's path and body, given what the turn has said so far; None where this turn cannot be forked."""
        ...

    def answer(self, turn: LiveTurn) -> Answer:
        """Collects what this probe says."""
        ...

    def read(self, answer: Answer) -> list[Prediction]:
        """The calls that the fork's answer names, so far complete; empty while there is none."""
        ...

    def wrote(self, answer: Answer) -> str:
        """The text of a call, whole or not, that the turn may be about to write too; "" where it is none."""
        ...

    def affordable(self) -> bool:
        """Whether another probe may be paid for."""
        ...

    def reserve(self, prompt_tokens: int) -> float:
        """Set aside what a probe may cost, in US dollars."""
        ...

    def settle(self, reserved_usd: float, prompt_tokens: int, completion_tokens: int, *, final: bool = True) -> None:
        """Pay for a probe's tokens instead of what was set aside for it; not `final`: more may have been generated."""
        ...


class ProbeSpeculator:
    """Probes a turn from its first token, again as it grows, until two probes agree or its call begins."""

    name = "probe"

    def __init__(self, forks: Mapping[Engine, Fork], log: ProbeLog, step_chars: int) -> None:
        self._forks = forks
        self._log = log
        self._step_chars = step_chars
        self._refused: dict[str, int] = {}

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        fork = self._forks.get(turn.engine)
        if fork is None or not await turn.grown(1):
            return
        before: list[ToolCall] = []
        while self._wanted(turn, fork):
            length = len(turn.said) + len(turn.reasoned)
            forked = fork.request(turn)
            if forked is None:
                return
            probe = self._log.open_probe(turn)
            found: list[ToolCall] = []
            try:
                found = await self._probe(_Question(turn, fork, *forked), offer, probe)
            finally:
                self._log.close_probe(turn, probe)
            if found and found == before:
                return  # what the text since then said has not changed the answer
            before = found
            if not await turn.grown(length + self._step_chars):
                return

    def _wanted(self, turn: LiveTurn, fork: Fork) -> bool:
        refused = self._refused.get(turn.request.model, 0)
        return (
            refused < _GIVE_UP_AFTER
            and turn.request.may_call
            and not turn.call_began
            and fork.affordable()
            and self._log.worth_probing(turn)
        )

    async def _probe(self, question: _Question, offer: Offer, probe: ProbeRecord) -> list[ToolCall]:
        """One probe, paid for however it ends; only one that never reached the endpoint is free."""
        turn, fork = question.turn, question.fork
        probe.prompt_tokens, probe.outcome = len(question.body) // 4, "cut off"  # until the endpoint tells its usage
        reserved_usd = fork.reserve(probe.prompt_tokens)
        answer, reached = fork.answer(turn), True
        try:
            predictions = await self._ask(question, answer, probe)
        except UpstreamError as error:
            probe.outcome, reached = error.code, answer.opened
            return []
        finally:
            _pay(fork, reserved_usd, answer if reached else None, probe)
            probe.wrote = fork.wrote(answer)
        cost_s = turn.elapsed_s() - probe.started_s
        for found in predictions:
            offer(dataclasses.replace(found, cost_s=cost_s, tokens=probe.completion_tokens))
        return [found.call for found in predictions]

    async def _ask(self, question: _Question, answer: Answer, probe: ProbeRecord) -> list[Prediction]:
        model = question.turn.request.model
        response = await question.turn.upstream.open(question.onward())
        try:
            if response.status != 200:
                probe.outcome = f"refused with {response.status}"
                self._refused[model] = self._refused.get(model, 0) + 1
                return []
            self._refused.pop(model, None)
            answer.opened = True
            predictions = await _listen(question.fork, response.chunks(), answer)
        finally:
            with contextlib.suppress(Exception):
                await response.close()
        probe.outcome = "predicted" if predictions else "no call"
        return predictions


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """One probe: a turn, forked."""

    turn: LiveTurn
    fork: Fork
    path: str
    body: bytes

    def onward(self) -> UpstreamRequest:
        headers = [(k, v) for k, v in self.turn.headers if not k.startswith(_TURNS_OWN)]
        return UpstreamRequest("POST", self.path, headers, self.body)


def _pay(fork: Fork, reserved_usd: float, answer: Answer | None, probe: ProbeRecord) -> None:
    if answer is None:
        fork.settle(reserved_usd, 0, 0)
        return
    probe.completion_tokens = answer.completion_tokens
    if answer.prompt_tokens:
        probe.prompt_tokens = answer.prompt_tokens
        fork.settle(reserved_usd, answer.prompt_tokens, answer.completion_tokens, final=answer.ended)


async def _listen(fork: Fork, chunks: AsyncIterator[bytes], answer: Answer) -> list[Prediction]:
    """Read until the call is complete; the rest of the answer is not waited for: closing the connection stops it."""
    async for chunk in chunks:
        if answer.feed(chunk) and (found := fork.read(answer)):
            return found
    answer.finish()
    return fork.read(answer)
