"""What may fill an argument: occurrences of the right form and type, past values, members of an enumeration."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.memory import kernels
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, Places, code, salts
from agentspec.memory.kernels import FORM, TYPE, VALUE
from agentspec.memory.reading import RECORD, RECORDS, SCALAR, SCALARS
from agentspec.memory.slots import Slot
from agentspec.memory.table import Table, key_of_value
from agentspec.memory.view import View

MAX_CONSTANTS = 12
CONSTANT_FEATURES = 8
_SALTS = salts("constant", CONSTANT_FEATURES)


@dataclass(slots=True)
class Values:
    """Distinct values of one slot, numbered in the order they came in: those of the trajectory, then others."""

    table: Table
    seen: list[int]
    """By number: the value's number in the table."""
    others: list[Any] = field(default_factory=list)
    _others: dict[str, int] = field(default_factory=dict)
    _places: dict[int, int] | None = None

    def __len__(self) -> int:
        return len(self.seen) + len(self.others)

    def value(self, number: int) -> Any:
        """The value of a number."""
        seen = len(self.seen)
        return self.table.values[self.seen[number]] if number < seen else self.others[number - seen]

    def number(self, key: str) -> int | None:
        """The number of the value with this key (`key_of_value`), None where it is none of these."""
        if self._places is None:
            self._places = {one: place for place, one in enumerate(self.seen)}
        known = self._places.get(self.table.find_key(key))
        return self._others.get(key) if known is None else known

    def enter(self, key: str, value: Any) -> int:
        """The number of a value, a new one for a new value."""
        known = self.number(key)
        if known is None:
            known = self._others[key] = len(self)
            self.others.append(value)
        return known

    @property
    def listed(self) -> list[Any]:
        """All of them, by number."""
        return [self.value(number) for number in range(len(self))]


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was chosen for the call's other arguments: keys of the values, the records and messages they stood in."""

    values: tuple[str, ...] = ()
    records: tuple[int, ...] = ()
    messages: tuple[int, ...] = ()

    def and_also(self, value: Any, record: int, message: int) -> Chosen:
        """With one more value."""
        values = (*self.values, key_of_value(value))
        if not record:
            return Chosen(values, self.records, self.messages)
        return Chosen(values, (*self.records, record), (*self.messages, message))


@dataclass(slots=True)
class Base:
    """The candidates of a slot, scored before anything else of the call is known.

    One row for each candidate: an occurrence, a constant, or (the last) "none of these", whose value is the last one.

    Attributes:
        features: (occurrences, 31) their features; `marks` (others, 8) those of the candidates after them.
        at: (candidates, 4) number of the value, record, message and kind; `paths`: codes of the paths.
        path_numbers: by occurrence, of the table's paths.
        prior: what each was worth before anything was learnt.
    """

    slot: Slot
    keys: Codes
    values: Values
    features: Codes
    marks: Codes
    at: npt.NDArray[np.int32]
    paths: Codes
    path_numbers: Places
    alike: Places
    scores: Floats
    prior: Floats

    @property
    def none(self) -> int:
        """The number of "none of these"."""
        return len(self.values) - 1

    @property
    def number(self) -> Places:
        """By candidate: the number of its value."""
        return self.at[:, 0]

    @property
    def record(self) -> Places:
        """By candidate: the record that it stood in."""
        return self.at[:, 1]

    @property
    def message(self) -> Places:
        """By candidate: the message that it stood in."""
        return self.at[:, 2]


@dataclass(slots=True)
class Scored:
    """A slot's candidates with their probabilities, given what was chosen for the call's other arguments."""

    base: Base
    chances: Floats
    prior: Floats
    links: Codes | None = None
    """(candidates, 2) features of how each stands to what was chosen; None where nothing was."""

    def of_values(self) -> Floats:
        """Probability of each value, "none of these" left out."""
        return kernels.of_values(self.chances, self.base.at, self.base.none + 1)[:-1]

    def likeliest(self, most: int) -> Iterator[tuple[int, float, int]]:
        """The likeliest values, best first: number, probability, and the candidate that makes it likeliest."""
        found = kernels.likeliest(self.chances, self.base.at, self.base.none + 1, most)
        return ((int(number), chance, int(place)) for number, chance, place in found.tolist() if number >= 0)

    def best_place(self, number: int) -> int:
        """The candidate that makes this value likeliest."""
        return int(np.argmax(np.where(self.base.at[:, 0] == number, self.chances, np.float32(-1.0))))


