"""Keys and values for `kernels`: float32 on a CPU."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from agentspec.verifier.engine.kernels import BLOCK, attend, write
from agentspec.verifier.engine.kv import KvShape, Layout
from agentspec.verifier.engine.table import Copy

_TILE = 56  # query vectors that share one walk over the keys
_WORTH_A_THREAD = 1 << 20  # products of a query and a key; less is done before another thread has woken up


class CompiledStore:
    """Keys `[layers, blocks, heads, dim, BLOCK]`, values `[layers, blocks, heads, BLOCK, dim]`.

    Memory is the system's to hand out: what no sequence has touched takes none.
    """

    def __init__(self, shape: KvShape, blocks: int) -> None:
        self._keys = np.zeros((shape.layers, blocks, shape.heads, shape.head_dim, BLOCK), np.float32)
        self._values = np.zeros((shape.layers, blocks, shape.heads, BLOCK, shape.head_dim), np.float32)
        self._threads = max(1, torch.get_num_threads())
        self._pool = ThreadPoolExecutor(self._threads, "verifier-attention")

    def copy(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            self._keys[:, copy.target] = self._keys[:, copy.source]
            self._values[:, copy.target] = self._values[:, copy.source]

    def attention(self, layout: Layout) -> CompiledAttention:
        return CompiledAttention(self._keys, self._values, layout, (self._pool, self._threads))


class CompiledAttention:
    """See `Attention`."""

    def __init__(self, keys: Any, values: Any, layout: Layout, threads: tuple[ThreadPoolExecutor, int]) -> None:
        self._keys, self._values = keys, values
        self._layout = layout
        self._pool, self._threads = threads
        self._writes = np.array([layout.rows, layout.blocks, layout.offsets], np.int32)
        self._tables = np.array([block for span in layout.spans for block in span.table], np.int32)
        self._tiles: Any = None
        self._shares: list[tuple[int, int]] = []

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        if self._tiles is None:
            self._cut(query.shape[1] // key.shape[1], key.shape[1])
        keys, values = self._keys[layer], self._values[layer]
        write(key.contiguous().numpy(), value.contiguous().numpy(), keys, values, self._writes)
        rows = query.contiguous()
        out = torch.empty_like(rows)
        left = deque(self._shares)
        arguments = rows.numpy(), out.numpy(), keys, values, self._tiles, self._tables, np.float32(scale)

        def work() -> None:
            while left:
                try:
                    share = left.popleft()
                except IndexError:  # another thread was faster
                    return
                attend(*arguments, *share)

        helpers = [self._pool.submit(work) for _ in range(min(self._threads, len(left)) - 1)]
        work()
        for helper in helpers:
            helper.result()
        return out

    def _cut(self, groups: int, heads: int) -> None:
        """Tiles of neighbouring rows, and how they are shared out among threads."""
        size = max(1, _TILE // groups)
        tiles, table, products = [], 0, 0
        for span in self._layout.spans:
            for at in range(0, span.count, size):
                count = min(size, span.count - at)
                tiles.append((span.row + at, count, span.position + at, table))
                products += count * (span.position + at + count) * groups * heads
            table += len(span.table)
        self._tiles = np.array(tiles, np.int32).reshape(-1, 4)
        items = len(tiles) * heads
        parts = 1 if products < _WORTH_A_THREAD else min(items, 4 * self._threads)
        edges = [items * part // parts for part in range(parts + 1)] if items else [0, 0]
        self._shares = list(pairwise(edges))
