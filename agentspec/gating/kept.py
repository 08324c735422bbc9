"""A dict that makes what is missing and forgets what nobody has asked for longest: nothing measured grows for ever."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """At most `most` values by key.

    >>> kept = Kept(list, most=1)
    >>> kept["a"].append(1)
    >>> kept["a"], len(kept["b"]), kept["a"]
    ([1], 0, [])
    """

    def __init__(self, make: Callable[[], V], most: int = 10_000) -> None:
        self._make = make
        self._most = most
        self._values: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, key: K) -> V:
        if (value := self._values.get(key)) is not None:
            self._values.move_to_end(key)
            return value
        value = self._values[key] = self._make()
        if len(self._values) > self._most:
            self._values.popitem(last=False)
        return value

    def seen(self, key: K) -> V | None:
        """What is kept under a key; None where nothing is."""
        return self._values.get(key)

    def items(self) -> list[tuple[K, V]]:
        """All of it, the one asked for longest ago first."""
        return list(self._values.items())
