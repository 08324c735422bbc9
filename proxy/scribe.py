"""Writes down what happened, as rows of the ledger: the one place that knows both the live objects and the tables.

Nothing here encodes or hashes: what costs time is left to the ledger's thread (`Later`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec import channel
from agentspec.calls import ToolCall, canonical_json, parse_arguments
from agentspec.config import Settings
from agentspec.ids import new_id
from agentspec.later import Later
from agentspec.protocols import Ledger, LiveTurn, ProbeRecord
from agentspec.proxy.bet import Bet
from agentspec.proxy.expected import Asked
from agentspec.proxy.judge import Guess
from agentspec.proxy.live import Live
from agentspec.proxy.origin import Quiet
from agentspec.proxy.runtimes import HeldTool, RuntimeLink
from agentspec.redact import redact, redact_text
from agentspec.trajectory import Said

_KEPT_CHARS = 32_000
"""Most that is kept of one text."""
_KEPT_MESSAGES = 50
_CHARS_A_ROW = 1000


@dataclass(frozen=True, slots=True)
class Kept:
    """What is written down beside times and outcomes; what a million tokens of hosted endpoints cost, in US dollars."""

    arguments: bool = False
    content: bool = False
    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0

    @classmethod
    def by(cls, settings: Settings) -> Kept:
        """As the operator has it."""
        return cls(
            settings.keep_arguments or settings.keep_content,
            settings.keep_content,
            settings.price_input_usd_per_mtok,
            settings.price_output_usd_per_mtok,
        )

    def cost_usd(self, turn: LiveTurn, prompt_tokens: int, completion_tokens: int) -> float | None:
        """What tokens of the turn's endpoint cost; None where nobody bills them or the prices are not known."""
        if not turn.engine.hosted or not (self.input_usd_per_mtok or self.output_usd_per_mtok):
            return None
        return (prompt_tokens * self.input_usd_per_mtok + completion_tokens * self.output_usd_per_mtok) / 1e6


