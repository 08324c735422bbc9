"""From generated text to OpenAI deltas, without I/O.

Rules:

* Text streams as `TextDelta` at once, except an end that could begin a call (whitespace, a code fence, `<tool_call>`,
  `{"name": "`).
* A call begins with `{"name": "`. Whitespace, fence and tag right before it are dropped.
* `CallStart` comes when the name is complete; then `CallArguments` as they are generated: joined, they are the very
  text of the arguments' object.
* What was held back and turned out to be no call is text; after a call, whitespace and closing tags are dropped.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass
from enum import Enum, auto

OPENING = re.compile(r'\{\s*"name":\s*"')
_WRAPPERS = ("</tool_call>", "<tool_call>", "```json", "```")
_NAME_KEY = ("{", '"name":', '"')


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call's name is known; `id` is fresh."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments."""

    index: int
    fragment: str


Delta = TextDelta | CallStart | CallArguments


class _State(Enum):
    TEXT = auto()
    NAME = auto()
    GAP = auto()
    ARGUMENTS = auto()
    CLOSE = auto()


class ToolCallParser:
    """Feed it text in any pieces; the deltas, joined, do not depend on how the text was cut."""

    def __init__(self) -> None:
        self._state = _State.TEXT
        self._buffer = ""
        self._opening = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self.calls = 0

    def feed(self, text: str) -> list[Delta]:
        self._buffer += text
        deltas: list[Delta] = []
        while self._step(deltas):
            pass
        return deltas

    def end(self) -> list[Delta]:
        """The generation is over: what is still held back."""
        rest, self._buffer = self._buffer, ""
        if self._state is _State.NAME:
            return [TextDelta(self._opening + rest)]
        nothing = self._state is not _State.TEXT or (self.calls and not _strip_wrappers(rest))
        return [] if nothing or not rest else [TextDelta(rest)]

    def _step(self, deltas: list[Delta]) -> bool:
        """Do one transition; False when more text is needed."""
        match self._state:
            case _State.TEXT:
                return self._text(deltas)
            case _State.NAME:
                return self._name(deltas)
            case _State.GAP:
                return self._skip_to("{", _State.ARGUMENTS, keep=True)
            case _State.ARGUMENTS:
                return self._arguments(deltas)
            case _State.CLOSE:
                return self._skip_to("}", _State.TEXT, keep=False)

    def _text(self, deltas: list[Delta]) -> bool:
        for start, char in enumerate(self._buffer):
            if char not in "{<`" and not char.isspace():
                continue
            end = _opening_end(self._buffer, start)
            if end is None:
                continue
            self._emit_text(self._buffer[:start], deltas)
            if end < 0:  # it may still become one
                self._buffer = self._buffer[start:]
                return False
            self._opening, self._buffer = self._buffer[start:end], self._buffer[end:]
            self._state = _State.NAME
            return True
        self._emit_text(self._buffer, deltas)
        self._buffer = ""
        return False

    @staticmethod
    def _emit_text(text: str, deltas: list[Delta]) -> None:
        if text:
            deltas.append(TextDelta(text))

    def _name(self, deltas: list[Delta]) -> bool:
        found = re.match(r'((?:[^"\\]|\\.)*)"', self._buffer, re.DOTALL)
        if found is None:
            return False
        self._buffer = self._buffer[found.end() :]
        name = str(json.loads(f'"{found[1]}"', strict=False))
        deltas.append(CallStart(self.calls, f"call_{uuid.uuid4().hex[:24]}", name))
        self.calls += 1
        self._state = _State.GAP
        return True

    def _skip_to(self, char: str, then: _State, *, keep: bool) -> bool:
        at = self._buffer.find(char)
        self._buffer = self._buffer[at if keep else at + 1 :] if at >= 0 else ""
        if at >= 0:
            self._state = then
        return at >= 0

    def _arguments(self, deltas: list[Delta]) -> bool:
        end = self._object_end()
        fragment, self._buffer = self._buffer[:end], self._buffer[end:]
        if fragment:
            deltas.append(CallArguments(self.calls - 1, fragment))
        if self._depth == 0 and fragment:
            self._state = _State.CLOSE
            return True
        return False

    def _object_end(self) -> int:
        """How many characters of the buffer belong to the arguments' object."""
        for index, char in enumerate(self._buffer):
            if self._in_string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._in_string = False
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return index + 1
        return len(self._buffer)


def _strip_wrappers(text: str) -> str:
    for wrapper in _WRAPPERS:
        text = text.replace(wrapper, "")
    return text.strip()


def _opening_end(text: str, at: int) -> int | None:
    """Where the opening that begins at `at` ends; -1: the text ends inside what could be one; None: it is none."""
    while True:
        at = _skip_space(text, at)
        wrapper = next((w for w in _WRAPPERS if text.startswith(w, at)), None)
        if wrapper is None:
            break
        at += len(wrapper)
    if any(w.startswith(text[at:]) for w in _WRAPPERS):
        return -1
    for literal in _NAME_KEY:
        at = _skip_space(text, at)
        if not text.startswith(literal, at):
            return -1 if literal.startswith(text[at:]) else None
        at += len(literal)
    return at


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at
