"""Text that drafts are looked up in, bounded: whole generations of it are forgotten, the oldest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentspec.verifier.drafting.automaton import Automaton, Continuations, Match

_TAIL = 64  # tokens of context with which a generation that is new to a reader is matched


class Corpus:
    """Some generations of text, each an automaton.

    Args:
        most_tokens: kept at most.
        generations: in how many parts; one of them is forgotten at a time.
    """

    def __init__(self, most_tokens: int, generations: int = 4) -> None:
        self._size = max(16, most_tokens // generations)
        self._most = generations
        self._number = 0
        self.automata: dict[int, Automaton] = {}

    def __len__(self) -> int:
        """Tokens kept."""
        return sum(len(automaton) for automaton in self.automata.values())

    @property
    def nbytes(self) -> int:
        return sum(automaton.nbytes for automaton in self.automata.values())

    def add(self, tokens: Sequence[int] | NDArray[np.int32], *, continued: bool = False) -> None:
        """Another text, or (`continued`) more of the one added last. Of a very long one the end is kept."""
        new = np.asarray(tokens, dtype=np.int32)[-self._size + 1 :]
        if not len(new):
            return
        current = self.automata.get(self._number)
        if current is None or len(current) + len(new) + 1 > self._size:
            self._number += 1
            current = self.automata[self._number] = Automaton()
            while len(self.automata) > self._most:
                del self.automata[min(self.automata)]
        elif not continued:
            current.end_text()
        current.extend(new)


class Reader:
    """One context, matched against a corpus that may grow meanwhile."""

    def __init__(self, corpus: Corpus, context: Sequence[int]) -> None:
        self._corpus = corpus
        self._tail = list(context[-_TAIL:])
        self._matches: dict[int, Match] = {}
        self._read: dict[int, int] = {}  # tokens that a generation had when it was last looked at
        self._catch_up()

    def extend(self, tokens: Sequence[int]) -> None:
        """The context goes on."""
        self._catch_up()
        new = np.asarray(tokens, dtype=np.int32)
        for number, match in self._matches.items():
            self._corpus.automata[number].follow(match, new)
        self._tail = [*self._tail, *tokens][-_TAIL:]

    def continuations(self, least: int, limit: int, most: int) -> list[Continuations]:
        """From each generation, what followed the longest match in it. See `Automaton.continuations`."""
        self._catch_up()
        found = [
            self._corpus.automata[number].continuations(match, least, limit, most)
            for number, match in self._matches.items()
            if match.length >= least
        ]
        return [continuations for continuations in found if continuations.tokens]

    def _catch_up(self) -> None:
        """Match the context's end anew where text was added or forgotten."""
        now = {number: len(automaton) for number, automaton in self._corpus.automata.items()}
        if now == self._read:
            return
        for number, automaton in self._corpus.automata.items():
            if self._read.get(number) != now[number]:
                match = self._matches[number] = Match()
                automaton.follow(match, self._tail)
        self._matches = {number: self._matches[number] for number in now}
        self._read = now
