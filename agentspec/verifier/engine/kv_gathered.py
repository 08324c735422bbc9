"""Keys and values for torch's own attention: any device, any element type."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.nn import functional

from agentspec.verifier.engine.kv import BLOCK_TOKENS, KvShape, Layout, Span
from agentspec.verifier.engine.table import Copy


class GatheredStore:
    """Keys and values `[layers, 2, blocks, BLOCK, heads, dim]`."""

    def __init__(self, shape: KvShape, blocks: int) -> None:
        size = (shape.layers, 2, blocks, BLOCK_TOKENS, shape.heads, shape.head_dim)
        self._data = torch.zeros(size, dtype=shape.dtype, device=shape.device)

    def copy(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            self._data[:, :, copy.target] = self._data[:, :, copy.source]

    def attention(self, layout: Layout) -> GatheredAttention:
        return GatheredAttention(self._data, layout)


class GatheredAttention:
    """See `Attention`."""

    def __init__(self, data: torch.Tensor, layout: Layout) -> None:
        device = data.device
        self._data = data
        self._rows, self._blocks, self._offsets = torch.tensor(
            [layout.rows, layout.blocks, layout.offsets], dtype=torch.long, device=device
        )
        self._spans = [(span, _places(span, device), _mask(span, device)) for span in layout.spans]

    def __call__(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float
    ) -> torch.Tensor:
        store = self._data[layer]
        store[0].index_put_((self._blocks, self._offsets), key[self._rows])
        store[1].index_put_((self._blocks, self._offsets), value[self._rows])
        out = torch.empty_like(query)
        for span, places, mask in self._spans:
            end = span.row + span.count
            seen = store[:, places].flatten(1, 2)[:, : span.position + span.count].transpose(1, 2)
            rows = query[span.row : end].transpose(0, 1).unsqueeze(0)
            got = functional.scaled_dot_product_attention(
                rows, seen[0].unsqueeze(0), seen[1].unsqueeze(0), attn_mask=mask, scale=scale, enable_gqa=True
            )
            out[span.row : end] = got[0].transpose(0, 1)
        return out


def _places(span: Span, device: torch.device) -> slice | torch.Tensor:
    """The blocks of a table: a view where they are neighbours, else to be gathered."""
    used = list(span.table[: -(-(span.position + span.count) // BLOCK_TOKENS)])
    first = used[0]
    if used == list(range(first, first + len(used))):
        return slice(first, first + len(used))
    return torch.tensor(used, dtype=torch.long, device=device)


def _mask(span: Span, device: torch.device) -> torch.Tensor | None:
    if span.count == 1:
        return None
    shape = (span.count, span.position + span.count)
    return torch.ones(shape, dtype=torch.bool, device=device).tril(span.position)