class Scribe:
    """Hands rows to the ledger; without one nothing is written down."""

    def __init__(self, ledger: Ledger | None, kept: Kept = Kept()) -> None:
        self._ledger = ledger
        self._kept = kept

    def turn(self, turn: Live, link: RuntimeLink | None, note: str, draft_saved_s: float | None = None) -> None:
        """A turn is over. `draft_saved_s`: what accepted drafts saved, where that is known."""
        if self._ledger is None:
            return
        used = turn.usage
        cost_usd = self._kept.cost_usd(turn, used.prompt_tokens, used.completion_tokens) if used else None
        if self._kept.content:
            self._content(self._ledger, turn)
        known = {"runtime": link.label if link else None, "cost_usd": cost_usd, "note": note}
        known["draft_saved_s"] = draft_saved_s
        self._ledger.record("turns", _turn(turn) | known)

    def _content(self, ledger: Ledger, turn: Live) -> None:
        new, said, reasoned, calls = turn.new[-_KEPT_MESSAGES:], turn.said, turn.reasoned, tuple(turn.calls)
        chars = sum(len(one.text) + sum(map(len, one.results)) for one in new) + len(said) + len(reasoned)
        ledger.record(
            "contents",
            {
                **_owner(turn, 0.0),
                "said": Later(lambda: _as_text(new), chars // _CHARS_A_ROW),
                "answer": Later(lambda: _clean(said)),
                "reasoning": Later(lambda: _clean(reasoned)),
                "calls": Later(lambda: _calls(calls)),
            },
        )

    def probe(self, turn: LiveTurn, probe: ProbeRecord, offered_chars: int | None = None) -> None:
        """A probe is over, one way or another. `offered_chars`: of its text, as a draft."""
        if self._ledger is None:
            return
        self._ledger.record(
            "probes",
            {
                "id": new_id(),
                **_owner(turn, probe.started_s),
                "model": turn.request.model,
                "started_s": probe.started_s,
                "duration_s": probe.duration_s,
                "prompt_tokens": probe.prompt_tokens,
                "completion_tokens": probe.completion_tokens,
                "cost_usd": self._kept.cost_usd(turn, probe.prompt_tokens, probe.completion_tokens),
                "outcome": probe.outcome,
                "offered_chars": offered_chars,
            },
        )

    def predictions(
        self, turn: Live, guesses: Sequence[Guess], came: Sequence[bool] | None, bets: Sequence[Bet]
    ) -> None:
        """What a turn's predictors offered, and whether it came true (None: the answer was not whole)."""
        if self._ledger is None:
            return
        placed = {id(bet.prediction): bet for bet in bets}
        for nth, guess in enumerate(guesses):
            row = _guess(guess, placed.get(id(guess.prediction)), came[nth] if came is not None else None)
            row["arguments"] = self._arguments(guess.prediction.call.arguments)
            self._ledger.record("predictions", {"id": new_id(), **_owner(turn, guess.offered_s), **row})
        for quiet in turn.quiet:
            row = _quiet(quiet, len(turn.calls) == quiet.known if came is not None else None)
            self._ledger.record("predictions", {"id": new_id(), **_owner(turn, quiet.offered_s), **row})

    def bet(self, bet: Bet, reason: str) -> None:
        """A bet has its outcome."""
        if self._ledger is None:
            return
        held, prediction = bet.held, bet.prediction
        self._ledger.record(
            "bets",
            {
                "id": bet.id,
                **_owner(bet.turn, bet.offered_s),
                "predictor": prediction.predictor,
                "tool": prediction.call.name,
                "effect": held.spec.effect.value if held is not None else None,
                "tier": held.spec.sandbox.tier if held is not None else None,
                "egress": bet.told_others,
                "arguments": self._arguments(prediction.call.arguments),
                "name_confidence": prediction.name_confidence,
                "argument_confidence": prediction.argument_confidence,
                "probability": bet.probability,
                "threshold": bet.verdict.threshold,
                "expected_s": bet.verdict.saving_s,
                "verdict": bet.verdict.reason,
                "ran": bet.dispatched,
                "offered_s": bet.offered_s,
                "latency_s": bet.latency_s,
                "waited_s": bet.waited_s,
                "settled_s": bet.settled_s,
                "saved_s": bet.saved_s,
                "wasted_s": bet.discarded_s,
                "cost_s": prediction.cost_s + bet.discarded_s,
                "tokens": prediction.tokens,
                "outcome": bet.outcome,
                "reason": reason,
            },
        )

    def claim(self, message: channel.Claimed, asked: Asked | None, held: HeldTool | None, at: float) -> None:
        """A real call of a declared tool has its result; it began at Unix time `at`."""
        if self._ledger is None:
            return
        self._ledger.record(
            "claims",
            {
                "id": new_id(),
                "turn": asked.turn if asked else None,
                "trajectory": asked.trajectory if asked else None,
                "tenant": asked.tenant if asked else None,
                "at": at,
                "tool": message.tool,
                "effect": held.spec.effect.value if held else None,
                "arguments": self._claimed(message.arguments),
                "bet": message.bet,
                "outcome": message.outcome,
                "began_s": asked.elapsed_s() - message.waited_s if asked else None,
                "waited_s": message.waited_s,
                "latency_s": message.latency_s,
                "reason": message.reason,
            },
        )

    def _arguments(self, arguments: Mapping[str, Any]) -> Later | None:
        return Later(lambda: canonical_json(redact(arguments))) if self._kept.arguments else None

    def _claimed(self, arguments: str | None) -> Later | None:
        """As for a bet; what cannot be read is left out."""
        if arguments is None or not self._kept.arguments:
            return None

        def made() -> str | None:
            found = parse_arguments(arguments)
            return None if found is None else canonical_json(redact(found))

        return Later(made)


def _turn(turn: Live) -> dict[str, Any]:
    origin, usage = turn.origin, turn.usage
    return {
        "id": turn.id,
        "trajectory": turn.trajectory,
        "tenant": turn.tenant,
        "session": origin.session,
        "api": turn.api.path.removeprefix("/v1/"),
        "model": turn.request.model,
        "endpoint": origin.endpoint,
        "engine": turn.engine.value,
        "stream": turn.request.stream,
        "began_at": turn.began_at,
        "first_byte_s": turn.first_byte_s,
        "first_token_s": turn.first_token_s,
        "reasoning_s": turn.reasoning_s,
        "call_s": turn.call_s,
        "duration_s": turn.elapsed_s(),
        "status": turn.status,
        "finish": turn.finish,
        "calls": len(turn.calls),
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "completion_tokens": usage.completion_tokens if usage else None,
        "held_out": turn.held_out,
        "probe_verdict": turn.probe_verdict,
        "traceparent": origin.traceparent,
        "tracestate": origin.tracestate,
        "drafts_taken": turn.drafting.taken if turn.drafting else None,
        "drafted_tokens": usage.drafted_tokens if usage else None,
        "accepted_tokens": usage.accepted_tokens if usage else None,
    }


def _guess(guess: Guess, bet: Bet | None, came_true: bool | None) -> dict[str, Any]:
    prediction = guess.prediction
    return {
        "predictor": prediction.predictor,
        "tool": prediction.call.name,
        "confidence": prediction.confidence,
        "probability": guess.probability * prediction.rests_on,
        "rests_on": prediction.rests_on,
        "offered_s": guess.offered_s,
        "verdict": bet.verdict.reason if bet else "a run of this call went on already",
        "bet": bet.id if bet else None,
        "came_true": came_true,
    }


def _quiet(quiet: Quiet, came_true: bool | None) -> dict[str, Any]:
    return {
        "predictor": quiet.predictor,
        "tool": None,
        "arguments": None,
        "confidence": quiet.probability,
        "probability": quiet.probability,
        "rests_on": 1.0,
        "offered_s": quiet.offered_s,
        "verdict": "no call: nothing to run",
        "bet": None,
        "came_true": came_true,
    }


def _owner(turn: LiveTurn, moment_s: float) -> dict[str, Any]:
    at = turn.began_at + moment_s
    return {"turn": turn.id, "trajectory": turn.trajectory, "tenant": turn.tenant, "at": at}


def _clean(text: str) -> str:
    return redact_text(text[:_KEPT_CHARS].encode("utf-8", "replace").decode().replace("\0", "\ufffd"))


def _calls(calls: Sequence[ToolCall]) -> str:
    return json.dumps([{"name": call.name, "arguments": redact(call.arguments)} for call in calls])


def _as_text(said: Sequence[Said]) -> str:
    """Messages as JSON."""
    shown = []
    for one in said:
        calls = [{"name": call.name, "arguments": redact(call.arguments)} for call in one.calls]
        results = [_clean(result) for result in one.results]
        shown.append({"role": one.role, "text": _clean(one.text), "calls": calls, "results": results})
    return json.dumps(shown)