def occurrences(
    seen: View, slot: Slot, form: int, fields: tuple[str, ...], likely: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], Places, Values]:
    """Rows of the view that may fill the slot, the number of each one's value, and the values.

    A list of scalars may also be one scalar alone in a list; records are cut down to the fields that the slot takes.
    `likely`: by row, whether a scalar there is worth a look.
    """
    rows, found = _scalars(seen, slot, likely) if form == SCALAR else _wholes(seen, form, fields)
    numbers = kernels.numbered(found, len(seen.context.table.values))
    distinct = numbers[1]
    return rows, numbers[0], Values(seen.context.table, distinct[distinct >= 0].tolist())


def _wholes(seen: View, form: int, fields: tuple[str, ...]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Lists and records, cut down; a list may be one item alone."""
    table, forms = seen.context.table, seen.at[:, FORM]
    wanted = [(form, False)]
    if form in (SCALARS, RECORDS):
        wanted.append((SCALAR if form == SCALARS else RECORD, True))
    rows: list[int] = []
    found: list[int] = []
    for kind, alone in wanted:
        some = np.flatnonzero(forms == kind)
        rows += some.tolist()
        found += [table.variant(one, fields, alone=alone) for one in seen.at[some, VALUE].tolist()]
    kept = np.array(found, np.int32)
    return np.array(rows, np.int32)[kept >= 0], kept[kept >= 0]


def _scalars(
    seen: View, slot: Slot, likely: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Scalars of the type that the schema wants; numbers become text where it wants text."""
    table, types = seen.context.table, seen.at[:, TYPE]
    fits = likely & (seen.at[:, FORM] == SCALAR)
    if slot.wanted == 4:
        fits &= types == 4
    elif slot.wanted in (2, 3):
        fits &= (types == 2) | (types == 3)
    rows = np.flatnonzero(fits).astype(np.int32)
    found = seen.at[rows, VALUE]
    if slot.wanted == 1:
        for i in np.flatnonzero(types[rows] != 1).tolist():
            found[i] = table.variant(int(found[i]), None)
    members = slot.members
    if members:
        kept = np.isin(found, [table.find(value) for value in members])
        rows, found = rows[kept], found[kept]
    return rows, found


def constants(context: Context, slot: Slot, usual: Mapping[str, float]) -> tuple[dict[str, Any], Codes]:
    """Values of past calls and of the schema by their keys; features of each and of "none of these" (rows, 8).

    `usual`: by its key, the share of each past value.
    """
    listed: dict[str, Any] = {}
    for text in usual:
        listed[text] = json.loads(text[1:]) if text[:1] == "\0" else text
    for value in slot.members:
        listed.setdefault(key_of_value(value), value)
    rows: list[tuple[int, ...]] = []
    owns: list[tuple[int, ...]] = []
    last = code(context.actions[-1])
    for rank, (text, value) in enumerate(listed.items()):
        share = usual.get(text, 0.0)
        said, used = context.table.mentions(value), min(context.table.times_used(value), 2)
        band = min(int(-math.log2(share)), 6) if share > 0 else 7
        rows.append((min(rank, 5), band, said, used + 4 * said, band + 8 * (said & 1), 0, 0, said))
        owns.append(_owns(code(text), last))
    rows.append((0, min(context.table.size, 40) // 10, *[0] * (CONSTANT_FEATURES - 2)))
    owns.append((1, 2, *[1] * (CONSTANT_FEATURES - 2)))
    return listed, _paired(owns, rows)


def _owns(own: int, last: int) -> tuple[int, ...]:
    return (0, 0, 0, 0, 0, own, own ^ last, own)


def _paired(owns: Sequence[tuple[int, ...]], rows: Sequence[tuple[int, ...]]) -> Codes:
    return kernels.columns_paired(np.array(owns, np.uint64), np.array(rows, np.int64), _SALTS)
