"""Which tokens are already computed: the longest common prefix among live and finished sequences."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from agentspec.verifier.engine.kv import KvBuffer


@dataclass(frozen=True, slots=True)
class Source:
    """Tokens whose keys and values lie in `kv` (the first `len(tokens)` positions)."""

    tokens: list[int]
    kv: KvBuffer


def common_prefix(a: list[int], b: list[int]) -> int:
    """How many leading tokens are equal (by halving: slice comparison runs in C)."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def best_source(tokens: list[int], sources: Iterable[Source]) -> tuple[Source | None, int]:
    """The source that shares most leading tokens, and how many; `(None, 0)` when none shares any."""
    best: Source | None = None
    length = 0
    for source in sources:
        shared = common_prefix(tokens, source.tokens)
        if shared > length:
            best, length = source, shared
    return best, length


class PrefixCache:
    """Finished sequences, least recently used first out, at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[int, Source] = OrderedDict()
        self._next = 0
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def sources(self) -> list[Source]:
        return list(self._entries.values())

    def touch(self, source: Source) -> None:
        """Mark as just used."""
        for key, entry in self._entries.items():
            if entry is source:
                self._entries.move_to_end(key)
                return

    def add(self, source: Source) -> None:
        """Keep a finished sequence, unless one that is kept already begins with all of it; evict down to the limit."""
        length = len(source.tokens)
        if length == 0 or source.kv.nbytes > self._limit:
            return
        for key, entry in list(self._entries.items()):
            shared = common_prefix(entry.tokens, source.tokens)
            if shared == length:
                self._entries.move_to_end(key)
                return
            if shared == len(entry.tokens):
                self._drop(key)
        self._entries[self._next] = source
        self._next += 1
        self.nbytes += source.kv.nbytes
        while self.nbytes > self._limit:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: int) -> None:
        self.nbytes -= self._entries.pop(key).kv.nbytes
