"""What is known of each place where a value stands: its columns, and features that hang on no argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.compiling import compiled
from agentspec.memory.kernels.codes import mixed, paired

VALUE, PATH, RANK, NAME, RECORD, FORM, KIND, MESSAGE, SHAPE, TYPE, WORD = range(11)
"""Columns of a table's occurrences."""
READ = 11
FRESH, USED, MENTIONED, COMMON, RANKS = range(11, 16)
"""Columns that a view adds."""
COLUMNS = 16


@compiled("int64(int64, int64, int64)")
def held(number: Any, low: Any, high: Any) -> Any:
    """The number, or the bound that it is beyond."""
    return max(low, min(high, number))


@compiled("int64(int64)")
def crowd_band(count: Any) -> Any:
    return (count >= 2) + (count >= 3) + (count >= 6) + (count >= 12)


@compiled("int64(int64)")
def age_band(age: Any) -> Any:
    return (age >= 1) + (age >= 2) + (age >= 4) + (age >= 8) + (age >= 16)


@compiled("int32[::1](int32[:,::1], boolean[::1], int64[::1], int64, int64)")
def worth_a_look(rows: Any, plain_shape: Any, frequency: Any, words_from: Any, most: Any) -> npt.NDArray[np.int32]:
    """The latest rows that are no plain words of earlier texts, and not what every trajectory says; in order."""
    found = np.empty(most, np.int32)
    left = most
    for i in range(len(rows) - 1, max(len(rows) - 2 * most, 0) - 1, -1):
        if left == 0:
            break
        row = rows[i]
        text = 0 < row[KIND] < 4
        if text and plain_shape[row[SHAPE]] and (frequency[row[WORD]] > 3 or row[MESSAGE] < words_from):
            continue
        left -= 1
        found[left] = i
    return found[left:].copy()


@compiled("int32[:,::1](int32[:,::1], int32[::1], int64[::1], int64[::1], int64[::1], int64)")
def judged(rows: Any, worth: Any, used: Any, mentioned: Any, frequency: Any, fresh_from: Any) -> npt.NDArray[np.int32]:
    """(worth, columns): these rows, with what is known of each occurrence's value at this point."""
    at = np.zeros((len(worth), COLUMNS), np.int32)
    for i in range(len(worth)):
        row = at[i]
        row[:READ] = rows[worth[i]]
        row[FRESH] = row[MESSAGE] >= fresh_from
        row[USED] = min(used[row[VALUE]], 2)
        row[MENTIONED] = mentioned[row[VALUE]]
        row[COMMON] = frequency[row[WORD]]
    return at


@compiled("int64[:,::1](int32[:,::1], int64[::1])")
def rank(at: Any, totals: Any) -> Any:
    """How each occurrence stands among those of its path: (rows, 2) crowd and end; its rank's code goes into `at`.

    The code, below 512: first not used, first of those in the latest message, next after the last used. Crowd: band of
    how many stand there in the latest message. End: 0 to 3 its place from the start there, 4 the last one.
    """
    paths = len(totals)
    latest, first, first_latest = np.zeros(paths, np.int64), np.full(paths, -1), np.full(paths, -1)
    last_used, start = np.full(paths, -9), np.full(paths, -1)
    for i in range(len(at)):
        latest[at[i, PATH]] = at[i, MESSAGE]
    for i in range(len(at)):
        path = at[i, PATH]
        now = at[i, MESSAGE] == latest[path]
        if at[i, USED]:
            last_used[path] = at[i, RANK]
        else:
            first[path] = i if first[path] < 0 else first[path]
            first_latest[path] = i if now and first_latest[path] < 0 else first_latest[path]
        if now and start[path] < 0:
            start[path] = at[i, RANK]
    ends = np.empty((len(at), 2), np.int64)
    for i in range(len(at)):
        path, own = at[i, PATH], at[i, RANK]
        now = at[i, MESSAGE] == latest[path]
        after = 4 if last_used[path] == -9 else held(own - last_used[path], -1, 2) + 1
        marks = (first[path] == i) + 2 * (first_latest[path] == i) + 4 * now
        at[i, RANKS] = marks + 8 * after + 64 * min(at[i, USED], 1)
        ends[i, 0] = crowd_band(totals[path] - start[path])
        ends[i, 1] = 4 if own == totals[path] - 1 else held(own - start[path], 0, 3)
    return ends


@compiled("int64[:,::1](int32[:,::1], int64)")
def neighbours(at: Any, values: Any) -> Any:
    """(rows, 2): how many other fields of its record the user's last words mention, at most 3; first of its value."""
    records = 1
    for i in range(len(at)):
        records = max(records, at[i, RECORD] + 1)
    said, seen = np.zeros(records, np.int64), np.zeros(values, np.bool_)
    for i in range(len(at)):
        said[at[i, RECORD]] += at[i, MENTIONED] & 1
    found = np.zeros((len(at), 2), np.int64)
    for i in range(len(at)):
        if at[i, RECORD]:
            found[i, 0] = min(said[at[i, RECORD]] - (at[i, MENTIONED] & 1), 3)
        found[i, 1] = not seen[at[i, VALUE]]
        seen[at[i, VALUE]] = True
    return found


@compiled(
    "uint64[:,::1](int32[:,::1], uint64[:,::1], int64[:,::1], int64[:,::1], uint64[::1], int64, uint64, uint64[::1])"
)
def features(
    at: Any, codes: Any, ends: Any, near: Any, shapes: Any, message: Any, last: Any, salts: Any
) -> npt.NDArray[np.uint64]:
    """(rows, 16) features that hang on no argument. `codes` (rows, 3): of path, name and words before."""
    made = np.empty((len(at), 16), np.uint64)
    for i in range(len(at)):
        row, path, name, before = at[i], codes[i, 0], codes[i, 1], codes[i, 2]
        kind, shape = np.uint64(row[KIND]), shapes[row[SHAPE]]
        age, fresh, used = age_band(message - row[MESSAGE]), row[FRESH], row[USED]
        mentioned, ranks = row[MENTIONED], row[RANKS]
        made[i, 0] = paired(path, 0, salts[0])
        made[i, 1] = paired(path, used + 4 * fresh, salts[1])
        made[i, 2] = mixed(path ^ salts[2], last)
        made[i, 3] = paired(path, ranks, salts[3])
        made[i, 4] = paired(path, mentioned + 8 * used, salts[4])
        made[i, 5] = paired(path, age, salts[5])
        made[i, 6] = paired(shape, row[KIND], salts[6])
        made[i, 7] = paired(kind, age + 8 * fresh + 16 * used, salts[7])
        made[i, 8] = paired(before, row[KIND], salts[8])
        made[i, 9] = paired(name, row[KIND], salts[9])
        made[i, 10] = paired(kind, mentioned + 8 * used + 32 * fresh, salts[10])
        made[i, 11] = paired(kind, ranks, salts[11])
        made[i, 12] = paired(path, near[i, 0] + 4 * min(used, 1), salts[12])
        made[i, 13] = paired(path, ends[i, 0] + 8 * ends[i, 1], salts[13])
        made[i, 14] = paired(kind, ranks + 512 * fresh + 1024 * used, salts[14])
        made[i, 15] = paired(shape, near[i, 1] + 2 * mentioned, salts[15])
    return made
