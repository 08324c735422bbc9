"""A grammar that lets the model think first: it begins behind `</think>`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import torch

from agentspec.verifier.server.reasoning import CLOSE
from agentspec.verifier.verification.grammar import GrammarConstraint

_WINDOW = 24  # tokens that are looked at for the closing tag; some have no text


class Codec(Protocol):
    """The little that has to be known of text."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, no special tokens added."""
        ...

    def spoken(self, token: int) -> bytes:
        """What a token adds to the text, tags that are special tokens included."""
        ...


class _Phase(Enum):
    FRESH = auto()
    THINKING = auto()
    GRAMMAR = auto()
    FREE = auto()


@dataclass(frozen=True, slots=True)
class _Step:
    """What a token changed, so that it can be taken back."""

    before: _Phase
    taken: int


class AfterThinking:
    """A `Constraint` around the answer's own.

    Args:
        opener: the token of `<think>`, with which the answer may begin; None: the prompt has opened the thinking.
    """

    def __init__(self, inner: GrammarConstraint, codec: Codec, opener: int | None) -> None:
        self._inner = inner
        self._codec = codec
        self._opener = opener
        self._phase = _Phase.THINKING if opener is None else _Phase.FRESH
        self._steps: list[_Step] = []
        self._thoughts: list[bytes] = []

    def allowed(self) -> torch.Tensor | None:
        """`[vocab]` bool; None, which is all, while the model thinks."""
        match self._phase:
            case _Phase.GRAMMAR:
                return self._inner.allowed()
            case _Phase.FRESH:
                mask = self._inner.allowed().clone()
                mask[self._opener] = True
                return mask
            case _:
                return None

    def advance(self, token: int) -> None:
        """A token was generated."""
        before, taken = self._phase, 0
        if before is _Phase.THINKING:
            self._thoughts.append(self._codec.spoken(token))
            taken = self._close()
        elif before is _Phase.FRESH and token == self._opener:
            self._phase = _Phase.THINKING
        elif before is not _Phase.FREE:
            self._phase = _Phase.GRAMMAR
            self._inner.advance(token)
            taken = 1
        self._steps.append(_Step(before, taken))

    def _close(self) -> int:
        """Look for the end of the thinking; how many tokens the grammar has read of what came with it."""
        written = b"".join(self._thoughts[-_WINDOW:]).decode(errors="replace")
        _, closed, rest = written.partition(CLOSE)
        if not closed:
            return 0
        begun = self._codec.encode(rest.lstrip())
        fits = self._inner.valid_prefix(begun) == len(begun) and self._inner.accept_text(begun)
        self._phase = _Phase.GRAMMAR if fits else _Phase.FREE
        return len(begun) if fits else 0

    def rollback(self, count: int) -> None:
        """The last `count` tokens were not generated after all."""
        for _ in range(count):
            step = self._steps.pop()
            if step.taken:
                self._inner.rollback(step.taken)
            if step.before is _Phase.THINKING:
                self._thoughts.pop()
            self._phase = step.before

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        """How many of these tokens could come next; what lies behind the end of the thinking is not looked at."""
        match self._phase:
            case _Phase.GRAMMAR:
                return self._inner.valid_prefix(tokens)
            case _Phase.FRESH:
                opened = bool(tokens) and tokens[0] == self._opener
                return 1 if opened else self._inner.valid_prefix(tokens)
            case _Phase.THINKING:
                return self._before_the_end(tokens)
            case _:
                return len(tokens)

    def _before_the_end(self, tokens: Sequence[int]) -> int:
        written = self._thoughts[-_WINDOW:]
        for index, token in enumerate(tokens, start=1):
            written = [*written[1 - _WINDOW :], self._codec.spoken(token)]
            if CLOSE.encode() in b"".join(written):
                return index
        return len(tokens)

    def forced(self) -> list[int]:
        """The tokens that must come next; not yet advanced over."""
        return self._inner.forced() if self._phase is _Phase.GRAMMAR else []

    def finished(self) -> bool:
        """Nothing but the end may follow."""
        return self._phase is _Phase.GRAMMAR and self._inner.finished()
