"""Every value of a trajectory and every place where it stood, in growing columns."""

from __future__ import annotations

import re
from array import array
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.calls import ToolCall, canonical_json
from agentspec.memory.columns import Numbers, Texts, flat
from agentspec.memory.hashing import Codes, Places, code, code_of
from agentspec.memory.kernels import KIND, READ, WORD
from agentspec.memory.reading import DAY, SCALAR, SCALARS, Found, shape
from agentspec.memory.slots import form_of, likeness, project

RESULT, RESULT_TEXT, USER_TEXT, OWN_TEXT, ARGUMENT = 0, 1, 2, 3, 4
"""Kinds of places: a field of a result, a result's text, the user's words, the agent's, an earlier argument."""
WORD_BITS = 0xFFFF

_YEAR = re.compile(r"\b((?:19|20)\d\d)-\d\d-\d\d")
_TYPES = {str: 1, int: 2, float: 3, bool: 4, list: 5, dict: 6}
_PLAIN = ("a+", "a")
_BETWEEN = "\nA\n"
"""Between two texts of the user's: no text in lower case reaches over it."""


_COPIED = (
    "values", "keys", "path_counts", "_rows", "_codes", "_numbers", "_flat", "_looks", "_variants", "_mentions_of",
)  # fmt: skip
"""What a fork copies as it is."""


