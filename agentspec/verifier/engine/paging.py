"""Key/value memory as the engine sees it: blocks, the tables of sequences, and the tree of what was computed before.

Pure integers. The tensor side learns of it through the `Copy`s that are returned: they have to be done, in order,
before the next forward.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agentspec.verifier.engine.blocks import BlockPool
from agentspec.verifier.engine.radix import Node, RadixTree, common_prefix
from agentspec.verifier.engine.table import BlockTable, Copy


@dataclass(slots=True, eq=False)
class Lease:
    """What one sequence holds.

    Attributes:
        table: its blocks.
        node: the tree's node of its last full block that was published (the root at first).
        published: full blocks that are in the tree.
    """

    table: BlockTable
    node: Node
    published: int = 0


class Paging:
    """`blocks` blocks of `block_tokens` positions."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self.pool = BlockPool(blocks)
        self.tree = RadixTree(self.pool, block_tokens)

    @property
    def capacity(self) -> int:
        """Positions that fit in all."""
        return self.pool.total * self.block_tokens

    @property
    def available(self) -> int:
        """Blocks that can be had without taking any from a sequence."""
        return self.pool.free + self.pool.idle

    def open(self, tokens: Sequence[int], running: Iterable[tuple[Lease, Sequence[int]]]) -> Lease:
        """Share everything that is already computed of `tokens`; `lease.table.filled` says how much that is.

        The last token is always left to run: its logits are not kept.

        Args:
            running: other sequences' leases and tokens; their last, partial blocks are not in the tree yet.
        """
        usable = tokens[: len(tokens) - 1]
        match = self.tree.match(usable)
        lease = Lease(BlockTable(), self.tree.root)
        blocks = [node.block for node in match.nodes]
        filled = len(blocks) * self.block_tokens
        if match.nodes:
            lease.node = match.nodes[-1]
        lease.published = len(blocks)
        tail, fit = (match.tail.block if match.tail else -1), match.tail_tokens
        for other, theirs in running:
            if other.node is lease.node and other.table.filled > filled:
                shared = common_prefix(theirs[filled : other.table.filled], usable[filled : filled + self.block_tokens])
                if shared > fit:
                    tail, fit = other.table.blocks[lease.published], shared
        if fit:
            blocks.append(tail)
        self.pool.share(blocks)
        lease.table.blocks, lease.table.filled = blocks, filled + fit
        return lease

    def fork(self, table: BlockTable, length: int) -> BlockTable:
        """A table that shares the blocks of the first `length` positions: nothing is copied."""
        blocks = table.blocks[: -(-length // self.block_tokens)]
        self.pool.share(blocks)
        return BlockTable(blocks, length)

    def needed(self, table: BlockTable, end: int) -> int:
        """Blocks that `extend` would take."""
        return table.missing(end, self.block_tokens) + self._shares_last(table, end)

    def extend(self, table: BlockTable, end: int) -> list[Copy] | None:
        """Make positions from `table.filled` to `end` writable; None (and nothing changed): there is no room."""
        wanted = self.needed(table, end)
        short = wanted - self.pool.free
        if short > self.pool.idle:
            return None
        if short > 0:
            self.tree.evict(short)
        copies = []
        if self._shares_last(table, end):
            index = table.filled // self.block_tokens
            source, target = table.blocks[index], self.pool.allocate()
            table.blocks[index] = target
            self.pool.release([source])
            copies.append(Copy(source, target))
            wanted -= 1
        table.blocks += [self.pool.allocate() for _ in range(wanted)]
        return copies

    def publish(self, lease: Lease, tokens: Sequence[int]) -> None:
        """Put the full blocks that the sequence has filled into the tree, for others to share."""
        table, size = lease.table, self.block_tokens
        while (lease.published + 1) * size <= table.filled:
            index = lease.published
            key = tuple(tokens[index * size : (index + 1) * size])
            lease.node = self._keep(lease.node, key, table, index)
            lease.published += 1

    def close(self, lease: Lease, tokens: Sequence[int], session: str | None = None) -> None:
        """Let go; what was computed stays in the tree until its blocks are needed.

        Args:
            session: its next turn is expected to go on from here.
        """
        self.publish(lease, tokens)
        table = lease.table
        leaf = lease.node
        rest = tuple(tokens[lease.published * self.block_tokens : table.filled])
        if rest:
            leaf = self._keep(leaf, rest, table, lease.published)
        if session is not None:
            self.tree.open_session(session, leaf)
        self.drop(table)

    def drop(self, table: BlockTable) -> None:
        """Let a table's blocks go."""
        self.pool.release(table.blocks)
        table.blocks, table.filled = [], 0

    def trim(self, table: BlockTable) -> None:
        """Let go of blocks beyond what is filled."""
        keep = -(-table.filled // self.block_tokens)
        self.pool.release(table.blocks[keep:])
        del table.blocks[keep:]

    def _keep(self, parent: Node, key: tuple[int, ...], table: BlockTable, index: int) -> Node:
        """The tree's node for this block; where another holds the same tokens, the table goes over to that block."""
        node = self.tree.add(parent, key, table.blocks[index])
        if node.block != table.blocks[index] and len(node.tokens) == len(key):
            self.pool.share([node.block])
            self.pool.release([table.blocks[index]])
            table.blocks[index] = node.block
        return node

    def _shares_last(self, table: BlockTable, end: int) -> bool:
        """Whether the block that is written first holds something already and somebody else holds it, too."""
        index, used = divmod(table.filled, self.block_tokens)
        return end > table.filled and used > 0 and self.pool.references(table.blocks[index]) > 1
