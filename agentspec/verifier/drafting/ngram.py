"""Prompt lookup: what followed the last time that the request's own text read like its end (arXiv 2304.04487 and
transformers' `prompt_lookup_num_tokens`). No memory of other requests, almost no cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentspec.compiling import compiled
from agentspec.verifier.drafting.protocol import Draft, Opening

_LEAST = 2  # tokens that must agree
_LONGEST = 64  # tokens of agreement that are counted
_CANDIDATES = 256  # earlier places that are looked at
_DOUBT = 1.5
_LEAST_REACH = 0.02
Ints = NDArray[np.int32]


@compiled("int64(int32[::1], int64, int64)")
def _pair(tokens: Ints, end: int, buckets: int) -> int:
    """The bucket of the two tokens before `end`."""
    mixed = np.uint64(tokens[end - 2]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(tokens[end - 1])
    return int((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> np.uint64(33)) & (buckets - 1)


@compiled("void(int32[::1], int32[::1], int32[::1], int64, int64)")
def _enter(tokens: Ints, heads: Ints, earlier: Ints, start: int, end: int) -> None:
    """Chain positions by the pair before them, as LZ77 does: `heads[bucket]` the last, `earlier` the one before."""
    for position in range(max(start, _LEAST), end):
        bucket = _pair(tokens, position, heads.shape[0])
        earlier[position] = heads[bucket]
        heads[bucket] = position


@compiled("UniTuple(int64, 2)(int32[::1], int32[::1], int32[::1], int64)")
def _find(tokens: Ints, heads: Ints, earlier: Ints, end: int) -> tuple[int, int]:
    """The latest position whose preceding tokens agree longest with those before `end`, and how many agree."""
    best, most = 0, _LEAST - 1
    position = int(heads[_pair(tokens, end, heads.shape[0])])
    for _ in range(_CANDIDATES):
        if position <= 0:
            break
        agreed = 0
        while agreed < min(_LONGEST, position) and tokens[position - 1 - agreed] == tokens[end - 1 - agreed]:
            agreed += 1
        if agreed > most:
            best, most = position, agreed
        position = int(earlier[position])
    return best, most


def worth(agreed: int, limit_tokens: int) -> tuple[float, ...]:
    """Confidences of a draft after so many tokens of agreement, as far as it is likely enough to be reached."""
    sure: list[float] = []
    reach = 1.0
    while len(sure) < limit_tokens and reach >= _LEAST_REACH:
        sure.append((agreed + len(sure)) / (agreed + len(sure) + _DOUBT))
        reach *= sure[-1]
    return tuple(sure)


class NgramDrafter:
    """Looks up the request's own text."""

    name = "ngram"
    cost_s_per_token = 0.0

    def open(self, opening: Opening) -> NgramSession:
        return NgramSession(opening.prompt)


class NgramSession:
    """One request's text, each position chained to the last one before it that two equal tokens precede."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._size = len(prompt)
        capacity = max(256, 2 * self._size)
        self._tokens = np.zeros(capacity, dtype=np.int32)
        self._tokens[: self._size] = prompt
        self._index(capacity)

    def extend(self, tokens: Sequence[int]) -> None:
        start, end = self._size, self._size + len(tokens)
        if end > len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros(max(end, len(self._tokens)), dtype=np.int32)])
            self._index(len(self._tokens))
        self._tokens[start:end] = tokens
        self._size = end
        _enter(self._tokens, self._heads, self._earlier, start, end)

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        if self._size <= _LEAST or limit_tokens <= 0:
            return ()
        position, agreed = _find(self._tokens, self._heads, self._earlier, self._size)
        if agreed < _LEAST:
            return ()
        sure = worth(agreed, limit_tokens)
        tokens = self._tokens[position : min(self._size, position + len(sure))].tolist()
        period = len(tokens)
        tokens += [tokens[i % period] for i in range(period, len(sure))]  # what repeats itself goes on doing so
        return (Draft(tuple(tokens), sure, NgramDrafter.name),)

    def close(self) -> None:
        """Nothing is kept."""

    def _index(self, capacity: int) -> None:
        self._heads = np.zeros(1 << (2 * capacity).bit_length(), dtype=np.int32)
        self._earlier = np.zeros(capacity, dtype=np.int32)
        _enter(self._tokens, self._heads, self._earlier, 0, self._size)
