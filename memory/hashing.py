"""Stable hashes of what is seen, and hashed weights that learn online.

A feature is any 64-bit code; its weight lies at the code's place in one table (the hashing trick, Weinberger et al.,
"Feature Hashing for Large Scale Multitask Learning", ICML 2009). Weights learn by AdaGrad (Duchi et al., JMLR 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

from agentspec.memory import kernels

Codes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.integer[Any]]


def code(text: str) -> int:
    """The 64-bit code of a text, the same in every process."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


code_of = lru_cache(maxsize=1 << 16)(code)
"""The same for texts that come again and again: names, and the words before values."""


def codes(texts: list[str]) -> Codes:
    """The codes of several texts."""
    return np.fromiter((code(text) for text in texts), np.uint64, len(texts))


def salts(name: str, count: int) -> Codes:
    """Codes that keep columns of numbers apart."""
    return codes([f"{name} {i}" for i in range(count)])


CERTAIN_SHARE, FADE = 0.04, 0.98
"""Each expert's share for certain, and what is left of its merits after one more point."""


class HashedWeights:
    """Weights of hashed features, 2**bits of them (8 bytes each with their AdaGrad sums)."""

    def __init__(self, bits: int, rate: float, floor: float = 1.0) -> None:
        self.rate = rate
        self.floor = np.float32(floor)
        self.shift = np.uint64(64 - bits)
        self.weights: Floats = np.zeros(1 << bits, np.float32)
        self.squares: Floats = np.full(1 << bits, floor, np.float32)

    def places(self, features: Codes, keys: Codes) -> npt.NDArray[np.int32]:
        """(rows, features x keys): where the weights of these features lie, each mixed with each key; 0: no feature."""
        return kernels.places(features, keys, self.shift)

    def scores(self, places: Places) -> Floats:
        """Sum of the weights of each row of places."""
        return kernels.summed(self.weights, places)

    def learn(self, places: Places, errors: Floats, rates: Floats | None = None) -> None:
        """One AdaGrad step: `errors` is the loss's derivative by each row's score; `rates`: of each column."""
        if rates is None:
            rates = np.full(places.shape[1], self.rate, np.float32)
        kernels.descend(self.weights, self.squares, places, errors, rates)


def blend(answers: Sequence[Floats], merits: Floats) -> Floats:
    """Experts' probabilities mixed by their merits (log-likelihoods), each with a small share for certain.

    The fixed share is what lets one come back (Herbster and Warmuth, Machine Learning 32, 1998).
    """
    parts = (1.0 - CERTAIN_SHARE) * softmax(merits) + CERTAIN_SHARE / len(merits)
    return np.asarray(parts @ np.stack(answers), np.float32)


def credit(merits: Floats, shares: Floats, weight: float, least: float = 1e-4) -> None:
    """Experts gave these probabilities to what came: their merits fade and take that in (in place)."""
    merits[:] = FADE**weight * merits + weight * np.log(shares + np.float32(least))


def softmax(scores: Floats) -> Floats:
    """Probabilities from scores."""
    chances = np.array(scores, np.float32)
    kernels.to_chances(chances)
    return chances
