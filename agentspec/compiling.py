"""How inner loops are compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(signature: str, *, fused: bool = False) -> Callable[[F], F]:
    """Compile at import, or take it from the cache: beside the module, or in the user's cache folder.

    Args:
        fused: a product and a sum may become one instruction; nothing may be reordered either way.
    """
    options: Any = {"cache": True, "nogil": True, "error_model": "numpy"}
    if fused:
        options["fastmath"] = {"contract"}
    return cast(Callable[[F], F], numba.njit(signature, **options))
