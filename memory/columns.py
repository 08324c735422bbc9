"""Columns that grow: numbers in an array, and distinct texts numbered in the order they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.memory.hashing import code


class Numbers:
    """A column of numbers that grows."""

    def __init__(self) -> None:
        self._all: npt.NDArray[np.int64] = np.zeros(64, np.int64)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def append(self, number: int) -> None:
        """One more."""
        if self._size == len(self._all):
            self._all = np.concatenate([self._all, np.zeros(len(self._all) + 64, np.int64)])
        self._all[self._size] = number
        self._size += 1

    def fork(self) -> Numbers:
        """The same up to here."""
        other = Numbers()
        other._all, other._size = self._all[: self._size + 32].copy(), self._size
        return other

    @property
    def array(self) -> npt.NDArray[np.int64]:
        """All of them; what is written here is written."""
        return self._all[: self._size]


class Texts:
    """Distinct texts, their codes, and their numbers."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self.codes: list[int] = []
        self.numbers: dict[str, int] = {}
        self.by_code: dict[int, int] = {}
        self._array: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.listed)

    def number(self, text: str) -> int:
        """The number of a text, a new one for a new text."""
        known = self.numbers.get(text)
        if known is None:
            known = self.numbers[text] = len(self.listed)
            self.listed.append(text)
            self.codes.append(code(text))
            self.by_code[self.codes[-1]] = known
        return known

    def fork(self) -> Texts:
        """The same up to here."""
        other = Texts()
        other.listed, other.codes, other.numbers = self.listed.copy(), self.codes.copy(), self.numbers.copy()
        other.by_code, other._array = self.by_code.copy(), self._array
        return other

    @property
    def array(self) -> npt.NDArray[np.uint64]:
        """The codes."""
        if len(self._array) != len(self.codes):
            self._array = np.array(self.codes, np.uint64)
        return self._array


def flat(text: Any) -> str:
    """A text, number or flag as one looks for it in other texts; "" for what is not looked for."""
    if isinstance(text, str):
        found = text.lower()
    elif isinstance(text, (int, float)) and not isinstance(text, bool):
        found = str(text)
    else:
        return ""
    return found if len(found) > 1 else ""
