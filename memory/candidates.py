"""What may fill an argument: occurrences of the right form and type, past values, members of an enumeration."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.calls import canonical_json
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, Places, code, codes
from agentspec.memory.reading import RECORD, RECORDS, SCALAR, SCALARS
from agentspec.memory.slots import Slot, form_of, project
from agentspec.memory.table import key_of_value
from agentspec.memory.view import View

MAX_CONSTANTS = 12
CONSTANT_FEATURES = 8


@dataclass(slots=True)
class Values:
    """Distinct values, numbered in the order they came in."""

    listed: list[Any] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """By the value's key (`key_of_value`)."""

    def enter(self, key: str, value: Any) -> int:
        """The number of a value, a new one for a new value."""
        number = self.numbers.setdefault(key, len(self.listed))
        if number == len(self.listed):
            self.listed.append(value)
        return number


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for the call's other arguments: keys of the values, the records and messages they stood in."""

    values: tuple[str, ...] = ()
    records: frozenset[int] = frozenset()
    messages: frozenset[int] = frozenset()

    def and_also(self, value: Any, record: int, message: int) -> Chosen:
        """With one more value."""
        values = (*self.values, key_of_value(value))
        if not record:
            return Chosen(values, self.records, self.messages)
        return Chosen(values, self.records | {record}, self.messages | {message})


@dataclass(slots=True)
class Base:
    """The candidates of a slot, scored before anything else of the call is known.

    One row for each candidate: an occurrence, a constant, or (the last) "none of these", whose value is the last one.
    """

    slot: Slot
    values: Values
    number: Places
    """By candidate: which of `values`."""
    places: Places
    scores: Floats
    prior: Floats
    """What it was worth before anything was learnt."""
    record: Places
    message: Places
    path: Codes
    path_number: Places
    kind: Places
    alike: Places

    @property
    def none(self) -> int:
        """The number of "none of these"."""
        return len(self.values.listed) - 1


@dataclass(slots=True)
class Scored:
    """A slot's candidates with their probabilities, given what was chosen for the call's other arguments."""

    base: Base
    places: Places
    chances: Floats
    prior: Floats

    def of_values(self) -> Floats:
        """Probability of each value, "none of these" left out."""
        sums = np.bincount(self.base.number, weights=self.chances, minlength=self.base.none + 1)
        return sums[:-1].astype(np.float32)

    def best_place(self, number: int) -> int:
        """The candidate that makes this value likeliest."""
        return int(np.argmax(np.where(self.base.number == number, self.chances, -1.0)))


def occurrences(seen: View, slot: Slot, form: int, fields: tuple[str, ...]) -> tuple[Places, Places, Values]:
    """Rows of the view that may fill the slot, the number of each one's value, and the values.

    A list of scalars may also be one scalar alone in a list; records are cut down to the fields that the slot takes.
    """
    if form == SCALAR:
        return _scalars(seen, slot)
    table, at = seen.context.table.values, seen.at
    whole = np.flatnonzero(at.form == form)
    rows, found = list(whole), [_projected(table[i], fields) for i in at.value[whole]]
    if form in (SCALARS, RECORDS):
        single = np.flatnonzero(at.form == (SCALAR if form == SCALARS else RECORD))
        rows += list(single)
        found += [[_projected(table[i], fields)] for i in at.value[single]]
    kept = [i for i, value in enumerate(found) if value is not None and value != [None]]
    values = Values()
    number = np.array([values.enter(key_of_value(found[i]), found[i]) for i in kept], np.int64)
    return np.array([rows[i] for i in kept], np.int64), number, values


def _scalars(seen: View, slot: Slot) -> tuple[Places, Places, Values]:
    """Scalars of the type that the schema wants; numbers become text where it wants text."""
    table, rows, wanted = seen.context.table, np.flatnonzero(_of_type(seen, slot.wanted)), slot.wanted
    distinct, inverse = np.unique(seen.at.value[rows], return_inverse=True)
    members = {key_of_value(value) for value in slot.members}
    values = Values()
    number = np.full(len(distinct), -1, np.int64)
    for place, i in enumerate(distinct.tolist()):
        key, value = table.keys[i], table.values[i]
        if wanted == 1 and not isinstance(value, str):
            key = value = canonical_json(value)
        if not members or key in members:
            number[place] = values.enter(key, value)
    numbers = number[inverse]
    return rows[numbers >= 0], numbers[numbers >= 0], values


def _of_type(seen: View, wanted: int) -> npt.NDArray[np.bool_]:
    scalar: npt.NDArray[np.bool_] = seen.at.form == SCALAR
    if wanted == 4:
        scalar &= seen.at.types == 4
    elif wanted in (2, 3):
        scalar &= (seen.at.types == 2) | (seen.at.types == 3)
    return scalar


def constants(context: Context, slot: Slot, counts: Counter[str]) -> tuple[dict[str, Any], Codes]:
    """Values of past calls and of the schema by their keys; features of each and of "none of these" (rows, 8)."""
    total = counts.total() or 1
    listed: dict[str, Any] = {}
    for text, _ in counts.most_common(MAX_CONSTANTS):
        listed[text] = json.loads(text[1:]) if text[:1] == "\0" else text
    for value in slot.members:
        listed.setdefault(key_of_value(value), value)
    marks = []
    for rank, (text, value) in enumerate(listed.items()):
        share = counts.get(text, 0) / total
        said, used = context.table.mentions(value), min(context.table.times_used(value), 2)
        band = min(int(-math.log2(share)), 6) if share > 0 else 7
        own = code(text)
        marks += [
            f"rank {min(rank, 5)}", f"share {band}", f"said {said}", f"used {used} {said}",
            f"share {band} said {said & 1}", f"value {own}", f"value {own} {context.actions[-1]}",
            f"value {own} said {said}",
        ]  # fmt: skip
    marks += ["none", f"few {min(context.table.size, 40) // 10}", *["none"] * (CONSTANT_FEATURES - 2)]
    return listed, codes(["constant " + mark for mark in marks]).reshape(-1, CONSTANT_FEATURES)


def among(numbers: Places, wanted: Iterable[int]) -> npt.NDArray[np.bool_]:
    """Whether each number is one of a few."""
    found = np.zeros(len(numbers), bool)
    for one in wanted:
        found |= numbers == one
    return found


def _projected(value: Any, fields: tuple[str, ...]) -> Any:
    return project(value, fields) if fields and isinstance(value, (dict, list)) and form_of(value) != SCALARS else value
