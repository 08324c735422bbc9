"""What accepted drafts saved: a turn's text at the pace its model has without them, less the time it really took."""

from __future__ import annotations

from agentspec.gating.kept import Kept
from agentspec.gating.sketch import Sketch
from agentspec.proxy.live import Live

_FEWEST_TOKENS = 8
"""A shorter answer tells no pace."""
_HARDLY_ANY = 0.1
"""Up to this share of accepted tokens an answer counts as one without drafts."""
_TURNS = 2
"""Answers without drafts that must have been seen before a saving is claimed."""


class DraftSavings:
    """The pace of each model without drafts, in seconds per token, from turns of which hardly a token was accepted."""

    def __init__(self) -> None:
        self._pace: Kept[str, Sketch] = Kept(lambda: Sketch(prior=1.0), most=1000)

    def of(self, turn: Live) -> float | None:
        """Seconds that a turn that has ended was shorter; None where that is not known."""
        usage, first_s = turn.usage, turn.first_byte_s
        if usage is None or usage.accepted_tokens is None or first_s is None or not turn.request.stream:
            return None
        tokens, took_s = usage.completion_tokens, turn.elapsed_s() - first_s
        if tokens < _FEWEST_TOKENS:
            return None
        pace = self._pace[turn.request.model]
        if usage.accepted_tokens <= _HARDLY_ANY * tokens:
            pace.add(took_s / (tokens - 1))
            return 0.0
        return max(0.0, (tokens - 1) * pace.measured_mean() - took_s) if pace.count >= _TURNS else None
