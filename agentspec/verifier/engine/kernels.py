"""Attention over paged keys and values on a CPU, compiled (numba), float32.

A query row walks the blocks of its table in order and sums within a block in one fixed order, so that its result
depends on its position alone: not on who shares the batch, on where the blocks lie, or on how many rows run at once.

Arrays are C-contiguous. `BLOCK` positions make a block; keys lie transposed in it, so that one vector instruction
serves 16 of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agentspec.compiling import compiled
from agentspec.verifier.engine.kv import BLOCK_TOKENS

BLOCK = BLOCK_TOKENS


@compiled("float32(float32)", fused=True)
def _exp(x: Any) -> Any:
    """e^x for x <= 0 (Cephes' polynomial, 2 ulp); 0 below -87."""
    clipped = max(x, np.float32(-87.0))
    magic = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer
    n = (clipped * np.float32(1.44269504088896341) + magic) - magic
    r = clipped - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    y = np.float32(1.9875691500e-4)
    y = y * r + np.float32(1.3981999507e-3)
    y = y * r + np.float32(8.3334519073e-3)
    y = y * r + np.float32(4.1665795894e-2)
    y = y * r + np.float32(1.6666665459e-1)
    y = y * r + np.float32(5.0000001201e-1)
    y = y * r * r + r + np.float32(1.0)
    return (
        y * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
        if x > np.float32(-87.0)
        else np.float32(0.0)
    )


@compiled("void(float32[::1], float32[:,::1], float32[::1])", fused=True)
def _scores(query: Any, keys: Any, out: Any) -> None:
    """`query [dim]`, `keys [dim, BLOCK]` -> `out [BLOCK]`; eight dimensions at a time."""
    for j in range(BLOCK):
        out[j] = 0.0
    dim = len(query)
    whole = dim - dim % 8
    for d in range(0, whole, 8):
        a, b, c, e = query[d], query[d + 1], query[d + 2], query[d + 3]
        f, g, h, i = query[d + 4], query[d + 5], query[d + 6], query[d + 7]
        for j in range(BLOCK):
            low = a * keys[d, j] + b * keys[d + 1, j] + c * keys[d + 2, j] + e * keys[d + 3, j]
            high = f * keys[d + 4, j] + g * keys[d + 5, j] + h * keys[d + 6, j] + i * keys[d + 7, j]
            out[j] += low + high
    for d in range(whole, dim):
        for j in range(BLOCK):
            out[j] += query[d] * keys[d, j]


@compiled("void(float32[::1], float32[:,::1], float32, float32[::1])", fused=True)
def _weigh(chances: Any, values: Any, shrink: Any, total: Any) -> None:
    """`total [dim]` = `shrink * total + chances [BLOCK] @ values [BLOCK, dim]`; eight keys at a time."""
    dim = len(total)
    for d in range(dim):
        total[d] *= shrink
    for j in range(0, BLOCK, 8):
        a, b, c, e = chances[j], chances[j + 1], chances[j + 2], chances[j + 3]
        f, g, h, i = chances[j + 4], chances[j + 5], chances[j + 6], chances[j + 7]
        for d in range(dim):
            low = a * values[j, d] + b * values[j + 1, d] + c * values[j + 2, d] + e * values[j + 3, d]
            high = f * values[j + 4, d] + g * values[j + 5, d] + h * values[j + 6, d] + i * values[j + 7, d]
            total[d] += low + high


@compiled("float32(float32[::1], int64, float32, float32[::1])", fused=True)
def _soften(chances: Any, seen: Any, peak: Any, lanes: Any) -> Any:
    """Turn scores into weights under the higher of the old and this block's peak, which is returned.

    Args:
        chances: scores `[BLOCK]`, become weights; those from `seen` on count nothing.
        peak: the highest score of the blocks before.
        lanes: sums of weights `[BLOCK]`, brought up to date.
    """
    higher = peak
    for j in range(seen):
        higher = max(higher, chances[j])
    shrink = _exp(peak - higher)
    for j in range(BLOCK):
        weight = _exp(chances[j] - higher) if j < seen else np.float32(0.0)
        chances[j] = weight
        lanes[j] = lanes[j] * shrink + weight
    return higher


@compiled("void(float32[::1], float32, float32[::1], float32[::1], float32[::1])", fused=True)
def _begin(query: Any, scale: Any, scaled: Any, total: Any, lanes: Any) -> None:
    """The sums of one query vector at nothing."""
    for d in range(len(query)):
        scaled[d] = query[d] * scale
        total[d] = 0.0
    for j in range(BLOCK):
        lanes[j] = 0.0


@compiled("void(float32[::1], float32[::1], float32[::1])", fused=True)
def _finish(total: Any, lanes: Any, out: Any) -> None:
    """The weighted mean of the values."""
    mass = np.float32(0.0)
    for j in range(BLOCK):
        mass += lanes[j]
    for d in range(len(total)):
        out[d] = total[d] / mass


@compiled(
    "void(float32[:,:,::1], float32[:,:,::1], float32[:,:,:,::1], float32[:,:,:,::1],"
    " int32[:,::1], int32[::1], float32, int64, int64)",
    fused=True,
)
def attend(  # noqa: PLR0913 - a kernel is given its arrays one by one, and is its loops
    query: Any, out: Any, keys: Any, values: Any, tiles: Any, tables: Any, scale: Any, start: Any, end: Any
) -> None:
    """Attention of the work items `start` to `end - 1`; item `i` is tile `i // kv_heads` at head `i % kv_heads`.

    Args:
        query: `[tokens, heads, dim]`.
        out: like `query`, is filled.
        keys: `[blocks, kv_heads, dim, BLOCK]`.
        values: `[blocks, kv_heads, BLOCK, dim]`.
        tiles: `[n, 4]`: first row of `query`, rows, position of the first row, where its table begins.
        tables: block ids, one table after the other.
    """
    heads = keys.shape[1]
    groups = query.shape[1] // heads
    dim = query.shape[2]
    most = 0
    for tile in range(len(tiles)):
        most = max(most, tiles[tile, 1] * groups)
    scaled = np.empty((most, dim), np.float32)
    total = np.empty((most, dim), np.float32)
    lanes = np.empty((most, BLOCK), np.float32)
    peak = np.empty(most, np.float32)
    chances = np.empty(BLOCK, np.float32)
    for item in range(start, end):
        row, rows, position, table = tiles[item // heads]
        head = item % heads
        for r in range(rows * groups):
            _begin(query[row + r // groups, head * groups + r % groups], scale, scaled[r], total[r], lanes[r])
            peak[r] = -np.inf
        for at in range(0, position + rows, BLOCK):
            block = tables[table + at // BLOCK]
            for r in range(rows * groups):
                seen = position + r // groups + 1 - at
                if seen > 0:
                    _scores(scaled[r], keys[block, head], chances)
                    higher = _soften(chances, min(seen, BLOCK), peak[r], lanes[r])
                    _weigh(chances, values[block, head], _exp(peak[r] - higher), total[r])
                    peak[r] = higher
        for r in range(rows * groups):
            _finish(total[r], lanes[r], out[row + r // groups, head * groups + r % groups])


@compiled("void(float32[:,:,::1], float32[:,:,::1], float32[:,:,:,::1], float32[:,:,:,::1], int32[:,::1])", fused=True)
def write(key: Any, value: Any, keys: Any, values: Any, writes: Any) -> None:
    """Put rows into their blocks.

    Args:
        key: and `value`: `[tokens, kv_heads, dim]`.
        keys: `[blocks, kv_heads, dim, BLOCK]`.
        values: `[blocks, kv_heads, BLOCK, dim]`.
        writes: `[3, n]`: row, block, offset in the block.
    """
    for i in range(writes.shape[1]):
        row, block, offset = writes[0, i], writes[1, i], writes[2, i]
        for head in range(key.shape[1]):
            for d in range(key.shape[2]):
                keys[block, head, d, offset] = key[row, head, d]
                values[block, head, offset, d] = value[row, head, d]
