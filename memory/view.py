"""What hangs on no argument: the occurrences of values at one point of a trajectory, and their features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, HashedWeights, Places, code, key, mix, paired
from agentspec.memory.reading import SCALAR
from agentspec.memory.table import RESULT

WIDTH = 1500
"""Latest occurrences that are looked at."""
SCALARS_KEPT, OTHERS_KEPT = 384, 128
"""Occurrences that arguments are chosen from: those that look likeliest before the argument is known."""

_ANY = key("any")
_PLAIN, _LETTER = np.uint64(code("a+")), np.uint64(code("a"))
_SALTS = np.array([code(f"column {i}") for i in range(16)], np.uint64)


@dataclass(slots=True)
class Occurrences:
    """One row for each occurrence: what value, where it stood, and what is known of it at this point.

    `name`, `shape_number` and `path_number`: places in the view's `names`, `shapes` and `paths`. `used`: how often the
    value was an argument, at most 2. `mentioned`: see `Table.mentions`. `common`: band of how many trajectories say
    the word. `features` (rows, 16), `generic` (rows, 16): features, and the places of their weights for any argument.
    """

    value: Places
    form: Places
    path: Codes
    path_number: Places
    rank: Places
    ranks: Places
    record: Places
    message: Places
    fresh: Places
    used: Places
    kind: Places
    mentioned: Places
    types: Places
    common: Places
    name: Places
    shape_number: Places
    features: Codes
    generic: Places

    def taking(self, rows: Places) -> Occurrences:
        """These rows only."""
        return Occurrences(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


@dataclass(frozen=True, slots=True)
class View:
    """The occurrences of a context at one point, with the distinct names, shapes and paths in them."""

    context: Context
    at: Occurrences
    names: Codes
    shapes: Codes
    paths: Codes


def look(context: Context, weights: HashedWeights, frequency: Places) -> View:
    """Look at a context's latest occurrences. `frequency`: band of how common a word is, by its code's last bits."""
    table = context.table
    column = table.last(2 * WIDTH)
    worth = np.flatnonzero(_worth(context, column, frequency))[-WIDTH:]
    column = {name: one[worth] for name, one in column.items()}
    names, name = np.unique(column["key"], return_inverse=True)
    shapes, shape_number = np.unique(column["shape"], return_inverse=True)
    number = {name: column[name].astype(np.int64) for name in _NUMBERS}
    value, message = number["value"], number["message"]
    used = np.minimum(np.array(table.used, np.int64)[value], 2)
    mentioned = np.array(table.mentioned, np.int64)[value]
    fresh = (message >= context.fresh_from).astype(np.int64)
    ranks = _Ranks(context, number["path_number"], number["rank"], used, message)
    features = _features(context, column, _At(number, used, mentioned, fresh, ranks))
    generic = weights.places(mix(features, _ANY))
    made = Occurrences(
        value=value, form=number["form"], path=column["path"], path_number=number["path_number"], rank=number["rank"],
        ranks=ranks.code, record=number["record"], message=message, fresh=fresh, used=used, kind=number["kind"],
        mentioned=mentioned, types=number["type"], common=frequency[number["word"]], name=name,
        shape_number=shape_number, features=features, generic=generic,
    )  # fmt: skip
    likely = _likely(made, weights)
    paths = np.array(table.path_codes, np.uint64)
    return View(context, made if likely is None else made.taking(likely), names, shapes, paths)


_NUMBERS = ("value", "path_number", "rank", "record", "form", "kind", "message", "type", "word")


def _worth(context: Context, column: Mapping[str, Codes], frequency: Places) -> npt.NDArray[np.bool_]:
    """Which occurrences are worth a look: not the plain words of earlier texts, nor what every trajectory says."""
    text = (column["kind"] > RESULT) & (column["kind"] < 4)
    plain = text & ((column["shape"] == _PLAIN) | (column["shape"] == _LETTER))
    common = frequency[column["word"].astype(np.int64)] > 3
    worth: npt.NDArray[np.bool_] = ~(plain & (common | (column["message"] < context.words_from)))
    return worth


def _likely(made: Occurrences, weights: HashedWeights) -> Places | None:
    """The rows that look likeliest whatever the argument; None where they are few enough."""
    scalar = made.form == SCALAR
    kept = []
    for rows, most in ((np.flatnonzero(scalar), SCALARS_KEPT), (np.flatnonzero(~scalar), OTHERS_KEPT)):
        few = len(rows) <= most
        kept.append(rows if few else rows[np.argpartition(-weights.scores(made.generic[rows]), most)[:most]])
    chosen = np.sort(np.concatenate(kept))
    return None if len(chosen) == len(scalar) else chosen


@dataclass(frozen=True, slots=True)
class _At:
    number: Mapping[str, Places]
    used: Places
    mentioned: Places
    fresh: Places
    ranks: _Ranks


def _features(context: Context, column: Mapping[str, Codes], at: _At) -> Codes:
    number, used, mentioned, fresh, ranks = at.number, at.used, at.mentioned, at.fresh, at.ranks
    path, kind, shape = column["path"], column["kind"], column["shape"]
    age = np.searchsorted([1, 2, 4, 8, 16], context.message - number["message"], side="right")
    last = np.full(len(path), code(context.actions[-1]) % (1 << 40))
    once = np.minimum(used, 1)
    return paired(
        [
            (path, np.zeros_like(used)),
            (path, used + 4 * fresh),
            (path, last),
            (path, ranks.code),
            (path, mentioned + 8 * used),
            (path, age),
            (shape, number["kind"]),
            (kind, age + 8 * fresh + 16 * used),
            (column["before"], number["kind"]),
            (column["key"], number["kind"]),
            (kind, mentioned + 8 * used + 32 * fresh),
            (kind, ranks.code),
            (path, _siblings(number["record"], mentioned) + 4 * once),
            (path, ranks.crowd + 8 * ranks.end),
            (kind, ranks.code + 512 * fresh + 1024 * used),
            (shape, _first_of_value(number["value"]) + 2 * mentioned),
        ],
        _SALTS,
    )


def _siblings(record: Places, mentioned: Places) -> Places:
    """How many other fields of each occurrence's record the user's last words mention, at most three."""
    if not len(record):
        return record
    own = mentioned & 1
    others = np.bincount(record, weights=own)[record].astype(np.int64) - own
    return np.where(record == 0, 0, np.minimum(others, 3))


def _first_of_value(value: Places) -> Places:
    first = np.zeros(len(value), np.int64)
    first[np.unique(value, return_index=True)[1]] = 1
    return first


class _Ranks:
    """How each occurrence stands among those of its path: first not used, next after the last used, at an end.

    Attributes:
        code: all of that as one number below 512, by occurrence.
        crowd: band of how many stand at its path in the latest message.
        end: 0 to 3 its place from the start there, 4 the last one.
    """

    def __init__(self, context: Context, number: Places, rank: Places, used: Places, message: Places) -> None:
        paths, order = len(context.table.path_codes), np.arange(len(number))
        total = np.array(context.table.path_counts, np.int64)[number]
        latest = np.zeros(paths, np.int64)
        latest[number] = message
        in_latest = message == latest[number]
        unused = used == 0
        first = _first_at(number, order[unused], paths)[number] == order
        first_latest = _first_at(number, order[unused & in_latest], paths)[number] == order
        last_used = np.full(paths, -9)
        last_used[number[~unused]] = rank[~unused]
        after = np.where(last_used[number] == -9, 4, np.clip(rank - last_used[number], -1, 2) + 1)
        self.code = first + 2 * first_latest + 4 * in_latest + 8 * after + 64 * np.minimum(used, 1)
        start = np.zeros(paths, np.int64)
        start[number[in_latest][::-1]] = rank[in_latest][::-1]
        self.crowd = np.searchsorted([2, 3, 6, 12], total - start[number], side="right")
        self.end = np.where(rank == total - 1, 4, np.clip(rank - start[number], 0, 3))


def _first_at(number: Places, rows: Places, paths: int) -> Places:
    """By path: the first of these rows, -1 for none."""
    first = np.full(paths, -1)
    first[number[rows[::-1]]] = rows[::-1]
    return first
