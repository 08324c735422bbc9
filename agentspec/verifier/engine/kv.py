"""Where keys and values lie, and what one forward does there: written first, then looked at.

Two stores do the same. `kv_compiled` is for float32 on a CPU and gives each position the same bits whatever else runs;
`kv_gathered` works for every device and element type that torch's attention does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from agentspec.verifier.engine.table import Copy

BLOCK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class KvShape:
    """What a token costs: layers, key/value heads, head size, element type, device."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def bytes_per_token(self) -> int:
        return 2 * self.layers * self.heads * self.head_dim * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Span:
    """Rows `row` to `row + count - 1` of a forward, at positions `position`, `position + 1`, … of one table."""

    row: int
    count: int
    position: int
    table: Sequence[int]


@dataclass(slots=True)
class Layout:
    """Where a forward's rows go.

    Attributes:
        spans: what each row sees: its table up to its own position.
        rows, blocks, offsets: row `rows[i]` is written to block `blocks[i]` at `offsets[i]`; a row that several
            branches of a draft have in common is written to each one's table.
    """

    spans: list[Span] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    blocks: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)


class Attention(Protocol):
    """One forward's attention, called by each layer in turn."""

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        """`query [tokens, heads, dim]`, `key` and `value` `[tokens, kv_heads, dim]` -> like `query`."""
        ...


class KvStore(Protocol):
    """Keys and values of all blocks. Only the worker thread touches it."""

    def copy(self, copies: Iterable[Copy]) -> None:
        """Copy blocks, in order."""
        ...

    def attention(self, layout: Layout) -> Attention:
        """What the layers of one forward call."""
        ...
