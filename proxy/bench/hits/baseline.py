"""The plain baseline: which tool comes next, from the last two tools alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from agentspec.proxy.bench.hits.scoring import share

_START = ""
_ORDER = 2


class NameTrigram:
    """The most frequent next name after the last two, else after the last one, else of all."""

    def __init__(self) -> None:
        self._next: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)

    def predict(self, before: Sequence[str]) -> str | None:
        """The likeliest name; of equals the one seen first; None as long as nothing was seen."""
        for context in _contexts(before):
            if context in self._next:
                return self._next[context].most_common(1)[0][0]
        return None

    def learn(self, before: Sequence[str], name: str) -> None:
        """After these names came this one."""
        for context in _contexts(before):
            self._next[context][name] += 1


def _contexts(before: Sequence[str]) -> list[tuple[str, ...]]:
    marked = (_START, *before)[-_ORDER:]
    return [tuple(marked[at:]) for at in range(len(marked) + 1)]


def name_trigram(trajectories: Iterable[Sequence[str]]) -> float | None:
    """The share of calls whose name it knows, learning each as soon as it was made."""
    model = NameTrigram()
    return share(hit for names in trajectories for hit in _hits(model, names))


def _hits(model: NameTrigram, names: Sequence[str]) -> Iterable[bool]:
    for at, name in enumerate(names):
        yield model.predict(names[:at]) == name
        model.learn(names[:at], name)
