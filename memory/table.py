"""Every value of a trajectory and every place where it stood, in growing columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from agentspec.calls import ToolCall, canonical_json
from agentspec.memory.hashing import Codes, Places, code
from agentspec.memory.reading import DAY, SCALAR, Found, shape

RESULT, RESULT_TEXT, USER_TEXT, OWN_TEXT, ARGUMENT = 0, 1, 2, 3, 4
"""Kinds of places: a field of a result, a result's text, the user's words, the agent's, an earlier argument."""

COLUMNS = (
    "value", "path", "path_number", "rank", "key", "before", "record", "form", "kind", "shape", "message", "type",
    "word",
)  # fmt: skip
WORD_BITS = 0xFFFF

_YEAR = re.compile(r"\b((?:19|20)\d\d)-\d\d-\d\d")
_TYPES = {str: 1, int: 2, float: 3, bool: 4, list: 5, dict: 6}


class Table:
    """The values, numbered in the order they were first seen, and their occurrences."""

    def __init__(self) -> None:
        self._rows = np.zeros((256, len(COLUMNS)), np.uint64)
        self.size = 0
        """Occurrences."""
        self.values: list[Any] = []
        self.keys: list[str] = []
        """By value: its key (`key_of_value`)."""
        self.used: list[int] = []
        """By value: how often it was an argument."""
        self.mentioned: list[int] = []
        """By value: see `mentions`."""
        self.names: dict[int, str] = {}
        """The names that values stood under, by code."""
        self.path_codes: list[int] = []
        self.path_names: list[str] = []
        self.path_counts: list[int] = []
        self.records = 0
        self.message = 0
        self.year = ""
        """The year of the last date that was seen whole."""
        self._numbers: dict[str, int] = {}
        self._paths: dict[str, int] = {}
        self._by_path: dict[int, list[tuple[int, int]]] = {}
        self._records_of: dict[int, list[int]] = {}
        self._last_user = self._last_own = self._all_user = ""

    # Growing

    def add(self, found: Found, kind: int, base: int) -> None:
        """A value stood somewhere. `base`: records that were counted before its message or result."""
        value, form = found.value, found.form
        if form == DAY:
            if not self.year:
                return
            value, form = f"{self.year}-{value}", SCALAR
        path, name, number = self._path(found.path), found.key.lower(), self.number(value)
        self.names.setdefault(code(name), name)
        record = base + found.record if found.record else 0
        self.records = max(self.records, record)
        if self.size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self.size] = (
            number, self.path_codes[path], path, self.path_counts[path], code(name), code(found.before.lower()), record,
            form, kind, code(shape(value)), self.message, _TYPES.get(type(value), 0),
            code(str(value).lower()) & WORD_BITS,
        )  # fmt: skip
        self.size += 1
        if kind == RESULT and record:
            self._records_of.setdefault(number, []).append(record)
        self.path_counts[path] += 1
        self._by_path.setdefault(self.path_codes[path], []).append((number, self.message))

    def number(self, value: Any) -> int:
        """The number of a value, a new one for a new value."""
        key = key_of_value(value)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.values)
            self.values.append(value)
            self.keys.append(key)
            self.used.append(0)
            self.mentioned.append(self.mentions(value))
        return known

    def _path(self, path: str) -> int:
        number = self._paths.get(path)
        if number is None:
            number = self._paths[path] = len(self.path_codes)
            self.path_codes.append(code(path))
            self.path_names.append(path)
            self.path_counts.append(0)
        return number

    def hear(self, text: str, *, user: bool) -> None:
        """The user or the agent said this."""
        if user:
            self._last_user = text.lower()
            self._all_user += "\n" + self._last_user
        else:
            self._last_own = text.lower()
        self.mentioned = [self.mentions(value) for value in self.values]

    def see_year(self, text: str) -> None:
        """Take the year of a date in this text, for days that are named without one."""
        if match := _YEAR.search(text):
            self.year = match[1]

    # Asking

    def last(self, count: int) -> dict[str, Codes]:
        """The latest occurrences, by column."""
        rows = self._rows[max(0, self.size - count) : self.size]
        return {name: rows[:, i] for i, name in enumerate(COLUMNS)}

    def words(self) -> Places:
        """The distinct words of texts: the last bits of their codes."""
        rows = self._rows[: self.size]
        kind = rows[:, COLUMNS.index("kind")]
        return np.unique(rows[(kind > RESULT) & (kind < ARGUMENT), COLUMNS.index("word")].astype(np.int64))

    def mentions(self, value: Any) -> int:
        """Whose words hold this value: 1 the user's last, 2 the agent's last, 4 any of the user's."""
        if not isinstance(value, (str, int, float)) or isinstance(value, bool):
            return 0
        text = str(value).lower()
        if len(text) < 2:
            return 0
        return (text in self._last_user) + 2 * (text in self._last_own) + 4 * (text in self._all_user)

    def times_used(self, value: Any) -> int:
        """How often this value was an argument."""
        number = self._numbers.get(key_of_value(value))
        return 0 if number is None else self.used[number]

    def unused(self, path: int, fresh_from: int) -> tuple[int, int]:
        """How many values at the path of this code were no argument yet, and how many of those are fresh."""
        unused = fresh = 0
        for number, message in self._by_path.get(path, ())[-40:]:
            if not self.used[number]:
                unused += 1
                fresh += message >= fresh_from
        return unused, fresh

    def records_of(self, value: Any) -> list[int]:
        """Records of results that this value stood in."""
        number = self._numbers.get(key_of_value(value))
        return self._records_of.get(number, []) if number is not None else []

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
