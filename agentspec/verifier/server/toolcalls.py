"""From generated text to deltas, without I/O.

Rules:

* Text streams as `TextDelta` at once, except an end that could begin a call (white space, a code fence, a tag, `{`).
* A call in the form that our grammar writes, `{"name": "f", "arguments": {`, is told when its header is complete, then
  its arguments as they come: joined, they are the very text of the object. The grammar makes sure that it closes.
* A call in another form (`dialects`) is held back until it is whole, then told at once.
* White space, fences and tags around a call are dropped. What looked like a call and is none is text, every character.
"""

from __future__ import annotations

import uuid
from typing import Any

from agentspec.calls import JsonCloser
from agentspec.verifier.server.deltas import CallArguments, CallStart, Delta, TextDelta
from agentspec.verifier.server.dialects import FENCE, Call, Held, Schemas, grammar, unquoted

__all__ = ["CallArguments", "CallStart", "Delta", "TextDelta", "ToolCallParser"]


class ToolCallParser:
    """Feed it text in any pieces; the deltas, joined, do not depend on how the text was cut.

    Args:
        schemas: the functions that may be called, with their parameters' schemas; None: any name is one.
    """

    def __init__(self, schemas: Schemas | None = None) -> None:
        self._schemas = schemas
        self._grammar = grammar(None if schemas is None else tuple(schemas))
        self._state = self._text
        self._buffer = ""
        self._begun = ""
        """What the call that is held has been fed so far, or what a streamed one was opened with."""
        self._held: Held | None = None
        self._closer = JsonCloser()
        self._fenced = False
        self._ended = False
        self._just_called = False
        self.calls = 0

    def feed(self, text: str) -> list[Delta]:
        self._buffer += text
        deltas: list[Delta] = []
        while self._state(deltas):
            pass
        return deltas

    def end(self, *, whole: bool = True) -> list[Delta]:
        """The generation is over: what is still held back. `whole`: it ended by itself, and was not cut off."""
        self._ended = True
        deltas = self._flush()
        while self._held is not None:
            calls = self._held.rest() if whole else None
            if calls is None:
                self._give_up(deltas)
            else:
                self._tell(calls, deltas)
                self._begun = self._buffer = ""
            deltas += self._flush()
        return deltas

    def _flush(self) -> list[Delta]:
        """Nothing more comes: white space after a call is dropped, and what could have become a call is none."""
        if self._just_called and not self._buffer.strip():
            self._buffer = ""
        return self.feed("")

    # Each state does one transition on the buffer; False: it needs more text.

    def _text(self, deltas: list[Delta]) -> bool:
        for start, char in enumerate(self._buffer):
            if char not in "{<[`" and not char.isspace():
                continue
            header = self._match(self._grammar.header, start)
            found = header if header is not None else self._match(self._grammar.held, start)
            if found is None:
                continue
            self._emit(self._buffer[:start], deltas)
            self._buffer = self._buffer[start:]
            if found.partial:
                return False
            self._open(found, start, deltas)
            return True
        self._emit(self._buffer, deltas)
        self._buffer = ""
        return False

    def _match(self, pattern: Any, start: int) -> Any:
        """The match at `start`, partial where the buffer ends inside it; None: no more text can make one."""
        found = pattern.match(self._buffer, start, partial=not self._ended)
        return found if found is not None and found.end() > start else None

    def _open(self, found: Any, start: int, deltas: list[Delta]) -> None:
        self._fenced = FENCE in found[0]
        if "name" in found.groupdict():
            deltas.append(CallStart(self.calls, _new_id(), unquoted(found["name"])))
            self.calls += 1
            self._just_called = True
            self._closer = JsonCloser()
            self._buffer = self._buffer[found.end() - start - 1 :]
            self._state = self._arguments
            return
        begin = found.start(found.lastgroup) - start
        self._begun, self._buffer = self._buffer[:begin], self._buffer[begin:]
        self._held = Held(found.lastgroup, self._schemas)
        self._state = self._whole

    def _emit(self, text: str, deltas: list[Delta]) -> None:
        if text:
            self._just_called = False
            deltas.append(TextDelta(text))

    def _arguments(self, deltas: list[Delta]) -> bool:
        before = self._closer.end
        closed = self._closer.feed(self._buffer)
        taken = self._closer.end - before if closed else len(self._buffer)
        fragment, self._buffer = self._buffer[:taken], self._buffer[taken:]
        if fragment:
            deltas.append(CallArguments(self.calls - 1, fragment))
        if closed:
            self._state = self._brace
        return closed

    def _brace(self, deltas: list[Delta]) -> bool:
        """The call's own closing brace."""
        rest = self._buffer.lstrip()
        if rest:
            self._buffer = rest.removeprefix("}")
            self._state = self._after
        return bool(rest)

    def _after(self, deltas: list[Delta]) -> bool:
        """Tags and the fence that close the call."""
        if not self._buffer:
            return False
        found = self._match(self._grammar.fenced if self._fenced else self._grammar.after, 0)
        if found is None:
            self._state = self._text
            return bool(self._buffer)
        if found.partial:
            return False
        self._buffer = self._buffer[found.end() :]
        self._fenced = self._fenced and FENCE not in found[0]
        return True

    def _whole(self, deltas: list[Delta]) -> bool:
        assert self._held is not None
        end = self._held.feed(self._buffer)
        self._begun += self._buffer
        self._buffer = ""
        if end is None:
            return False
        text = self._held.text
        calls = self._held.calls(text[:end])
        if calls is None:
            self._give_up(deltas)
            return True
        self._buffer = text[end:]
        self._tell(calls, deltas)
        return True

    def _tell(self, calls: list[Call], deltas: list[Delta]) -> None:
        for call in calls:
            deltas.append(CallStart(self.calls, _new_id(), call.name))
            deltas.append(CallArguments(self.calls, call.arguments))
            self.calls += 1
        self._just_called = True
        self._held, self._state = None, self._after

    def _give_up(self, deltas: list[Delta]) -> None:
        """It is no call: its first character is text, and a call may begin behind it."""
        assert self._held is not None
        lead = len(self._begun) - len(self._held.text)
        self._emit(self._begun[: lead + 1], deltas)
        self._buffer = self._begun[lead + 1 :] + self._buffer
        self._held, self._state = None, self._text


def _new_id() -> str:
    return f"call_{uuid.uuid4().hex[:24]}"
