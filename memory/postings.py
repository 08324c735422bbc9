"""An inverted index in arrays: which episodes hold a term. Sorted runs that are merged as they grow, as in an LSM tree
(O'Neil et al., Acta Informatica 33, 1996): adding is cheap, and a posting takes 12 bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from agentspec.memory.hashing import Codes

RUN = 8192
COMMON = 64
"""Latest episodes of a term that count."""


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
        found: list[list[int]] = [[] for _ in terms]
        counts = np.zeros(len(terms), np.int64)
        for known, numbers in self.runs:
            low, high = np.searchsorted(known, terms, "left"), np.searchsorted(known, terms, "right")
            counts += high - low
            for i in np.flatnonzero(high > low).tolist():
                found[i] += numbers[max(low[i], high[i] - COMMON) : high[i]].tolist()
        weight, total = [0.0] * len(terms), 0.0
        for i, term in enumerate(terms.tolist()):
            new = self._new.get(term, ())
            found[i] += new
            weight[i] = max(math.log((episodes + 1) / (int(counts[i]) + len(new) + 0.5)), 0.0)
            total += weight[i]
        scores: dict[int, float] = {}
        for i, numbers_of in enumerate(found):
            if weight[i] < 0.7:
                continue
            for number in numbers_of[-COMMON:]:
                scores[number] = scores.get(number, 0.0) + weight[i]
        best = sorted(scores.items(), key=lambda one: (-one[1], -one[0]))[:16]
        return [(number, score / max(total, 1e-9)) for number, score in best]
