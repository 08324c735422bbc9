"""A sequence's blocks: shared by forking, copied only where two would write the same block."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Copy:
    """Block `source` is to be copied to block `target` before the next forward."""

    source: int
    target: int


@dataclass(slots=True)
class BlockTable:
    """Position `p` lies in `blocks[p // block_tokens]`.

    Attributes:
        blocks: in order; the table holds one reference to each.
        filled: positions that hold a key and a value.
    """

    blocks: list[int] = field(default_factory=list)
    filled: int = 0

    def missing(self, end: int, block_tokens: int) -> int:
        """Blocks that have to be added before positions below `end` can be written."""
        return max(0, -(-end // block_tokens) - len(self.blocks))
