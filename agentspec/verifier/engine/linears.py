"""Linear layers for small batches on a CPU: oneDNN with weights packed once.

torch's own float32 path calls a matrix-vector kernel for one row and a general one for a few, which is two to six times
slower than memory allows. Packed oneDNN kernels run a few rows at the cost of reading the weights once, four to six
even faster than one (by a fifth, AVX-512), so fewer are filled up to four. From two rows on they compute each row the
same way however many there are, bit for bit, so that a sequence does not depend on who shares its batch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

_ROWS_HINT = 16  # packing for one row alone would choose the layout that is slow for more
_LEAST_ROWS = 4


class PackedLinear(nn.Module):
    """`nn.Linear` for inference, float32 on the CPU; `[..., in]` -> `[..., out]`."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self._packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _ROWS_HINT)
        self._bias = None if linear.bias is None else linear.bias.detach()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        count = rows.shape[-2]
        if 0 < count < _LEAST_ROWS:
            return self._run(functional.pad(rows, (0, 0, 0, _LEAST_ROWS - count))).narrow(-2, 0, count)
        return self._run(rows)

    def _run(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._packed, self._bias, "none", [], "")
        return out


def pack_linears(model: nn.Module) -> int:
    """Replace the model's linear layers in place, one at a time (the old weights are freed as it goes).

    Returns:
        How many were replaced: 0 where this build of torch has no oneDNN.
    """
    if not works():
        return 0
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child.weight.dtype is torch.float32 and child.weight.device.type == "cpu":
                packed: Any = PackedLinear(child)
                setattr(parent, name, packed)
                count += 1
    return count


def works() -> bool:
    """Whether the packed kernels exist here and agree with torch's."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    layer = nn.Linear(64, 96)
    rows = torch.linspace(-1, 1, 3 * 64).view(1, 3, 64)
    try:
        with torch.inference_mode():
            return torch.allclose(PackedLinear(layer)(rows), layer(rows), atol=1e-5)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
