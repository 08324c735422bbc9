"""Thinking, split from the answer's text.

A reasoning model writes `<think>…</think>` first; some templates write the opening tag themselves, at the end of the
prompt. Line breaks around the tags belong to them: templates put them back.
"""

from __future__ import annotations

from agentspec.verifier.server.deltas import Delta, ReasoningDelta, TextDelta

OPEN, CLOSE = "<think>", "</think>"


def opened_by(prompt: str) -> bool:
    """Whether the template has opened the thinking."""
    return prompt.rstrip().endswith(OPEN)


class ThinkSplitter:
    """Text in any pieces in, thinking and the rest out; what comes out, joined, does not depend on the pieces.

    Args:
        opened: the prompt has opened the thinking.
    """

    def __init__(self, *, opened: bool) -> None:
        self._held = ""
        self._state = self._thinking if opened else self._start
        self._said = False
        """Whether the part that is being told has begun: line breaks before it are dropped."""

    @property
    def thinking(self) -> bool:
        """Whether what comes next is thinking, as far as is known."""
        return self._state == self._thinking

    def feed(self, text: str) -> list[Delta]:
        self._held += text
        deltas: list[Delta] = []
        while self._held and self._state(deltas):
            pass
        return deltas

    def end(self) -> list[Delta]:
        """Nothing more comes."""
        rest, self._held = self._held, ""
        if self._state == self._thinking:
            rest = rest.rstrip("\n") if self._said else rest.strip("\n")
            return [ReasoningDelta(rest)] if rest else []
        rest = rest if self._said or self._state == self._start else rest.lstrip("\n")
        return [TextDelta(rest)] if rest else []

    # Each state takes from what is held; True: go on.

    def _start(self, deltas: list[Delta]) -> bool:
        begun = self._held.lstrip()
        if begun.startswith(OPEN):
            self._held = begun[len(OPEN) :]
            self._state = self._thinking
            return True
        if OPEN.startswith(begun):
            return False
        self._said, self._state = True, self._text
        return True

    def _thinking(self, deltas: list[Delta]) -> bool:
        if not self._said:
            self._held = self._held.lstrip("\n")
        at = self._held.find(CLOSE)
        closed = at >= 0
        told = (self._held[:at] if closed else self._held[: _safe(self._held)]).rstrip("\n")
        if closed:
            self._held = self._held[at + len(CLOSE) :]
        else:
            self._held = self._held[len(told) :]
        if told:
            deltas.append(ReasoningDelta(told))
            self._said = True
        if closed:
            self._said, self._state = False, self._text
        return closed

    def _text(self, deltas: list[Delta]) -> bool:
        text = self._held if self._said else self._held.lstrip("\n")
        self._held = ""
        if text:
            self._said = True
            deltas.append(TextDelta(text))
        return False


def _safe(text: str) -> int:
    """How many characters cannot be part of a closing tag that is still to come."""
    size = next((n for n in range(min(len(text), len(CLOSE) - 1), 0, -1) if text.endswith(CLOSE[:n])), 0)
    return len(text) - size
