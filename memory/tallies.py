"""What is counted of arguments: their forms, fields and shapes, where their values stood, and, by scope, the values."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

from agentspec.memory.columns import Texts
from agentspec.memory.context import Context
from agentspec.memory.hashing import Places, code
from agentspec.memory.reading import shape
from agentspec.memory.repeats import Witnessed
from agentspec.memory.slots import Slot, form_of, is_name
from agentspec.memory.table import key_of_value

MAX_SLOTS = 20_000
MAX_SCOPED_SLOTS = 100_000
MAX_ARGUMENTS = 40
"""Most arguments of one tool that are told apart."""
KEPT_VALUES = 64
"""Most different values that are kept for one argument within a scope; the rarest half goes first."""
CONSTANT = 0
"""The path of a value that stood nowhere in the trajectory."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


class Tallies:
    """Counts by slot (`tool.argument`). Only `values` holds argument values; those never leave their scope."""

    def __init__(self) -> None:
        self.values: OrderedDict[tuple[str, str], Counter[str]] = OrderedDict()
        self.forms: OrderedDict[str, Counter[int]] = OrderedDict()
        self.fields: OrderedDict[str, Counter[tuple[str, ...]]] = OrderedDict()
        self.sources: OrderedDict[str, Counter[int]] = OrderedDict()
        """By slot and by argument name: codes of the paths where its values stood."""
        self.shapes: OrderedDict[str, Counter[int]] = OrderedDict()
        self.slots: OrderedDict[str, list[str]] = OrderedDict()
        """By tool: its slots."""
        self.witnessed: Witnessed = OrderedDict()
        self.words: Places = np.zeros(1 << 16, np.int64)
        """By a word's code, last bits: trajectories that said it."""
        self.trajectories = 0
        self._bands: Places | None = None
        self._usual: dict[tuple[str, str], tuple[int, dict[str, float]]] = {}
        """By scope and slot: `usual` at so many values."""

    def note(self, slot: Slot, value: Any, scope: str | None) -> None:
        """This value filled the slot."""
        _count(self.forms, slot.path, [form_of(value)], MAX_SLOTS)
        _count(self.shapes, slot.path, [code(shape(value))], MAX_SLOTS)
        fields = _fields(value)
        if fields and all(is_name(key, {}) for key in fields):
            _count(self.fields, slot.path, [fields], MAX_SLOTS)
        if scope is not None:
            key = (scope, slot.path)
            _count(self.values, key, [key_of_value(value)], MAX_SCOPED_SLOTS)
            if len(self.values[key]) > KEPT_VALUES:
                self.values[key] = Counter(dict(self.values[key].most_common(KEPT_VALUES // 2)))

    def usual(self, scope: str | None, slot: Slot, most: int) -> dict[str, float]:
        """The most usual values of an argument within a scope: their keys and shares."""
        counts = self.values.get((scope, slot.path)) if scope is not None else None
        if not counts or scope is None:
            return {}
        total = counts.total()
        known = self._usual.get((scope, slot.path))
        if known is None or known[0] != total:
            if len(self._usual) > MAX_SLOTS:
                self._usual.clear()
            found = {text: count / total for text, count in counts.most_common(most)}
            known = self._usual[scope, slot.path] = (total, found)
        return known[1]

    def note_sources(self, slot: Slot, paths: Iterable[int]) -> None:
        """The slot's value stood at the paths of these codes; at none: it was a constant."""
        listed = list(paths) or [CONSTANT]
        for name in (slot.path, slot.name):
            _count(self.sources, name, listed, MAX_SLOTS)
        slots = self.slots.setdefault(slot.tool, [])
        if slot.path not in slots and len(slots) < MAX_ARGUMENTS:
            slots.append(slot.path)
        if len(self.slots) > MAX_SLOTS:
            self.slots.popitem(last=False)

    def note_words(self, context: Context) -> None:
        """A trajectory said these words."""
        self.words[context.table.words()] += 1
        self.trajectories += 1
        if self.trajectories % 16 == 0 or self.trajectories < 64:
            self._bands = None

    def commonness(self) -> Places:
        """By a word's code, last bits: band of how many trajectories say it, 0 never to 5 nearly all."""
        if self._bands is None:
            shares = self.words / max(self.trajectories, 1)
            self._bands = np.searchsorted([1e-9, 0.04, 0.12, 0.3, 0.6], shares, side="right")
            if self.trajectories < 3:
                self._bands = np.zeros_like(self._bands)
        return self._bands


def _count(table: OrderedDict[K, Counter[V]], name: K, seen: Iterable[V], limit: int) -> None:
    counts = table.setdefault(name, Counter())
    counts.update(seen)
    table.move_to_end(name)
    if len(table) > limit:
        table.popitem(last=False)


SEEN = 3
"""The first band of `shares` that says it was seen."""


def shares(counts: Counter[int] | None, wanted: Texts) -> Places:
    """How usual each of these is, in eight bands: 0 nothing known, 1 and 2 never seen, 3 to 7 by its share."""
    if not counts:
        return np.zeros(len(wanted), np.int64)
    total = counts.total()
    bands = np.full(len(wanted), 1 if total < 3 else 2, np.int64)
    for one in counts if len(counts) < len(wanted) else wanted.codes:
        number, count = wanted.by_code.get(one), counts.get(one)
        if number is not None and count is not None:
            bands[number] = SEEN + min(int(4 * count / total), 4)
    return bands


def _fields(value: Any) -> tuple[str, ...]:
    one = value[0] if isinstance(value, list) and value else value
    return tuple(one) if isinstance(one, dict) else ()
