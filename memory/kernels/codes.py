"""Codes of features, mixed from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.compiling import compiled

ODD_1, ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
SHIFT, ONE = np.uint64(29), np.uint64(1)


@compiled("uint64(uint64, uint64)")
def mixed(one: Any, other: Any) -> Any:
    """One code for two."""
    both = (one ^ (other * ODD_1)) * ODD_2
    return both ^ (both >> SHIFT)


@compiled("int32(uint64, uint64)")
def place(feature: Any, shift: Any) -> Any:
    """Where the weight of a feature lies."""
    return np.int32((feature * ODD_1) >> shift)


@compiled("uint64(uint64, int64, uint64)")
def paired(one: Any, number: Any, salt: Any) -> Any:
    """One code for a code and a number, another for each salt."""
    return mixed(one ^ salt, np.uint64(number) + ONE)


@compiled("uint64[:,::1](uint64[:,::1], int64[:,::1], uint64[::1])")
def columns_paired(codes: Any, numbers: Any, salts: Any) -> npt.NDArray[np.uint64]:
    """One code for each code and its number, by a salt for each column."""
    made = np.empty(numbers.shape, np.uint64)
    for i in range(numbers.shape[0]):
        for j in range(numbers.shape[1]):
            made[i, j] = paired(codes[i, j], numbers[i, j], salts[j])
    return made
