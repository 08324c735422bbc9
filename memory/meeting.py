"""How well the words of a tool meet what was said: words that few tools share count more."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from agentspec.memory.context import Context
from agentspec.memory.hashing import Floats, Places
from agentspec.memory.slots import words_of
from agentspec.wire.request import Offered

Schemas = Mapping[str, Mapping[str, object]]

MAX_WORDS = 80
"""Words of a tool that are read."""
MAX_KEPT = 64
MARKS = 4
_NONE = 1 << 20
"""The mark of a tool that the request does not list."""
_WORD = re.compile(r"[a-z]{3,}")
_STEM = 5


class Meeting:
    """The tools of a request by their words: those of the name, and those that tell of it and of its arguments."""

    def __init__(self, tools: Schemas, about: Mapping[str, str]) -> None:
        self.names = {name: place for place, name in enumerate(tools)}
        self._index: tuple[dict[str, list[int]], dict[str, list[int]]] = ({}, {})
        self._sizes = np.ones(len(tools), np.float32)
        """By tool: the weight of all words of its name, and 1."""
        for name, place in self.names.items():
            own = {stem(word) for word in words_of(name) if len(word) > 2}
            told = set(islice(dict.fromkeys(_told(tools[name], about.get(name, ""))), MAX_WORDS)) - own
            for index, words in zip(self._index, (own, told), strict=True):
                for word in words:
                    index.setdefault(word, []).append(place)
        for places in self._index[0].values():
            self._sizes[places] += self._weight(places)

    def _weight(self, places: Sequence[int]) -> float:
        return math.log((len(self.names) + 1) / len(places))

    def scores(self, said: Iterable[str]) -> Floats:
        """(2, tools): the weight of the words said that each tool has in its name and in what is told of it."""
        found = np.zeros((2, len(self.names)), np.float32)
        for word in {stem(one) for one in said}:
            for row, index in enumerate(self._index):
                places = index.get(word)
                if places:
                    found[row, places] += self._weight(places)
        return found

    def marks(self, context: Context, classes: Sequence[str]) -> npt.NDArray[np.int64]:
        """(classes, `MARKS`): each one's places among the tools by what the user and the agent said last."""
        heard, since = context.actions[-1] == "U", min(len(context.since_user), 3)
        user, own = self.scores(context.user_words), self.scores(context.own_words)
        ranks = [_ranks(one) for one in (user[0], user[1], user[0] + user[1] / 2, own[0] + own[1] / 2)]
        shares = np.minimum(4 * user[0] / self._sizes, 4).astype(np.int64)
        marks = np.full((len(classes), MARKS), _NONE, np.int64)
        for row, name in zip(marks, classes, strict=True):
            at = self.names.get(name)
            if at is not None:
                now = heard + 2 * (name in context.since_user)
                row[:] = [now + 4 * int(one[at]) for one in ranks]
                row[0] += 32 * int(shares[at])
                row[2] += 32 * since
        return marks


class Meetings:
    """Those of the requests seen lately."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[Schemas, Meeting]] = OrderedDict()

    def of(self, tools: Schemas) -> Meeting:
        """That of these tools; what is said of them, where the request's own table of tools knows it."""
        kept = self._kept.get(id(tools))
        if kept is None or kept[0] is not tools:
            about = tools.about if isinstance(tools, Offered) else {}
            kept = self._kept[id(tools)] = tools, Meeting(tools, about)
            if len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return kept[1]


def _ranks(scores: Floats) -> Places:
    """How many do better, at most 4; 5 for those that meet nothing."""
    better = (scores[None, :] > scores[:, None] + 1e-6).sum(axis=1)
    return np.where(scores > 0, np.minimum(better, 4), 5)


def stem(word: str) -> str:
    """The beginning of a word, without the s of a plural."""
    return (word[:-1] if len(word) > 3 and word[-1] == "s" else word)[:_STEM]


def _told(schema: Mapping[str, object], about: str) -> Iterable[str]:
    yield from (stem(word) for word in _WORD.findall(about.lower()))
    properties = schema.get("properties")
    for name, one in properties.items() if isinstance(properties, Mapping) else ():
        yield from (stem(word) for word in words_of(name) if len(word) > 2)
        text = one.get("description") if isinstance(one, Mapping) else None
        if isinstance(text, str):
            yield from (stem(word) for word in _WORD.findall(text.lower())[:20])
