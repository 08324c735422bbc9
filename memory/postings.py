"""An inverted index in arrays: which episodes hold a term. Sorted runs that are merged as they grow, as in an LSM tree
(O'Neil et al., Acta Informatica 33, 1996): adding is cheap, and a posting takes 12 bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentspec.memory.hashing import Codes, Places

RUN = 8192
COMMON = 64
"""Latest episodes of a term that count."""
LEAST_WEIGHT = 0.7
"""A term that more than half of all episodes hold says nothing."""
SIMILAR = 16


class Postings:
    """Terms (64-bit codes) and the numbers of the episodes that hold them, numbered in the order they came."""

    def __init__(self) -> None:
        self.runs: list[tuple[Codes, npt.NDArray[np.uint32]]] = []
        self._new: dict[int, list[int]] = {}
        self._count = 0

    @property
    def size_bytes(self) -> int:
        return sum(terms.nbytes + numbers.nbytes for terms, numbers in self.runs) + 100 * self._count

    def add(self, terms: Sequence[int], episode: int) -> None:
        """This episode holds these terms."""
        for term in terms:
            self._new.setdefault(term, []).append(episode)
        self._count += len(terms)
        if self._count >= RUN:
            self.settle()

    def settle(self) -> None:
        """Make the new postings a sorted run, and merge runs of like size."""
        if not self._count:
            return
        terms = np.fromiter((t for t, found in self._new.items() for _ in found), np.uint64, self._count)
        numbers = np.fromiter((n for found in self._new.values() for n in found), np.uint32, self._count)
        self._new, self._count = {}, 0
        order = np.argsort(terms, kind="stable")
        run = (terms[order], numbers[order])
        while self.runs and len(self.runs[-1][0]) <= 2 * len(run[0]):
            older = self.runs.pop()
            terms = np.concatenate([older[0], run[0]])
            order = np.argsort(terms, kind="stable")
            run = (terms[order], np.concatenate([older[1], run[1]])[order])
        self.runs.append(run)

    def episodes(self, term: int, limit: int) -> list[int]:
        """The latest episodes that hold this term, oldest first."""
        found: list[int] = []
        wanted = np.uint64(term)
        for terms, numbers in self.runs:
            low, high = np.searchsorted(terms, wanted, "left"), np.searchsorted(terms, wanted, "right")
            found += numbers[max(low, high - limit) : high].tolist()
        return [*found, *self._new.get(term, ())][-limit:]

    def similar(self, terms: Codes, episodes: int) -> list[tuple[int, float]]:
        """Episodes by the share of these terms' weight (inverse document frequency) that they hold, best first."""
        held: list[npt.NDArray[np.uint32]] = []
        by: list[int] = []
        counts = np.zeros(len(terms), np.int64)
        for known, numbers in self.runs:
            low, high = np.searchsorted(known, terms, "left"), np.searchsorted(known, terms, "right")
            counts += high - low
            for i in np.flatnonzero(high > low).tolist():
                held.append(numbers[max(low[i], high[i] - COMMON) : high[i]])
                by.append(i)
        for i, term in enumerate(terms.tolist()):
            new = self._new.get(term)
            if new:
                counts[i] += len(new)
                held.append(np.array(new[-COMMON:], np.uint32))
                by.append(i)
        if not held:
            return []
        weights = np.maximum(np.log((episodes + 1) / (counts + 0.5)), 0.0)
        which = np.repeat(by, [len(one) for one in held])
        numbers_of = np.concatenate(held)
        counted = _latest(which) & (weights[which] >= LEAST_WEIGHT)
        distinct, inverse = np.unique(numbers_of[counted], return_inverse=True)
        scores = np.bincount(inverse, weights=weights[which[counted]], minlength=len(distinct))
        best = np.lexsort((-distinct.astype(np.int64), -scores))[:SIMILAR]
        total = max(float(weights.sum()), 1e-9)
        return [(int(distinct[i]), float(scores[i]) / total) for i in best]


def _latest(which: Places) -> npt.NDArray[np.bool_]:
    """Which postings are among the latest `COMMON` of their term; a term's come from several runs, the older first."""
    order = np.argsort(which, kind="stable")
    sizes = np.bincount(which)
    ends = np.cumsum(sizes)
    left = np.empty(len(which), np.int64)
    left[order] = np.repeat(ends, sizes) - np.arange(len(which))
    latest: npt.NDArray[np.bool_] = left <= COMMON
    return latest
