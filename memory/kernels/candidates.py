"""What may fill an argument: features of candidates, and the sums of what they are worth by value."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.compiling import compiled
from agentspec.memory.kernels.codes import paired
from agentspec.memory.kernels.occurrences import (
    COMMON,
    FRESH,
    KIND,
    MENTIONED,
    NAME,
    PATH,
    RANK,
    RANKS,
    RECORD,
    SHAPE,
    TYPE,
    USED,
    VALUE,
    held,
)


@compiled("int32[:,::1](int32[::1], int64)")
def numbered(numbers: Any, values: Any) -> npt.NDArray[np.int32]:
    """(2, rows or distinct): each number's place among the distinct ones in the order they come; and those."""
    places_of, found, count = np.full(values, -1, np.int32), np.full((2, len(numbers)), -1, np.int32), 0
    for i in range(len(numbers)):
        if places_of[numbers[i]] < 0:
            places_of[numbers[i]] = count
            found[1, count] = numbers[i]
            count += 1
        found[0, i] = places_of[numbers[i]]
    return found


@compiled("int64[::1](int32[:,::1], int32[::1], int64)")
def follows(at: Any, rows: Any, value: Any) -> Any:
    """1: of a path where this value stands; 2: right after it there."""
    found = np.zeros(len(rows), np.int64)
    for j in range(len(at) if value >= 0 else 0):
        if at[j, VALUE] == value and at[j, KIND] < 2:
            for i in range(len(rows)):
                if at[rows[i], PATH] == at[j, PATH]:
                    found[i] = max(found[i], 2 if at[rows[i], RANK] == at[j, RANK] + 1 else 1)
    return found


@compiled(
    "uint64[:,::1](int32[:,::1], uint64[:,::1], uint64[:,::1], int32[::1], int64[:,::1], boolean[::1], int64[::1],"
    " int64, int64, uint64[::1])"
)
def slot_features(
    at: Any, codes: Any, known: Any, rows: Any, bands: Any, had: Any, after: Any, last_record: Any, wanted: Any,
    salts: Any,
) -> npt.NDArray[np.uint64]:  # fmt: skip
    """(rows, 31) features: the `known` ones of the occurrence, then those that hang on the argument.

    `bands` (paths, names or shapes, 4): how usual each path is for the argument and for the argument's name, how usual
    each shape is for it, how alike each name is. `had`: by value, whether the argument had it. `after`: `follows`.
    """
    made = np.empty((len(rows), 31), np.uint64)
    for i in range(len(rows)):
        row, path, own = at[rows[i]], codes[rows[i], 0], made[i, 16:]
        made[i, :16] = known[rows[i]]
        kind, ranks, fresh = np.uint64(row[KIND]), np.uint64(row[RANKS]), row[FRESH]
        usual, named, shaped, alike = (
            bands[row[PATH], 0],
            bands[row[PATH], 1],
            bands[row[SHAPE], 2],
            bands[row[NAME], 3],
        )
        mine, follow, used, mentioned, common = had[row[VALUE]], after[i], row[USED], row[MENTIONED], row[COMMON]
        once, like = min(used, 1), np.int64(alike > 1)
        step = np.int64(9)
        if row[RECORD] > 0:
            step = held(row[RECORD] - last_record, -2, 5) + 3 if last_record >= 0 else np.int64(0)
        own[0] = paired(kind, usual + 8 * shaped + 64 * once, salts[0])
        own[1] = paired(kind, named + 8 * shaped + 64 * like, salts[1])
        own[2] = paired(ranks, usual + 8 * mine, salts[2])
        own[3] = paired(kind, usual + 8 * mentioned + 64 * once + 128 * fresh, salts[3])
        own[4] = paired(np.uint64(shaped), mentioned + 8 * fresh + 16 * alike, salts[4])
        own[5] = paired(kind, step + 16 * alike, salts[5])
        own[6] = paired(path, step, salts[6])
        own[7] = paired(kind, common + 8 * shaped, salts[7])
        own[8] = paired(kind, common + 8 * alike + 32 * mentioned, salts[8])
        own[9] = paired(kind, alike, salts[9])
        own[10] = paired(kind, alike + 4 * used + 16 * fresh + 32 * mentioned, salts[10])
        own[11] = paired(kind, row[TYPE] * 8 + wanted, salts[11])
        own[12] = paired(kind, mine + 2 * alike + 8 * follow, salts[12])
        own[13] = paired(path, mine + 2 * follow, salts[13])
        own[14] = paired(ranks, mine + 2 * like + 4 * fresh, salts[14])
    return made


@compiled("uint64[:,::1](int32[:,::1], uint64[::1], int32[::1], int32[::1], int32[::1], int64[::1], uint64[::1])")
def links(
    at: Any, paths: Any, records: Any, messages: Any, taken: Any, alike: Any, salts: Any
) -> npt.NDArray[np.uint64]:
    """(candidates, 2) features of how each stands to what was chosen for the other arguments.

    `at` (candidates, 4): the number of its value, its record, message and kind; `paths`: codes of its path.
    """
    made = np.empty((len(at), 2), np.uint64)
    for i in range(len(at)):
        mark = np.int64(8 * (len(records) > 0))
        for one in records:
            mark |= at[i, 1] == one
        for one in taken:
            mark |= 2 * (at[i, 0] == one)
        for one in messages:
            mark |= 4 * (at[i, 2] == one)
        made[i, 0] = paired(paths[i], mark, salts[0])
        made[i, 1] = paired(np.uint64(at[i, 3]), mark + 16 * alike[i], salts[1])
    return made


@compiled("float32[::1](float32[::1], int32[:,::1], int64)")
def of_values(chances: Any, at: Any, values: Any) -> npt.NDArray[np.float32]:
    """Sum of the chances of each value's candidates; `at[:, 0]`: its number."""
    sums = np.zeros(values, np.float32)
    for i in range(len(chances)):
        sums[at[i, 0]] += chances[i]
    return sums


@compiled("float64[:,::1](float32[::1], int32[:,::1], int64, int64)")
def likeliest(chances: Any, at: Any, values: Any, most: Any) -> Any:
    """(most, 3): the likeliest values, best first: number, chance, and the candidate that makes it likeliest.

    The last value, "none of these", is left out; the number is -1 where there are no more.
    """
    sums = of_values(chances, at, values)
    found = np.full((most, 3), -1.0)
    for n in range(most):
        best = -1
        for i in range(values - 1):
            if sums[i] > 0 and (best < 0 or sums[i] > sums[best]):
                best = i
        if best < 0:
            break
        found[n, 0], found[n, 1] = best, sums[best]
        highest = np.float32(-1.0)
        for i in range(len(chances)):
            if at[i, 0] == best and chances[i] > highest:
                highest = chances[i]
                found[n, 2] = i
        sums[best] = 0
    return found
