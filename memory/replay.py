"""What was learnt lately, kept to be gone over again: past points hold back what the newest one would overturn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


class Replay(Generic[T]):
    """Past points, at most so many; a full one lets go of one at random for each that comes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[T] = []
        self._random = np.random.default_rng(1)

    def __len__(self) -> int:
        return len(self._kept)

    def some(self, count: int) -> Iterator[T]:
        """So many of them at random, none where nothing was kept yet."""
        for _ in range(count if self._kept else 0):
            yield self._kept[int(self._random.integers(len(self._kept)))]

    def keep(self, one: T) -> None:
        """Keep one more."""
        self._kept.append(one)
        if len(self._kept) > self._most:
            self._kept[int(self._random.integers(self._most))] = self._kept.pop()