class Table:
    """The values, numbered in the order they were first seen, and their occurrences."""

    def __init__(self) -> None:
        self._rows, self._codes = array("i"), array("Q")
        """By occurrence, one after the other: its columns (`kernels`), and the codes of path, name and words before."""
        self.values: list[Any] = []
        self.keys: list[str] = []
        """By value: its key (`key_of_value`)."""
        self.used, self.mentioned = Numbers(), Numbers()
        """By value: how often it was an argument; see `mentions`."""
        self.path_counts: list[int] = []
        self.paths, self.names, self.shapes = Texts(), Texts(), Texts()
        self.records = 0
        self.message = 0
        self.year = ""
        """The year of the last date that was seen whole."""
        self._numbers: dict[str, int] = {}
        self._flat: list[str] = []
        self._looks: list[tuple[int, int, int] | None] = []
        """By value that stood somewhere: its shape, its type, and its word."""
        self._by_path: dict[int, list[tuple[int, int]]] = {}
        self._records_of: dict[int, list[int]] = {}
        self._variants: dict[tuple[int, bool, tuple[str, ...] | None], int] = {}
        self._alike: dict[str, list[int]] = {}
        self._last_user = self._last_own = self._all_user = ""
        self._mentions_of: dict[str, int] = {}

    # Growing

    def fork(self) -> Table:
        """The same up to here, to be grown on its own."""
        other = copy(self)
        other._records_of = {number: list(found) for number, found in self._records_of.items()}
        other._by_path = {path: list(stood) for path, stood in self._by_path.items()}
        other._alike = {argument: list(found) for argument, found in self._alike.items()}
        for name in ("used", "mentioned", "paths", "names", "shapes"):
            setattr(other, name, getattr(self, name).fork())
        for name in (
            "values",
            "keys",
            "path_counts",
            "_rows",
            "_codes",
            "_numbers",
            "_flat",
            "_variants",
            "_mentions_of",
        ):
            setattr(other, name, copy(getattr(self, name)))
        return other

    def add(self, found: Found, kind: int, base: int) -> None:
        """A value stood somewhere. `base`: records that were counted before its message or result."""
        value, form = found.value, found.form
        if form == DAY:
            if not self.year:
                return
            value, form = f"{self.year}-{value}", SCALAR
        path, name, number = self._path(found.path), self.names.number(found.key.lower()), self.number(value)
        record = base + found.record if found.record else 0
        self.records = max(self.records, record)
        codes = self.paths.codes[path], self.names.codes[name], code_of(found.before.lower())
        rank, looks = self.path_counts[path], self._looks[number]
        if looks is None:
            word = code(self._flat[number] or str(value).lower()) & WORD_BITS
            looks = self._looks[number] = self.shapes.number(shape(value)), _TYPES.get(type(value), 0), word
        self._rows.extend((number, path, rank, name, record, form, kind, self.message, *looks))
        self._codes.extend(codes)
        if kind == RESULT and record:
            self._records_of.setdefault(number, []).append(record)
        self.path_counts[path] = rank + 1
        self._by_path.setdefault(codes[0], []).append((number, self.message))

    def number(self, value: Any) -> int:
        """The number of a value, a new one for a new value."""
        key = key_of_value(value)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.values)
            self.values.append(value)
            self.keys.append(key)
            self.used.append(0)
            self._looks.append(None)
            self._flat.append(flat(value))
            self.mentioned.append(self._mentions(self._flat[-1]))
        return known

    def variant(self, number: int, fields: tuple[str, ...] | None, *, alone: bool = False) -> int:
        """Another value that this one may be given as: with these fields only (None: as text), `alone` in a list; -1
        where it cannot."""
        key = (number, alone, fields)
        known = self._variants.get(key)
        if known is None:
            value = self.values[number]
            if fields is None:
                value = value if isinstance(value, str) else canonical_json(value)
            elif fields and isinstance(value, (dict, list)) and form_of(value) != SCALARS:
                value = project(value, fields)
            made = None if value is None else [value] if alone else value
            known = self._variants[key] = -1 if made is None else self.number(made)
        return known

    def _path(self, path: str) -> int:
        number = self.paths.number(path)
        if number == len(self.path_counts):
            self.path_counts.append(0)
        return number

    def hear(self, text: str, *, user: bool) -> None:
        """The user or the agent said this."""
        said, mentioned = text.lower(), self.mentioned.array
        self._mentions_of = {}
        now = np.fromiter((one != "" and one in said for one in self._flat), np.int64, len(mentioned))
        if user:
            self._last_user = said
            self._all_user += _BETWEEN + said
            mentioned[:] = mentioned & ~1 | now | 4 * now
        else:
            self._last_own = said
            mentioned[:] = mentioned & ~2 | 2 * now

    def see_year(self, text: str) -> None:
        """Take the year of a date in this text, for days that are named without one."""
        if match := _YEAR.search(text):
            self.year = match[1]

    # Asking

    @property
    def size(self) -> int:
        """Occurrences."""
        return len(self._rows) // READ

    @property
    def rows(self) -> npt.NDArray[np.int32]:
        """(occurrences, columns that are read): see `kernels`."""
        return np.array(self._rows, np.int32).reshape(-1, READ)

    @property
    def codes(self) -> Codes:
        """(occurrences, 3): codes of path, name, and the words before."""
        return np.array(self._codes, np.uint64).reshape(-1, 3)

    @property
    def plain_shapes(self) -> npt.NDArray[np.bool_]:
        """By shape: whether it is that of a plain word."""
        return np.array([one in _PLAIN for one in self.shapes.listed], np.bool_)

    def alike(self, argument: str) -> Places:
        """By name: how alike it is to an argument's."""
        known = self._alike.setdefault(argument, [])
        known += [likeness(name, argument) for name in self.names.listed[len(known) :]]
        return np.array(known, np.int64)

    def words(self) -> Places:
        """The distinct words of texts: the last bits of their codes."""
        kind = self.rows[:, KIND]
        return np.unique(self.rows[(kind > RESULT) & (kind < ARGUMENT), WORD])

    def find(self, value: Any) -> int:
        """The number of a value, -1 where it was not seen."""
        return self._numbers.get(key_of_value(value), -1)

    def find_key(self, key: str) -> int:
        """The number of the value with this key, -1 where it was not seen."""
        return self._numbers.get(key, -1)

    def mentions(self, value: Any) -> int:
        """Whose words hold this value: 1 the user's last, 2 the agent's last, 4 any of the user's."""
        return self._mentions(flat(value))

    def _mentions(self, text: str) -> int:
        known = self._mentions_of.get(text)
        if known is None:
            user = text != "" and text in self._all_user
            now, own = user and text in self._last_user, text != "" and text in self._last_own
            known = self._mentions_of[text] = now + 2 * own + 4 * user
        return known

    def times_used(self, value: Any) -> int:
        """How often this value was an argument."""
        number = self.find(value)
        return 0 if number < 0 else int(self.used.array[number])

    def unused(self, path: int, fresh_from: int) -> tuple[int, int]:
        """How many values at the path of this code were no argument yet, and how many of those are fresh."""
        unused, fresh, used = 0, 0, self.used.array
        for number, message in self._by_path.get(path, ())[-40:]:
            if not used[number]:
                unused += 1
                fresh += message >= fresh_from
        return unused, fresh

    def records_of(self, value: Any) -> list[int]:
        """Records of results that this value stood in."""
        return self._records_of.get(self.find(value), [])

    @property
    def user_text(self) -> str:
        """All that the user said, in lower case."""
        return self._all_user


def key_of(call: ToolCall) -> str:
    """One text for one call."""
    return call.name + canonical_json(call.arguments)


def key_of_value(value: Any) -> str:
    """One text that no other value has: a text is its own, other JSON (and a text with a NUL first) follows a NUL."""
    return value if type(value) is str and value[:1] != "\0" else "\0" + canonical_json(value)
