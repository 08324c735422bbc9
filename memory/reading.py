"""Values in what was said: the leaves of JSON results and arguments, the words of texts; pure functions.

Every value is found with its place, generalised: list indices and keys that look like ids are left out of the path, so
that the same place in another result has the same path.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

SCALAR, SCALARS, RECORD, RECORDS, DAY = 0, 1, 2, 3, 4
"""Forms of a value: text, number or flag; a list of such; an object; a list of objects; month and day of a date."""

MAX_LEAVES = 400
MAX_WORDS = 160
MAX_CHARS = 20_000
"""What is read of a text."""
MAX_DEPTH = 8
MAX_ITEMS = 60
"""Longest list that may be an argument as a whole."""
LONG_CHARS = 40
"""A longer text in a result is read by its words too."""


class Found(NamedTuple):
    """A value and where it stood.

    Attributes:
        path: its generalised place.
        key: the name it stood under; in a text the word before it.
        before: the two words before it, or the name that its record stood under.
        record: number of the record that it is a field of, within this text or result.
        form: SCALAR, SCALARS, RECORD, RECORDS or DAY.
    """

    value: Any
    path: str
    key: str
    before: str
    record: int
    form: int


def parsed_json(text: str) -> Any:
    """The JSON that a text is, None where it is none."""
    stripped = text.strip()
    if not stripped or stripped[0] not in '{["-0123456789tfnIN':
        return None
    try:
        return json.loads(stripped)
    except (ValueError, RecursionError):
        return None


def json_values(value: Any, source: str) -> Iterator[Found]:
    """The leaves of a JSON value in order, and its lists and objects as wholes."""
    walk = _Walk()
    yield from walk.values(value, _At(source))


class _At(NamedTuple):
    path: str
    key: str = ""
    above: str = ""
    record: int = 0
    depth: int = 0

    def found(self, value: Any, form: int) -> Found:
        return Found(value, self.path, self.key, self.above, self.record, form)


class _Walk:
    def __init__(self) -> None:
        self.records = 0
        self.left = MAX_LEAVES

    def values(self, value: Any, at: _At) -> Iterator[Found]:
        if self.left <= 0 or at.depth > MAX_DEPTH:
            return
        self.left -= 1
        if isinstance(value, dict):
            yield from self._object(value, at)
        elif isinstance(value, list):
            yield from self._list(value, at)
        elif value is not None:
            yield at.found(value, SCALAR)
            if isinstance(value, str) and len(value) > LONG_CHARS:
                for found in islice(text_values(value, at.path + "~"), max(self.left, 0)):
                    self.left -= 1
                    yield found

    def _object(self, value: dict[str, Any], at: _At) -> Iterator[Found]:
        self.records += 1
        mine = self.records
        if at.depth:
            yield at.found(value, RECORD)
        named_by_ids = 3 * sum(map(_looks_like_an_id, islice(value, MAX_LEAVES))) > 2 * min(len(value), MAX_LEAVES)
        for name, item in value.items():
            if self.left <= 0:
                return
            if named_by_ids:
                self.left -= 1
                yield Found(name, at.path + ".{}", at.key, at.above, mine, SCALAR)
                yield from self.values(item, _At(at.path + ".*", at.key, at.key, mine, at.depth + 1))
            else:
                yield from self.values(item, _At(f"{at.path}.{name}", name, at.key, mine, at.depth + 1))

    def _list(self, value: list[Any], at: _At) -> Iterator[Found]:
        if value and at.depth and len(value) <= MAX_ITEMS:
            records = all(isinstance(item, dict) for item in value)
            if records or not any(isinstance(item, (dict, list)) for item in value):
                yield at.found(value, RECORDS if records else SCALARS)
        for item in islice(value, max(self.left, 0)):
            yield from self.values(item, at._replace(path=at.path + "[]", depth=at.depth + 1))


def _looks_like_an_id(name: str) -> bool:
    return any(c.isdigit() for c in name) or " " in name


_TOKEN = re.compile(
    r"""(?P<quote>"[^"\n]{1,80}"|`[^`\n]{1,120}`|(?<!\w)'[^'\n]{1,80}'(?!\w))"""
    r"""|(?P<money>\$\s?\d[\d,]*(?:\.\d+)?|\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w-]))|(?P<word>[\w@#/~][\w@./:#+~-]*+)"""
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?$")
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?$")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def text_values(text: str, path: str) -> Iterator[Found]:
    """What of a text may become an argument: words, quoted parts, numbers, runs of capitalised words, dates."""
    before = ("", "")
    run: list[str] = []
    start = ("", "")
    for match in islice(_TOKEN.finditer(text[:MAX_CHARS]), MAX_WORDS):
        token = match[0].rstrip(".:#+~@-") if match["word"] else match[0]
        if not token:
            continue
        if match["quote"]:
            yield Found(token[1:-1], path + '"', before[1], " ".join(before), 0, SCALAR)
        run, start, spans = _run(run, start, token, before, match["word"] is not None)
        for words in spans:
            yield Found(words, path + "^", start[1], " ".join(start), 0, SCALAR)
        yield from _word(token, path, before)
        before = (before[1], token.lower())
    if len(run) > 1:
        yield Found(" ".join(run), path + "^", start[1], " ".join(start), 0, SCALAR)


def _run(
    run: list[str], start: tuple[str, str], token: str, before: tuple[str, str], word: bool
) -> tuple[list[str], tuple[str, str], list[str]]:
    """Grow a run of capitalised words; what has ended comes back as spans."""
    if word and token[:1].isupper():
        return ([*run, token], start if run else before, [])
    return [], start, [" ".join(run)] if len(run) > 1 else []


def _word(token: str, path: str, before: tuple[str, str]) -> Iterator[Found]:
    token = token[1:].strip() if token[0] == "$" else token
    plain, context = token.replace(",", ""), " ".join(before)
    if len(plain) < 19 and _NUMBER.match(plain):
        yield Found(float(plain) if "." in plain else int(plain), path + "0", before[1], context, 0, SCALAR)
    day = _DAY.match(plain)
    if day and before[1][:3] in _MONTHS and 0 < int(day[1]) <= 31:
        date = f"{_MONTHS.index(before[1][:3]) + 1:02d}-{int(day[1]):02d}"
        yield Found(date, path + "-", before[0], context, 0, DAY)
    if token.startswith("#") and len(token) > 1:
        yield Found(token[1:], path, before[1], context, 0, SCALAR)
    yield Found(token, path, before[1], context, 0, SCALAR)


class _Marks(dict[int, str]):
    """What stands for a character in a shape: its kind."""

    def __missing__(self, point: int) -> str:
        one = chr(point)
        mark = self[point] = "0" if one.isdigit() else "A" if one.isupper() else "a" if one.isalpha() else one
        return mark


_MARKS = _Marks()
_RUN = re.compile(r"(.)(\1*)", re.DOTALL)


def shape(value: Any) -> str:
    """What a value looks like: its kind of characters, runs shortened. `HAT188` -> `A+0+`."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, (int, float)):
        return "int" if isinstance(value, int) else "float"
    if not isinstance(value, str):
        return "list" if isinstance(value, list) else "object"
    marks = _RUN.findall(value[:24].translate(_MARKS))[:8]
    return "".join(mark + "+" * bool(more) for mark, more in marks) + ("…" if len(value) > 24 else "")
