"""Who holds which block of key/value memory: reference counts over integers, nothing else.

A block is free (nobody holds it), idle (only the tree of prefixes does, so it can be had by evicting it) or in use.
The three add up to the pool's size at any moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable


class BlockPool:
    """`total` blocks, numbered from 0.

    A block is handed out with one reference; who shares it adds one, who lets go takes one away. The tree of prefixes
    holds its references through `keep` and `drop`, so that what it alone holds can be counted.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self._references = [0] * total
        self._kept = bytearray(total)
        self._free = list(range(total))  # a heap: low ids first, so that neighbours are handed out together
        self._idle = 0

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def idle(self) -> int:
        """Blocks that only the tree holds."""
        return self._idle

    @property
    def used(self) -> int:
        """Blocks that sequences hold."""
        return self.total - len(self._free) - self._idle

    def references(self, block: int) -> int:
        return self._references[block]

    def is_idle(self, block: int) -> bool:
        return self._kept[block] == 1 and self._references[block] == 1

    def allocate(self) -> int:
        """A free block, with one reference.

        Raises:
            IndexError: none is free.
        """
        block = heapq.heappop(self._free)
        self._references[block] = 1
        return block

    def share(self, blocks: Iterable[int]) -> None:
        """Add a reference to each block, which somebody must hold already.

        Raises:
            ValueError: a block is free.
        """
        for block in blocks:
            if self._references[block] == 0:
                raise ValueError(f"block {block} is free: nothing can be shared there")
            self._idle -= self.is_idle(block)
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Take a reference away from each; a block without any is free.

        Raises:
            ValueError: a block is free already.
        """
        for block in blocks:
            if self._references[block] == 0:
                raise ValueError(f"block {block} is free already")
            self._idle -= self.is_idle(block)
            self._references[block] -= 1
            if self._references[block] == 0:
                heapq.heappush(self._free, block)
            self._idle += self.is_idle(block)

    def keep(self, block: int) -> None:
        """The tree takes a reference.

        Raises:
            ValueError: it has one, or the block is free.
        """
        if self._kept[block]:
            raise ValueError(f"block {block} is in the tree already")
        self.share([block])
        self._kept[block] = 1

    def drop(self, block: int) -> None:
        """The tree lets its reference go.

        Raises:
            ValueError: it has none.
        """
        if not self._kept[block]:
            raise ValueError(f"block {block} is not in the tree")
        self._idle -= self.is_idle(block)
        self._kept[block] = 0
        self.release([block])
