"""Tokens in, deltas out: decoding, stop strings, thinking, tool calls, in this order."""

from __future__ import annotations

from collections.abc import Callable

from agentspec.verifier.server.deltas import Delta, TextDelta
from agentspec.verifier.server.reasoning import ThinkSplitter
from agentspec.verifier.server.toolcalls import ToolCallParser
from agentspec.verifier.text import Detokenizer, StopFinder

Piece = Callable[[int], bytes]


class Assembler:
    """One answer's text.

    `stopped` says that a stop string or token was reached: nothing more may be fed. `reasoning_tokens` counts those
    that were thinking.

    Args:
        splitter: None: thinking is not told apart.
        parser: None: the answer cannot hold calls.
    """

    def __init__(
        self,
        piece: Piece,
        stops: tuple[str, ...] = (),
        *,
        splitter: ThinkSplitter | None = None,
        parser: ToolCallParser | None = None,
    ) -> None:
        self._piece = piece
        self._decoder = Detokenizer()
        self._stops = StopFinder(stops)
        self._splitter = splitter
        self._parser = parser
        self.stopped = False
        self.reasoning_tokens = 0

    @property
    def calls(self) -> int:
        return self._parser.calls if self._parser else 0

    def feed(self, token: int) -> list[Delta]:
        shown, self.stopped = self._stops.feed(self._decoder.feed(self._piece(token)))
        deltas = self._split(shown)
        if self._splitter is not None and self._splitter.thinking:
            self.reasoning_tokens += 1
        return deltas

    def end(self, *, whole: bool) -> list[Delta]:
        """The rest, once no more tokens come. `whole`: the answer ended by itself, and was not cut off."""
        deltas: list[Delta] = []
        if not self.stopped:
            shown, self.stopped = self._stops.feed(self._decoder.end())
            deltas += self._split(shown + self._stops.end())
        if self._splitter is not None:
            deltas += self._parse(self._splitter.end())
        return deltas + (self._parser.end(whole=whole) if self._parser else [])

    def _split(self, text: str) -> list[Delta]:
        if self._splitter is not None:
            return self._parse(self._splitter.feed(text))
        return self._parse([TextDelta(text)] if text else [])

    def _parse(self, deltas: list[Delta]) -> list[Delta]:
        if self._parser is None:
            return deltas
        parsed: list[Delta] = []
        for delta in deltas:
            parsed += self._parser.feed(delta.text) if isinstance(delta, TextDelta) else [delta]
        return parsed
