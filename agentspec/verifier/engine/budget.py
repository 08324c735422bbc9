"""How many drafted tokens to verify: those that are likeliest, across requests, as long as they pay.

As in TETRIS (arXiv 2502.15197) the batch's tokens compete by their chance to be accepted; as in SpecDec++ (arXiv
2405.19715) a draft ends where its chance falls below what one more row costs.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.engine.cost_model import CostModel

_MARGIN = 1.02  # a gain below this is not worth the noise
_FADE = 0.98
_BELIEF = 3.0  # tokens' worth of trust in the drafters' own numbers


class Acceptance:
    """What a source's chances are worth by depth: accepted tokens over those expected, older ones fading."""

    def __init__(self) -> None:
        self._expected: dict[tuple[str, int], float] = {}
        self._accepted: dict[tuple[str, int], float] = {}

    def factor(self, source: str, depth: int) -> float:
        """Multiplies a chance; 1 while nothing is known."""
        place = (source, depth.bit_length())
        return (self._accepted.get(place, 0.0) + _BELIEF) / (self._expected.get(place, 0.0) + _BELIEF)

    def learn(self, tree: TokenTree, path: Sequence[int]) -> None:
        """Of `tree`, the nodes of `path` stood. Counted are the nodes whose parent stood, too."""
        stood = set(path)
        for node, parent in enumerate(tree.parents):
            if parent >= 0 and parent not in stood:
                continue
            for source in tree.sources[node]:
                place = (source, tree.depths[node].bit_length())
                self._expected[place] = self._expected.get(place, 0.0) * _FADE + tree.confidences[node]
                self._accepted[place] = self._accepted.get(place, 0.0) * _FADE + (node in stood)

    def rest(self) -> None:
        """Time passes: what was learnt fades, so that a source that was no good is tried again one day."""
        for counts in (self._expected, self._accepted):
            for place in counts:
                counts[place] *= 0.995

    def chances(self, tree: TokenTree) -> list[float]:
        """For each node the chance that it stands, all before it included."""
        found: list[float] = []
        for node, parent in enumerate(tree.parents):
            factor = max((self.factor(source, tree.depths[node]) for source in tree.sources[node]), default=1.0)
            found.append(min(1.0, tree.confidences[node] * factor) * (found[parent] if parent >= 0 else 1.0))
        return found


def allot(chances: Sequence[Sequence[float]], base_rows: int, cost: CostModel) -> list[set[int]]:
    """Which nodes of each tree to verify, so that the expected tokens per second are highest.

    Args:
        chances: for each sequence that decodes, its nodes' chances; never above the parent's, and parents come first.
        base_rows: rows that run anyway, one for each of these sequences included.

    Returns:
        For each sequence the nodes; a node's parent is among them. All empty when drafts do not pay.
    """
    candidates = [(-chance, node, owner) for owner, own in enumerate(chances) for node, chance in enumerate(own)]
    heapq.heapify(candidates)
    expected = float(len(chances))
    plain = expected / cost.seconds(base_rows) if chances else 0.0
    order: list[tuple[int, int]] = []
    best_rate, best_count = plain * _MARGIN, 0
    while candidates:
        missed, node, owner = heapq.heappop(candidates)
        expected -= missed
        order.append((owner, node))
        rate = expected / cost.seconds(base_rows + len(order))
        if rate > best_rate:
            best_rate, best_count = rate, len(order)
    kept: list[set[int]] = [set() for _ in chances]
    for owner, node in order[:best_count]:
        kept[owner].add(node)
    return kept
