"""How inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(signature: str) -> Callable[[F], F]:
    """Compile at import, or take it from the cache: beside the module, or in the user's cache folder."""
    return cast(Callable[[F], F], numba.njit(signature, cache=True, nogil=True, error_model="numpy"))
