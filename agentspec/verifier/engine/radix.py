"""Which token prefixes lie in which blocks: a tree, one node for each block.

A node's key is its block's tokens. Inner nodes are full; a leaf may hold a partial block. The tree holds one reference
to each of its blocks, and whoever uses a block uses all before it, so a leaf that only the tree holds can go any time.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentspec.verifier.engine.blocks import BlockPool

_ROOT = -1
_SESSIONS = 256  # open ones that are remembered
_SLACK = 1024  # outdated entries that the heap may hold


@dataclass(slots=True, eq=False)
class Node:
    """One block of some prefix.

    Attributes:
        tokens: what the block holds, at most a block's length.
        used: when it was last used (a counter of the tree's).
        open: sessions that wait for a tool, whose last turn went through here.
    """

    tokens: tuple[int, ...]
    block: int
    parent: Node | None
    children: dict[tuple[int, ...], Node] = field(default_factory=dict)
    used: int = 0
    open: set[str] = field(default_factory=set)

    @property
    def worth(self) -> tuple[bool, int]:
        """Sorts what may go first: plain leftovers by age, then those of open sessions by age."""
        return (bool(self.open), self.used)


@dataclass(frozen=True, slots=True)
class Match:
    """The longest prefix that the tree holds.

    Attributes:
        nodes: full blocks, from the beginning.
        tail: the block that goes on, of which `tail_tokens` fit; None: nothing of it does.
    """

    nodes: tuple[Node, ...]
    tail: Node | None
    tail_tokens: int


class RadixTree:
    """Prefixes in blocks of `block_tokens` positions."""

    def __init__(self, pool: BlockPool, block_tokens: int) -> None:
        self._pool = pool
        self.block_tokens = block_tokens
        self.root = Node((), _ROOT, None)
        self._clock = 0
        self._order = 0
        self._leaves: list[tuple[bool, int, int, Node]] = []  # a heap, with entries that no longer hold
        self._kept = 0
        self._sessions: OrderedDict[str, list[Node]] = OrderedDict()
        self.evicted = 0

    def __len__(self) -> int:
        """Blocks that are kept."""
        return self._kept

    def match(self, tokens: Sequence[int]) -> Match:
        """The longest prefix of `tokens` that lies here; it counts as used now."""
        node, nodes = self.root, list[Node]()
        while True:
            at = len(nodes) * self.block_tokens
            rest = tuple(tokens[at : at + self.block_tokens])
            child = node.children.get(rest)
            if child is None or len(rest) < self.block_tokens:
                break
            nodes.append(child)
            node = child
        tail, fit = None, 0
        for child in node.children.values():
            shared = common_prefix(child.tokens, rest)
            if shared > fit:
                tail, fit = child, shared
        for touched in [*nodes, *([tail] if tail else [])]:
            self._touch(touched)
        return Match(tuple(nodes), tail, fit)

    def add(self, parent: Node, tokens: tuple[int, ...], block: int) -> Node:
        """Keep a block after `parent`; where one that begins with all of `tokens` is there already, it is returned.

        Partial blocks that the new one continues are let go.
        """
        for child in list(parent.children.values()):
            shared = common_prefix(child.tokens, tokens)
            if shared == len(tokens):
                self._touch(child)
                return child
            if shared == len(child.tokens):
                self._remove(child)
        node = Node(tokens, block, parent)
        self._pool.keep(block)
        parent.children[tokens] = node
        self._kept += 1
        self._touch(node)
        return node

    def open_session(self, session: str, leaf: Node) -> None:
        """A turn of this session ended at `leaf`, and another one is expected: it goes after plain leftovers."""
        self.close_session(session)
        path = []
        node: Node | None = leaf
        while node is not None:
            node.open.add(session)
            self._enter(node)
            path.append(node)
            node = node.parent
        self._sessions[session] = path
        if len(self._sessions) > _SESSIONS:
            self.close_session(next(iter(self._sessions)))

    def close_session(self, session: str) -> None:
        """The session goes on, or is forgotten: what it left is a leftover like any other."""
        for node in self._sessions.pop(session, ()):
            node.open.discard(session)
            self._enter(node)

    def evict(self, wanted: int) -> int:
        """Free up to `wanted` blocks, leaves that nobody uses, the least worth first; how many were freed."""
        freed, in_use = 0, []
        while freed < wanted and self._leaves:
            entry = heapq.heappop(self._leaves)
            node = entry[3]
            if node.parent is None or node.children or node.worth != entry[:2]:
                continue
            if not self._pool.is_idle(node.block):
                in_use.append(entry)
                continue
            self._remove(node)
            freed += 1
        for entry in in_use:
            heapq.heappush(self._leaves, entry)
        self.evicted += freed
        return freed

    def nodes(self) -> Iterator[Node]:
        """All nodes below the root."""
        left = list(self.root.children.values())
        while left:
            node = left.pop()
            yield node
            left += node.children.values()

    def _remove(self, node: Node) -> None:
        parent = node.parent
        assert parent is not None
        del parent.children[node.tokens]
        node.parent = None
        self._kept -= 1
        self._pool.drop(node.block)
        self._enter(parent)

    def _touch(self, node: Node) -> None:
        self._clock += 1
        node.used = self._clock
        self._enter(node)

    def _enter(self, node: Node) -> None:
        """Let the heap know of a leaf's present worth."""
        if node.parent is not None and not node.children:
            self._order += 1
            heapq.heappush(self._leaves, (*node.worth, self._order, node))
        if len(self._leaves) > 2 * self._kept + _SLACK:
            leaves = [node for node in self.nodes() if not node.children]
            self._leaves = [(*leaf.worth, index - len(leaves), leaf) for index, leaf in enumerate(leaves)]
            heapq.heapify(self._leaves)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens are equal (by halving: slices of one type are compared in C)."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
