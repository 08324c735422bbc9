"""Several drafts as one tree: shared beginnings are verified once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

ROOT = -1  # the parent of first tokens: the sequence as it stands


@dataclass(frozen=True)
class TokenTree:
    """Drafted tokens, likeliest first: the first k nodes are the best tree of k nodes.

    Attributes:
        tokens: one id a node; siblings differ.
        parents: for each node the index of the node before it (smaller than its own), or `ROOT`.
        confidences: the estimated chance that the node's token comes if its parent came.
        sources: the drafters that proposed the node.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    sources: tuple[tuple[str, ...], ...] = field(default=())

    @classmethod
    def chain(cls, tokens: Sequence[int], confidences: Sequence[float], source: str) -> TokenTree:
        """One draft."""
        parents = tuple(range(-1, len(tokens) - 1))
        return cls(tuple(tokens), parents, tuple(confidences), ((source,),) * len(tokens))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def reach(self) -> tuple[float, ...]:
        """The estimated chance that a node is accepted: at most its parent's, never growing along the list."""
        reach: list[float] = []
        for parent, confidence in zip(self.parents, self.confidences, strict=True):
            reach.append(confidence * (reach[parent] if parent != ROOT else 1.0))
        return tuple(reach)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """How far a node's token lies ahead: 0 for the very next token."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(depths[parent] + 1 if parent != ROOT else 0)
        return tuple(depths)

    @cached_property
    def _by_token(self) -> dict[tuple[int, int], int]:
        return {(parent, token): i for i, (parent, token) in enumerate(zip(self.parents, self.tokens, strict=True))}

    def child(self, node: int, token: int) -> int | None:
        """The node after `node` (or `ROOT`) that carries a token."""
        return self._by_token.get((node, token))

    @cached_property
    def _by_parent(self) -> dict[int, list[int]]:
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return children

    def children(self, node: int) -> list[int]:
        """All nodes after `node` (or `ROOT`), likeliest first."""
        return self._by_parent.get(node, [])

    def path(self, node: int) -> list[int]:
        """The nodes from the first token to `node`, both included; empty for `ROOT`."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = self.parents[node]
        return nodes[::-1]

    def head(self, count: int) -> TokenTree:
        """The best tree of at most `count` nodes."""
        if count >= len(self):
            return self
        return TokenTree(self.tokens[:count], self.parents[:count], self.confidences[:count], self.sources[:count])

    def visible(self) -> NDArray[np.bool_]:
        """`[nodes, nodes]`: whether the row's node attends to the column's (its ancestors and itself)."""
        seen = np.eye(len(self), dtype=np.bool_)
        for node, parent in enumerate(self.parents):
            if parent != ROOT:
                seen[node] |= seen[parent]
        return seen
