"""Which tool follows the last two tools, whatever was said in between: past trajectories and this one together."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

ORDER = 2
MAX_CONTEXTS = 50_000
_START = "\0start"

Counts = OrderedDict[tuple[str, ...], dict[str, float]]


class Trigram:
    """Counts of next tools by the last none, one and two."""

    def __init__(self) -> None:
        self.counts: Counts = OrderedDict()

    def chances(self, names: Sequence[str], classes: Sequence[str]) -> list[float]:
        """Probability of each class after these calls: what this trajectory did itself counts as it is."""
        chances = dict.fromkeys(classes, 1.0 / max(len(classes), 1))
        for context in contexts(names):
            counts = dict(self.counts.get(context, {}))
            for name in followers(names, context):
                counts[name] = counts.get(name, 0.0) + 1.0
            known = {name: counts[name] for name in classes if name in counts}
            total, novelty = sum(known.values()), 0.6 * len(known)
            if total:
                for name in classes:
                    chances[name] = (known.get(name, 0.0) + novelty * chances[name]) / (total + novelty)
        return [chances[name] for name in classes]

    def learn(self, names: Sequence[str], name: str, weight: float) -> None:
        """After these calls came this one."""
        for context in contexts(names):
            counts = self.counts.setdefault(context, {})
            counts[name] = counts.get(name, 0.0) + weight
            self.counts.move_to_end(context)
        while len(self.counts) > MAX_CONTEXTS:
            self.counts.popitem(last=False)


def contexts(names: Sequence[str]) -> list[tuple[str, ...]]:
    """The last none, one and two names, shortest first."""
    last = (_START, _START, *names)[-ORDER:]
    return [tuple(last[ORDER - order :]) for order in range(ORDER + 1)]


def followers(names: Sequence[str], context: tuple[str, ...]) -> list[str]:
    """What came after the same before, in this trajectory."""
    whole, width = (_START, _START, *names), len(context)
    return [whole[i] for i in range(ORDER, len(whole)) if whole[i - width : i] == context]
