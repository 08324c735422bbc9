"""What drafters' confidences turn out to be worth, measured by the tokens that really came."""

from __future__ import annotations

from collections.abc import Sequence

from agentspec.verifier.drafting.tree import ROOT, TokenTree

_BINS = 10
_BELIEF = 8.0  # observations that a drafter's own number counts for
_FADE = 1.0 - 1.0 / 400.0  # of what was observed, with each further observation


class Calibration:
    """Counts tokens that were proposed, and those of them that came, by who proposed them (one drafter, or several
    that agree) and by the tenth in which their confidence lies."""

    def __init__(self) -> None:
        self._seen: dict[tuple[tuple[str, ...], int], float] = {}
        self._came: dict[tuple[tuple[str, ...], int], float] = {}

    def corrected(self, sources: tuple[str, ...], confidence: float) -> float:
        """The share that came where these drafters were as sure as this; their own word where little is known."""
        place = (sources, _bin(confidence))
        return (self._came.get(place, 0.0) + _BELIEF * confidence) / (self._seen.get(place, 0.0) + _BELIEF)

    def learn(self, tree: TokenTree, claimed: Sequence[float], tokens: Sequence[int]) -> None:
        """`tokens` came where `tree` was proposed; `claimed` are its nodes' confidences before correction.

        A node counts when all before it came.
        """
        at = ROOT
        for token in tokens:
            for node in tree.children(at):
                place = (tree.sources[node], _bin(claimed[node]))
                self._seen[place] = self._seen.get(place, 0.0) * _FADE + 1.0
                self._came[place] = self._came.get(place, 0.0) * _FADE + (tree.tokens[node] == token)
            child = tree.child(at, token)
            if child is None:
                return
            at = child


def _bin(confidence: float) -> int:
    return min(_BINS - 1, int(confidence * _BINS))
