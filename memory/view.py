"""What hangs on no argument: the occurrences of values at one point of a trajectory, and their features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agentspec.memory import kernels
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, HashedWeights, Places, code, codes, salts
from agentspec.memory.kernels import FORM
from agentspec.memory.reading import SCALAR

WIDTH = 1500
"""Latest occurrences that are looked at."""
SCALARS_KEPT, OTHERS_KEPT = 320, 96
"""Occurrences that arguments are chosen from: those that look likeliest before the argument is known."""

ANY = codes(["any"])
_SALTS = salts("column", 16)


@dataclass(frozen=True, slots=True)
class View:
    """The occurrences of a context at one point, one row for each.

    Attributes:
        context: where it was looked.
        at: (rows, columns) what value, where it stood, what is known of it: the columns of `kernels`.
        codes: (rows, 3) codes of path, name and the words before.
        features: (rows, 16) features that hang on no argument.
        scores: what they are worth for any argument.
    """

    context: Context
    at: npt.NDArray[np.int32]
    codes: Codes
    features: Codes
    scores: Floats


def look(context: Context, weights: HashedWeights, frequency: Places) -> View:
    """Look at a context's latest occurrences. `frequency`: band of how common a word is, by its code's last bits."""
    table = context.table
    rows, counts = table.rows, np.array(table.path_counts, np.int64)
    worth = kernels.worth_a_look(rows, table.plain_shapes, frequency, context.words_from, WIDTH)
    found = table.codes[worth]
    at = kernels.judged(rows, worth, table.used.array, table.mentioned.array, frequency, context.fresh_from)
    features = kernels.features(
        at,
        found,
        kernels.rank(at, counts),
        kernels.neighbours(at, len(table.values)),
        table.shapes.array,
        context.message,
        np.uint64(code(context.actions[-1])),
        _SALTS,
    )
    scores = kernels.scores(features, ANY, weights.weights, weights.shift)
    kept = _likely(at, scores)
    return View(context, at[kept], found[kept], features[kept], scores[kept])


def _likely(at: npt.NDArray[np.int32], scores: Floats) -> Places:
    """The rows that look likeliest whatever the argument."""
    scalar = at[:, FORM] == SCALAR
    kept = []
    for rows, most in ((np.flatnonzero(scalar), SCALARS_KEPT), (np.flatnonzero(~scalar), OTHERS_KEPT)):
        few = len(rows) <= most
        kept.append(rows if few else rows[np.argpartition(-scores[rows], most)[:most]])
    return np.sort(np.concatenate(kept))
