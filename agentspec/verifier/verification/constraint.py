"""What a sequence may generate, as sampling and drafting see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch


class Constraint(Protocol):
    """One per sequence; stateful; called from the worker thread."""

    def allowed(self) -> torch.Tensor | None:
        """The tokens that may come next, `[vocab]` bool on the CPU; None: all."""
        ...

    def advance(self, token: int) -> None:
        """A token was generated."""
        ...

    def rollback(self, count: int) -> None:
        """The last `count` tokens were not generated after all."""
        ...

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, from the first, could come next; changes nothing."""
        ...

    def forced(self) -> list[int]:
        """The tokens that must come next whatever the model says (often none); not yet advanced over."""
        ...

    def finished(self) -> bool:
        """Nothing but the end may follow."""
        ...
