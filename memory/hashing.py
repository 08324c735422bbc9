"""Stable hashes of what is seen, and hashed weights that learn online.

A feature is any 64-bit code; its weight lies at the code's place in one table (the hashing trick, Weinberger et al.,
"Feature Hashing for Large Scale Multitask Learning", ICML 2009). Weights learn by AdaGrad (Duchi et al., JMLR 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

Codes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.floating[Any]]
Places = npt.NDArray[np.integer[Any]]

_ODD_1, _ODD_2 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT = np.uint64(29)


def code(text: str) -> int:
    """The 64-bit code of a text, the same in every process."""
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


def codes(texts: list[str]) -> Codes:
    """The codes of several texts."""
    return np.fromiter((code(text) for text in texts), np.uint64, len(texts))


def mix(one: Codes, other: Codes) -> Codes:
    """One code for each pair of codes; broadcasts like numpy does."""
    mixed = (one ^ (other * _ODD_1)) * _ODD_2
    mixed ^= mixed >> _SHIFT
    return mixed


def key(text: str) -> Codes:
    """The code of a text as an array of one, to mix with others."""
    return np.array([code(text)], np.uint64)


def paired(columns: Sequence[tuple[Codes, Places]], salts: Codes) -> Codes:
    """(rows, columns): one code for each pair of a code and a number, another for each column."""
    ones = np.empty((len(columns[0][0]), len(columns)), np.uint64)
    others = np.empty_like(ones)
    for i, (one, other) in enumerate(columns):
        ones[:, i] = one
        others[:, i] = other
    return mix(ones ^ salts[: len(columns)], others + np.uint64(1))


CERTAIN_SHARE, FADE = 0.04, 0.98
"""Each expert's share for certain, and what is left of its merits after one more point."""


class HashedWeights:
    """Weights of hashed features, 2**bits of them (8 bytes each with their AdaGrad sums)."""

    def __init__(self, bits: int, rate: float, floor: float = 1.0) -> None:
        self.rate = rate
        self.floor = np.float32(floor)
        self._shift = np.uint64(64 - bits)
        self.weights: Floats = np.zeros(1 << bits, np.float32)
        self.squares: Floats = np.full(1 << bits, floor, np.float32)

    def places(self, features: Codes) -> Places:
        """Where the weights of these features lie."""
        return ((features * _ODD_1) >> self._shift).astype(np.int64)

    def scores(self, places: Places) -> Floats:
        """Sum of the weights of each row of places."""
        return np.asarray(self.weights[places].sum(axis=-1), np.float32)

    def learn(self, places: Places, errors: Floats, rates: Floats | None = None) -> None:
        """One AdaGrad step: `errors` is the loss's derivative by each row's score; `rates`: of each column."""
        flat = places.ravel()
        slopes = np.repeat(errors, places.shape[-1]).astype(np.float32)
        np.add.at(self.squares, flat, slopes * slopes)
        rate = self.rate if rates is None else np.tile(rates, len(errors))
        np.add.at(self.weights, flat, -rate * slopes / np.sqrt(self.squares[flat]))


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
    """Probabilities from scores, along the last axis."""
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True), np.float32)
