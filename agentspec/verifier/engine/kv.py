"""Key/value memory: one contiguous buffer per sequence, forked by copying a slice."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_ROUND = 64


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


class KvBuffer:
    """Keys and values of one sequence, tensor `[layers, 2, heads, capacity, head_dim]`.

    Only the worker thread touches it. How many positions are filled is the sequence's business.
    """

    __slots__ = ("data", "shape")

    def __init__(self, shape: KvShape, capacity: int) -> None:
        self.shape = shape
        rounded = -(-max(capacity, 1) // _ROUND) * _ROUND
        self.data = torch.empty(
            (shape.layers, 2, shape.heads, rounded, shape.head_dim), dtype=shape.dtype, device=shape.device
        )

    @property
    def capacity(self) -> int:
        """Positions that fit."""
        return int(self.data.shape[3])

    @property
    def nbytes(self) -> int:
        return self.data.numel() * self.data.element_size()

    def fork(self, length: int, capacity: int) -> KvBuffer:
        """A new buffer with room for `capacity` positions whose first `length` are copies of ours."""
        twin = KvBuffer(self.shape, max(capacity, length))
        twin.data[:, :, :, :length].copy_(self.data[:, :, :, :length])
        return twin

    def room_for(self, filled: int, capacity: int) -> KvBuffer:
        """Ourselves when `capacity` positions fit, else a larger copy (grown by half at least)."""
        if capacity <= self.capacity:
            return self
        return self.fork(filled, max(capacity, self.capacity * 3 // 2))
