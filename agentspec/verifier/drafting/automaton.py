"""A suffix automaton over token ids that grows as text comes (SAM-Decoding, arXiv 2411.10666, section 3.1).

It finds, in constant time a token, the longest end of a context that occurred before, and how often each continuation
followed it (SuffixDecoding, arXiv 2411.04975, section 3: trees weighted by frequency). 120 to 240 bytes a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentspec.verifier.drafting import kernels
from agentspec.verifier.drafting.tree import ROOT

_BREAK = np.array([-1], dtype=np.int32)  # between texts: no match reaches across


@dataclass(slots=True)
class Match:
    """The longest end of a context that occurs in an automaton's text."""

    state: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Continuations:
    """A tree of what may follow, the likeliest node first: tokens, parents (`ROOT` or an earlier node), confidences."""

    tokens: list[int]
    parents: list[int]
    confidences: list[float]

    def branches(self) -> list[list[int]]:
        """The nodes from the root to each leaf, the likeliest leaf's branch first."""
        inner = set(self.parents)
        leaves = [node for node in range(len(self.tokens)) if node not in inner]
        found = []
        for leaf in leaves:
            branch, node = [], leaf
            while node != ROOT:
                branch.append(node)
                node = self.parents[node]
            found.append(branch[::-1])
        return found


class Automaton:
    """Text as a suffix automaton. Any number of matches may follow it while it grows. Not thread-safe."""

    def __init__(self, capacity_tokens: int = 256) -> None:
        self._capacity = max(16, capacity_tokens)
        self._states = np.zeros((5, 2 * self._capacity + 2), dtype=np.int32)
        self._edges = np.zeros((4, 3 * self._capacity + 4), dtype=np.int32)
        self._table = _table(self._capacity)
        self._sizes = np.array([1, 0, 0, 0], dtype=np.int64)
        self._states[kernels.LINK, 0] = self._states[kernels.HEAD, 0] = -1

    def __len__(self) -> int:
        """Tokens read."""
        return int(self._sizes[kernels.READ])

    @property
    def nbytes(self) -> int:
        return self._states.nbytes + self._edges.nbytes + self._table.nbytes

    def extend(self, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        """More of the text that is being read."""
        self._extend(np.asarray(tokens, dtype=np.int32))

    def end_text(self) -> None:
        """What comes next is another text."""
        if len(self):
            self._extend(_BREAK)

    def follow(self, match: Match, tokens: Sequence[int] | NDArray[np.int32]) -> None:
        """The match's context goes on with these tokens."""
        new = np.asarray(tokens, dtype=np.int32)
        match.state, match.length = kernels.follow(
            self._states, self._edges, self._table, match.state, match.length, new
        )

    def continuations(self, match: Match, least: int, limit: int, most: int) -> Continuations:
        """What followed the match (or the longest end of it that was followed by anything).

        Args:
            least: shortest match, in tokens, that counts.
            limit: tokens ahead at most.
            most: nodes at most.
        """
        state, length = kernels.anchor(self._states, self._edges, match.state, match.length)
        if length < least:
            return Continuations([], [], [])
        nodes = np.empty((2, most), dtype=np.int32)
        confidences = np.empty(most, dtype=np.float64)
        count = kernels.draft(self._states, self._edges, state, length, limit, nodes, confidences)
        return Continuations(nodes[0, :count].tolist(), nodes[1, :count].tolist(), confidences[:count].tolist())

    def _extend(self, tokens: NDArray[np.int32]) -> None:
        needed = len(self) + len(tokens)
        if needed > self._capacity:
            self._grow(max(needed, 2 * self._capacity))
        kernels.extend(self._states, self._edges, self._table, self._sizes, np.ascontiguousarray(tokens))

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        self._states = _widened(self._states, 2 * capacity + 2)
        self._edges = _widened(self._edges, 3 * capacity + 4)
        self._table = _table(capacity)
        kernels.index(self._edges, self._table, int(self._sizes[kernels.EDGES]))


def _table(capacity: int) -> NDArray[np.int32]:
    return np.full(1 << (6 * capacity).bit_length(), -1, dtype=np.int32)


def _widened(rows: NDArray[np.int32], width: int) -> NDArray[np.int32]:
    wide = np.zeros((rows.shape[0], width), dtype=np.int32)
    wide[:, : rows.shape[1]] = rows
    return wide
