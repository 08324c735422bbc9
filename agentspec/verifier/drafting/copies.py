"""Other ways in which a text can come up again in an answer.

A file that was read in plain comes back JSON-escaped inside a tool call's arguments; a tool's compact JSON comes back
with the spaces that models write; what a tool returned escaped is quoted in plain.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_OBJECT = re.compile(r'\{\s*"|\[\s*[{\["]')
_TRIES = 200  # places where a JSON value may begin
_SHORTEST = 12  # characters; what is shorter is found soon enough without a copy
_DECODER = json.JSONDecoder()


def copies(text: str) -> list[str]:
    """Each copy that differs from the text (or the part of it that it is of)."""
    found = [escaped(text), *unescaped(text), *respaced(text)]
    return [copy for copy in dict.fromkeys(found) if len(copy) >= _SHORTEST and copy != text]


def escaped(text: str) -> str:
    """As it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def unescaped(text: str) -> Iterator[str]:
    """The contents of JSON strings that hold escapes."""
    for match in _STRING.finditer(text):
        if "\\" in match[0]:
            try:
                yield json.loads(match[0], strict=False)
            except ValueError:
                continue


def respaced(text: str) -> Iterator[str]:
    """JSON values as chat templates and models write them: a space after each comma and colon."""
    at = 0
    for _ in range(_TRIES):
        start = _OBJECT.search(text, at)
        if start is None:
            return
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            at = start.end()
            continue
        written = json.dumps(value, ensure_ascii=False)
        if written != text[start.start() : at]:
            yield written
