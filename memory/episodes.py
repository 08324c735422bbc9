"""Past trajectories of the same end user: found again by what they share with this one, and what came next in them.

An episode is found by the calls it made and by rare words and values (an inverted index with inverse document
frequency: Sparck Jones, J. Documentation 28(1), 1972). Scopes never meet: a scope is part of every term.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from agentspec.calls import ToolCall, canonical_json
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, code
from agentspec.memory.postings import COMMON, Postings
from agentspec.memory.reading import MAX_CHARS
from agentspec.memory.table import key_of

MAX_EPISODES = 100_000
MAX_TERMS = 60
SIMILAR = 8
FOLLOWED = 64
MAX_ORDER = 3

_WORD = re.compile(r"[\w@.-]{3,}")


@dataclass(slots=True)
class Vote:
    """What past trajectories say for one call.

    Attributes:
        followed: by order 1 to 3, how often it came after the same last one to three calls.
        similar: the likeness (0..1) of the most alike trajectory that made it.
        weight: the likeness of all that made it, as a share of that of all that were found.
        aligned: whether it comes next there, in order.
        due: the likeness of all in which it is the first call not yet made after the last one made, as a share.
        episodes: in how many trajectories it was seen.
    """

    call: ToolCall
    followed: list[float] = field(default_factory=lambda: [0.0] * MAX_ORDER)
    similar: float = 0.0
    weight: float = 0.0
    aligned: bool = False
    due: float = 0.0
    episodes: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Votes:
    """Votes by the call's key, and how many successors were seen at all, by order."""

    of: dict[str, Vote] = field(default_factory=dict)
    totals: list[float] = field(default_factory=lambda: [0.0] * MAX_ORDER)
    by_code: dict[int, Vote] = field(default_factory=dict)
    """The same votes by the code of the call's key."""


@dataclass(frozen=True, slots=True)
class _Found:
    number: int
    likeness: float
    share: float


class Episodes:
    """The calls of past trajectories, with an index."""

    def __init__(self) -> None:
        self.index = Postings()
        self.calls: OrderedDict[int, bytes] = OrderedDict()
        """By episode: [name, arguments] of each call as JSON, one a line."""
        self.codes: dict[int, Codes] = {}
        """By episode: the codes of its calls' keys."""
        self.numbers: dict[tuple[str, str], int] = {}
        """By scope and trajectory."""
        self.owners: dict[int, tuple[str, str]] = {}
        self.next = 0

    def __len__(self) -> int:
        return len(self.calls)

    def learn(self, scope: str, trajectory: str, context: Context) -> None:
        """Take in what a trajectory has done; what was known of it before is replaced."""
        if not context.calls:
            return
        number = self.numbers.get((scope, trajectory))
        terms = {*(_call_term(scope, call) for call in context.calls), *_terms(scope, context)}
        if number is None:
            number = self.numbers[scope, trajectory] = self.next
            self.owners[number] = (scope, trajectory)
            self.next += 1
        else:  # it has grown: its old terms are in the index
            terms = {term for term in terms if number not in self.index.episodes(term, COMMON)}
        self.codes[number] = np.array([code(key) for key in context.keys], np.uint64)
        self.calls[number] = b"\n".join(canonical_json([call.name, call.arguments]).encode() for call in context.calls)
        self.index.add(sorted(terms), number)
        if len(self.calls) > MAX_EPISODES:
            self.forget(*self.owners[next(iter(self.calls))])

    def forget(self, scope: str, trajectory: str) -> None:
        """Let go of a trajectory's calls."""
        number = self.numbers.pop((scope, trajectory), None)
        if number is not None:
            self.calls.pop(number, None)
            self.codes.pop(number, None)
            self.owners.pop(number, None)

    def votes(self, scope: str, context: Context) -> Votes:
        """What comes next, by past trajectories of this scope."""
        votes = Votes()
        if not self.calls:
            return votes
        made = [code(key) for key in context.keys]
        for number in self.index.episodes(_call_term(scope, context.calls[-1]), FOLLOWED) if made else ():
            if number in self.calls:
                self._follow(votes, number, made)
        similar, done = self._similar(scope, context), set(made)
        total = sum(likeness for _, likeness in similar) or 1.0
        for number, likeness in similar:
            self._resemble(votes, _Found(number, likeness, likeness / total), done)
        return votes

    def _call(self, number: int, place: int) -> ToolCall:
        """The call at a place of an episode."""
        name, arguments = json.loads(self.calls[number].split(b"\n")[place])
        return ToolCall(name, arguments)

    def _follow(self, votes: Votes, number: int, made: Sequence[int]) -> None:
        """Count what came after the same last calls. `made`: codes of this trajectory's, in order."""
        codes = self.codes[number]
        for place in np.flatnonzero(codes[:-1] == made[-1]).tolist():
            order = _alike_before(codes, place, made)
            vote = self._vote(votes, number, place + 1)
            for k in range(order):
                vote.followed[k] += 1
                votes.totals[k] += 1

    def _vote(self, votes: Votes, number: int, place: int) -> Vote:
        """The vote for the call at a place of an episode, which is one of those that were seen to make it."""
        code_ = int(self.codes[number][place])
        vote = votes.by_code.get(code_)
        if vote is None:
            call = self._call(number, place)
            vote = votes.by_code[code_] = votes.of.setdefault(key_of(call), Vote(call))
        vote.episodes.add(number)
        return vote

    def _resemble(self, votes: Votes, found: _Found, done: Set[int]) -> None:
        """Count what a similar episode did that is not `done` here."""
        codes = self.codes[found.number].tolist()
        last = max((place for place, one in enumerate(codes) if one in done), default=-1)
        counted: set[int] = set()
        due = False
        for place, one in enumerate(codes):
            if one in done:
                continue
            vote = self._vote(votes, found.number, place)
            if one not in counted:
                counted.add(one)
                vote.weight += found.share
            if place > last and not due:
                vote.due += found.share
                due = True
            if found.likeness > vote.similar:
                vote.similar, vote.aligned = found.likeness, place == last + 1

    def _similar(self, scope: str, context: Context) -> list[tuple[int, float]]:
        scores = self.index.similar(np.array(_terms(scope, context), np.uint64), len(self.calls))
        return [(number, score) for number, score in scores if number in self.calls][:SIMILAR]


def _alike_before(codes: Codes, place: int, made: Sequence[int]) -> int:
    """How many calls up to this place are the last that were made, at most `MAX_ORDER`."""
    order = 0
    while order < min(MAX_ORDER, place + 1, len(made)) and codes[place - order] == made[-1 - order]:
        order += 1
    return order


def _call_term(scope: str, call: ToolCall) -> int:
    return code(f"call {code(scope)} {key_of(call)}")


def _terms(scope: str, context: Context) -> list[int]:
    """Words of the user, and values that were arguments; a scope's own."""
    words: dict[str, None] = {}
    for call in context.calls:
        for text in _texts(call.arguments.values()):
            words[text.lower()[:60]] = None
    for word in _WORD.findall(context.table.user_text[:MAX_CHARS]):
        words[word.strip(".-")] = None
    return [code(f"word {code(scope)} {word}") for word in list(words)[:MAX_TERMS]]


def _texts(values: Iterable[object]) -> Iterable[str]:
    for value in values:
        if isinstance(value, dict):
            yield from _texts(value.values())
        elif isinstance(value, list):
            yield from _texts(value)
        elif isinstance(value, str) and len(value) > 2:
            yield value
