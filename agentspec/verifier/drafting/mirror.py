"""The engine's text as a draft model sees it: the same tokens, or the same text in tokens of its own.

The second is universal assisted generation (arXiv 2502.05202, section 3.1): decode, tokenize again, and take off what
is the context's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agentspec.verifier.drafting.codec import Codec

_OPEN_BYTES = 256  # of the end are tokenized again and again, as further text may change how it is cut
_MARGIN_BYTES = 64
_LOOKBACK_BYTES = 48  # of context, to see where what was added begins
UNSETTLED_TOKENS = 2 * _OPEN_BYTES  # at most so many of the last tokens may change


class Mirror(Protocol):
    """One request's text in the draft model's tokens."""

    @property
    def tokens(self) -> list[int]:
        """All of it."""
        ...

    def extend(self, tokens: Sequence[int]) -> None:
        """The engine's text goes on, in the engine's tokens."""
        ...

    def translated(self, drafted: Sequence[int]) -> list[int]:
        """The engine's tokens for what the draft model adds to `tokens`."""
        ...


class SameTokens:
    """Both models share a vocabulary."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self.tokens.extend(tokens)

    def translated(self, drafted: Sequence[int]) -> list[int]:
        return list(drafted)


class SameText:
    """The models' vocabularies differ: `ours` is the engine's, `theirs` the draft model's."""

    def __init__(self, ours: Codec, theirs: Codec, tokens: Sequence[int]) -> None:
        self._ours = ours
        self._theirs = theirs
        self._settled: list[int] = []
        self._open = b""
        self.tokens: list[int] = []
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        self._open += b"".join(map(self._ours.piece, tokens))
        if len(self._open) > _OPEN_BYTES:
            cut = self._cut()
            self._settled += self._theirs.encode(self._open[:cut].decode(errors="ignore"))
            self._open = self._open[cut:]
        self.tokens = self._settled + self._theirs.encode(self._open.decode(errors="ignore"))

    def translated(self, drafted: Sequence[int]) -> list[int]:
        whole = b"".join(map(self._theirs.piece, [*self.tokens[-UNSETTLED_TOKENS:], *drafted]))
        known = self._open[-_LOOKBACK_BYTES:]
        at = whole.rfind(known, 0, len(whole) if known else 0)
        if at < 0:
            return []
        return self._ours.encode(whole[at + len(known) :].decode(errors="ignore"))

    def _cut(self) -> int:
        """Where words, or at least characters, are not torn."""
        text = self._open[:-_MARGIN_BYTES]
        cut = max(text.rfind(b"\n"), text.rfind(b" "))
        if cut > 0:
            return cut
        cut = len(text)
        while self._open[cut] & 0xC0 == 0x80:
            cut += 1
        return cut
