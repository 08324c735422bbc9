"""Where an answer is in a text that it may follow, byte by byte, however either is cut into tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from agentspec.verifier.drafting.codec import Codec

TAIL_BYTES = 64  # of the answer, enough to find the place again
_FAR = 8  # bytes that must agree to resume anywhere
_PLACES = 12  # of them that are compared
_NEAR = (7, 6, 5, 4, 3)  # and to resume not far behind the place that was lost
_NEAR_BYTES = 160
_BEGUN_BYTES = 6  # what agrees less may be chance
_WINDOW_BYTES = 512  # tokenized at a time


class Alignment:
    """A text, and how far an answer has come in it.

    Args:
        text: what may come; `tokens` where it is known how it will be cut (special tokens may be among them).

    Attributes:
        at: the byte that should come next.
        agreed: bytes before it that agreed without a break; 0: lost, or not begun.
        begun: enough of it has come to believe that it is followed.
        missed: tokens since the place was lost.
    """

    def __init__(self, codec: Codec, text: bytes, tokens: Sequence[int] = ()) -> None:
        self._codec = codec
        self._text = text
        self._lost = 0
        self.at = 0
        self.agreed = 0
        self.begun = False
        self.missed = 0
        self._cut(tokens, 0)

    def feed(self, token: int, tail: bytes) -> None:
        """The answer went on by a token; `tail` is the answer's end, the token included."""
        piece = self._codec.piece(token)
        if self._next < len(self._tokens) and self._tokens[self._next] == token and self._starts[self._next] == self.at:
            self._place(self.at + len(piece), self.agreed + len(piece), self._next + 1)
        elif piece and self._text.startswith(piece, self.at):
            self._place(self.at + len(piece), self.agreed + len(piece))
        elif piece:
            self.resume(tail)

    def resume(self, tail: bytes) -> None:
        """Find the place again (or for the first time) by the answer's end."""
        if self.missed == 0:
            self._lost = self.at
        place, agreed = self._anywhere(tail)
        if agreed:
            self._place(place, agreed)
            return
        if not self.begun:
            size = next((n for n in range(min(_FAR - 1, len(tail)), 0, -1) if tail.endswith(self._text[:n])), 0)
            self._place(size, size)
            return
        for length in _NEAR:
            found = self._find(tail, length, self._lost, self._lost + _NEAR_BYTES)
            if found >= 0:
                self._place(found + length, length)
                return
        self._substituted()

    def upcoming(self, limit_tokens: int) -> list[int]:
        """The tokens that should come next, at most so many; none when the place is lost."""
        if self.missed > 1:
            return []
        if self._next >= len(self._tokens) or self._starts[self._next] != self.at:
            self._read_window()
        return self._tokens[self._next : self._next + limit_tokens]

    def _anywhere(self, tail: bytes) -> tuple[int, int]:
        """Where the tail agrees longest, the first such place after the lost one, and how many bytes; 0: nowhere."""
        key, best, most = tail[-_FAR:], 0, 0
        middle = max(0, self._lost - _FAR)
        ahead, behind = self._places(key, middle, len(self._text)), self._places(key, 0, middle + _FAR - 1)
        for place in [*ahead, *behind] if len(key) == _FAR else []:
            agreed = _agreement(self._text[max(0, place - TAIL_BYTES) : place], tail)
            if agreed > most:
                best, most = place, agreed
        return best, most

    def _places(self, key: bytes, start: int, end: int) -> list[int]:
        """Where some occurrences of the key end."""
        places: list[int] = []
        while len(places) < _PLACES and (found := self._text.find(key, start, end)) >= 0:
            places.append(found + len(key))
            start = found + 1
        return places

    def _find(self, tail: bytes, length: int, start: int, end: int) -> int:
        return self._text.find(tail[-length:], start, end) if length <= len(tail) else -1

    def _place(self, at: int, agreed: int, following: int | None = None) -> None:
        self.at, self.agreed, self.missed = at, agreed, 0
        self.begun = self.begun or agreed >= _BEGUN_BYTES
        self._next = bisect_left(self._starts, at) if following is None else following

    def _substituted(self) -> None:
        """A token came in another one's place: perhaps the one after it comes next."""
        if self.missed == 0:
            for token in self.upcoming(1):
                self.at += len(self._codec.piece(token))
                self._next += 1
        self.missed += 1
        self.agreed = 0

    def _cut(self, tokens: Sequence[int], start: int) -> None:
        self._tokens = list(tokens)
        self._starts = list(accumulate((len(self._codec.piece(token)) for token in tokens), initial=start))[:-1]
        self._next = 0

    def _read_window(self) -> None:
        end = self.at + _WINDOW_BYTES
        window = self._text[self.at : end]
        if not window or window[0] & 0xC0 == 0x80:  # inside a character
            self._cut((), self.at)
            return
        tokens = self._codec.encode(window.decode(errors="ignore"))
        self._cut(tokens if end >= len(self._text) else tokens[:-2], self.at)


def _agreement(a: bytes, b: bytes) -> int:
    """Bytes at the end that are equal."""
    size = min(len(a), len(b))
    return next((n for n in range(size) if a[-1 - n] != b[-1 - n]), size)
