"""What was predicted and what came instead, in context, fading: a predictor's habits of being wrong."""

from __future__ import annotations

from collections import OrderedDict

FADE = 0.97
MAX_CONTEXTS = 20_000


class Confusions:
    """Fading counts of actual names by (predicted name, last action)."""

    def __init__(self) -> None:
        self.counts: OrderedDict[tuple[str, str], dict[str, float]] = OrderedDict()

    def learn(self, predicted: str, last: str, actual: str) -> None:
        """`predicted` was likeliest after `last`; `actual` came."""
        counts = self.counts.setdefault((predicted, last), {})
        for name in counts:
            counts[name] *= FADE
        counts[actual] = counts.get(actual, 0.0) + 1.0
        self.counts.move_to_end((predicted, last))
        if len(self.counts) > MAX_CONTEXTS:
            self.counts.popitem(last=False)

    def share(self, predicted: str, last: str, name: str) -> tuple[float, float]:
        """How often `name` came where `predicted` was predicted after `last` (0..1), and the weight behind it."""
        counts = self.counts.get((predicted, last), {})
        total = sum(counts.values())
        return (counts.get(name, 0.0) / total if total else 0.0), total
