"""Sums of the weights of features, and learning them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.compiling import compiled
from agentspec.memory.kernels.codes import mixed, place


@compiled("float32[::1](uint64[:,::1], uint64[::1], float32[::1], uint64)")
def scores(made: Any, keys: Any, weights: Any, shift: Any) -> npt.NDArray[np.float32]:
    """Sum of the weights of each row's features, each mixed with each key."""
    sums = np.zeros(len(made), np.float32)
    for i in range(len(made)):
        total = np.float32(0.0)
        for j in range(made.shape[1]):
            if made[i, j]:
                for key in keys:
                    total += weights[place(mixed(made[i, j], key), shift)]
        sums[i] = total
    return sums


@compiled("float32[::1](uint64[:,::1], float32[::1], uint64[::1], float32[::1], uint64)")
def occurrence_scores(made: Any, known: Any, keys: Any, weights: Any, shift: Any) -> npt.NDArray[np.float32]:
    """`scores`, where the first 16 features' worth under the first key is `known`."""
    sums = np.empty(len(made), np.float32)
    for i in range(len(made)):
        total = known[i]
        for j in range(made.shape[1]):
            for k in range(j < 16, len(keys)):
                total += weights[place(mixed(made[i, j], keys[k]), shift)]
        sums[i] = total
    return sums


@compiled("int32[:,::1](uint64[:,::1], uint64[::1], uint64)")
def places(made: Any, keys: Any, shift: Any) -> npt.NDArray[np.int32]:
    """(rows, features x keys): where the weights of each row's features lie; 0 where there is none."""
    found = np.zeros((len(made), made.shape[1] * len(keys)), np.int32)
    for i in range(len(made)):
        for j in range(made.shape[1]):
            if made[i, j]:
                for k in range(len(keys)):
                    found[i, j * len(keys) + k] = place(mixed(made[i, j], keys[k]), shift)
    return found


@compiled("int32[:,::1](uint64[::1], uint64[::1], uint64[:,::1], uint64, uint64)")
def class_places(shared: Any, keys: Any, own: Any, any_class: Any, shift: Any) -> npt.NDArray[np.int32]:
    """(classes, shared + 2 own): shared features by class, own features for any class, own features by class."""
    wide, few = len(shared), own.shape[1]
    found = np.empty((len(keys), wide + 2 * few), np.int32)
    for i in range(len(keys)):
        for j in range(wide):
            found[i, j] = place(mixed(shared[j], keys[i]), shift)
        for j in range(few):
            found[i, wide + j] = place(mixed(own[i, j], any_class), shift)
            found[i, wide + few + j] = place(mixed(own[i, j], keys[i]), shift)
    return found


@compiled("int32[:,::1](uint64[:,::1], uint64[::1], uint64, uint64)")
def row_places(own: Any, keys: Any, any_row: Any, shift: Any) -> npt.NDArray[np.int32]:
    """(rows, 2 own): each row's features for any row, then by the row's key."""
    few = own.shape[1]
    found = np.empty((len(own), 2 * few), np.int32)
    for i in range(len(own)):
        for j in range(few):
            found[i, j] = place(mixed(own[i, j], any_row), shift)
            found[i, few + j] = place(mixed(own[i, j], keys[i]), shift)
    return found


@compiled("void(float32[::1])")
def to_chances(found: Any) -> None:
    """Scores become probabilities, in place."""
    highest = np.float32(-np.inf)
    for one in found:
        highest = max(highest, one)
    total = 0.0
    for i in range(len(found)):
        found[i] = math.exp(found[i] - highest)
        total += found[i]
    for i in range(len(found)):
        found[i] /= total


@compiled("float32[::1](float32[::1], int32[:,::1])")
def summed(weights: Any, at: Any) -> npt.NDArray[np.float32]:
    """Sum of the weights of each row of places."""
    sums = np.zeros(len(at), np.float32)
    for i in range(len(at)):
        total = np.float32(0.0)
        for j in range(at.shape[1]):
            total += weights[at[i, j]]
        sums[i] = total
    return sums


@compiled("void(float32[::1], float32[::1], int32[:,::1], float32[::1], float32[::1])")
def descend(weights: Any, squares: Any, at: Any, slopes: Any, rates: Any) -> None:
    """One AdaGrad step (Duchi et al., JMLR 2011). `slopes`: of the loss by a row's score; `rates`: of each column."""
    for i in range(len(at)):
        for j in range(at.shape[1]):
            squares[at[i, j]] += slopes[i] * slopes[i]
    for i in range(len(at)):
        for j in range(at.shape[1]):
            weights[at[i, j]] -= rates[j] * slopes[i] / np.sqrt(squares[at[i, j]])


@compiled("void(float32[::1], float32[::1], int32[:,::1], boolean[::1], float32[::1], float64, float32[::1], float64)")
def learn_pointed(
    weights: Any, squares: Any, at: Any, right: Any, prior: Any, weight: Any, rates: Any, sure: Any
) -> None:
    """One step down -log(sum of the right rows' chances); none where that sum is beyond `sure`."""
    chances = summed(weights, at)
    for i in range(len(chances)):
        chances[i] += prior[i]
    to_chances(chances)
    total = 0.0
    for i in range(len(chances)):
        total += chances[i] if right[i] else 0.0
    if total > sure:
        return
    for i in range(len(chances)):
        chances[i] = weight * (chances[i] - (chances[i] / max(total, 1e-9) if right[i] else 0.0))
    descend(weights, squares, at, chances, rates)


@compiled("void(float32[::1], float32[::1], int32[:,::1], float32[::1], float64[::1], int64, float64, float32[::1])")
def learn_class(
    weights: Any, squares: Any, at: Any, prior: Any, trust: Any, right: Any, weight: Any, rates: Any
) -> None:
    """One step down -log(the right row's chance). `trust`: the weight of `prior` and its AdaGrad sum."""
    chances = summed(weights, at)
    for i in range(len(chances)):
        chances[i] += trust[0] * prior[i]
    to_chances(chances)
    chances[right] -= 1.0
    slope = 0.0
    for i in range(len(chances)):
        chances[i] *= weight
        slope += chances[i] * prior[i]
    descend(weights, squares, at, chances, rates)
    trust[1] += slope * slope
    trust[0] = max(0.1, trust[0] - 0.1 * slope / math.sqrt(trust[1]))
