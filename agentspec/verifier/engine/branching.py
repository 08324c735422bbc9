"""A tree of drafts laid out for the forward: which rows, on which branches, over which blocks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.engine.forward import Branch, Segment
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.table import BlockTable, Copy

_BRANCHES = 4  # each one beyond the first costs a copy of the last block


@dataclass(frozen=True, slots=True)
class Planted:
    """A tree with memory for each of its branches.

    Attributes:
        tree: what is verified.
        rows: for each node its row in the segment; row 0 is the sequence's last token.
        paths: for each branch its nodes, from the first drafted token on.
        tables: for each branch its blocks; the first is the sequence's own.
    """

    tree: TokenTree
    rows: tuple[int, ...]
    paths: tuple[tuple[int, ...], ...]
    tables: tuple[BlockTable, ...]

    def segment(self, last: int) -> Segment:
        """The rows to run: the sequence's last token, then the drafted ones branch by branch; all logits are needed."""
        tokens = [last] * (1 + len(self.tree))
        for node, row in enumerate(self.rows):
            tokens[row] = self.tree.tokens[node]
        branches = tuple(
            Branch(table.blocks, (0, *(self.rows[node] for node in path)))
            for path, table in zip(self.paths, self.tables, strict=True)
        )
        return Segment(tokens, self.tables[0].filled, branches, len(tokens))

    def abandon(self, paging: Paging) -> None:
        """The forward failed: only the sequence's own table stays."""
        for table in self.tables[1:]:
            paging.drop(table)

    def settle(self, path: Collection[int], paging: Paging) -> BlockTable:
        """Keep the branch that `path` went along and let the others go; its table, filled as far as nodes stood."""
        stood = set(path)
        best = max(range(len(self.paths)), key=lambda branch: len(stood.intersection(self.paths[branch])))
        for branch, table in enumerate(self.tables):
            if branch != best:
                paging.drop(table)
        kept = self.tables[best]
        kept.filled += 1 + len(path)
        paging.trim(kept)
        return kept


@dataclass(slots=True)
class Planting:
    """What `plant` did.

    Attributes:
        planted: None: there was no room for any draft.
        copies: to be done before the forward.
    """

    planted: Planted | None
    copies: list[Copy] = field(default_factory=list)


def plant(tree: TokenTree, table: BlockTable, paging: Paging) -> Planting:
    """Give each branch of a tree its blocks, as far as there is room without taking any from a sequence.

    Args:
        table: the sequence's, in which the position of its last token is writable already.
    """
    tree = pruned(tree, _BRANCHES)
    paths = _paths(tree)
    past = table.filled
    done = Planting(None)
    tables: list[BlockTable] = []
    for branch, path in enumerate(paths):
        own = table if branch == 0 else paging.fork(table, past)
        copies = paging.extend(own, past + 1 + len(path))
        if copies is None:
            if branch == 0:
                return done
            paging.drop(own)
            tree = kept_nodes(tree, {node for path in paths[:branch] for node in path})
            paths = _paths(tree)
            break
        done.copies += copies
        tables.append(own)
    rows = [0] * len(tree)
    for row, node in enumerate(_depth_first(tree), start=1):
        rows[node] = row
    done.planted = Planted(tree, tuple(rows), tuple(paths), tuple(tables))
    return done


def kept_nodes(tree: TokenTree, kept: Collection[int]) -> TokenTree:
    """The tree of some nodes, each with its parent."""
    places = sorted(kept)
    number = {node: index for index, node in enumerate(places)}
    return TokenTree(
        tuple(tree.tokens[n] for n in places),
        tuple(number.get(tree.parents[n], ROOT) for n in places),
        tuple(tree.confidences[n] for n in places),
        tuple(tree.sources[n] for n in places),
    )


def pruned(tree: TokenTree, branches: int) -> TokenTree:
    """The tree cut to its likeliest so many branches."""
    kept: set[int] = set()
    followed: set[int] = set()
    leaves = 1
    for node, parent in enumerate(tree.parents):
        forks = parent in followed
        if (parent != ROOT and parent not in kept) or (forks and leaves == branches):
            continue
        leaves += forks
        followed.add(parent)
        kept.add(node)
    return tree if len(kept) == len(tree) else kept_nodes(tree, kept)


def _depth_first(tree: TokenTree) -> list[int]:
    order: list[int] = []
    waiting = tree.children(ROOT)[::-1]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting += tree.children(node)[::-1]
    return order


def _paths(tree: TokenTree) -> list[tuple[int, ...]]:
    """For each leaf, depth first, the nodes to it."""
    inner = set(tree.parents)
    return [tuple(tree.path(node)) for node in _depth_first(tree) if node not in inner]
