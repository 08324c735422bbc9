"""Which tool comes next, if any: an online softmax over the tools at hand and "no call".

Its features are the last actions, what was called, the words of the last messages, how well a tool's words meet the
user's, and fuel: whether values lie unused where the tool's arguments usually come from. The back-off model's
log-probability is one more feature, with weight 1 from the start. Four experts answer: three softmaxes that learn at
different rates and go over past points more or less often, and the back-off model alone; their answers are mixed by how
well each has done lately (`hashing.blend`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from agentspec.memory.arguments import Pointer
from agentspec.memory.context import Context
from agentspec.memory.hashing import Floats, HashedWeights, Places, blend, code, codes, credit, key, mix, softmax
from agentspec.memory.reading import shape
from agentspec.memory.replay import Replay
from agentspec.memory.slots import words_of
from agentspec.memory.transitions import SPEAKS, Transitions

_ANY_TOOL = key("any tool")
OWN = 9
"""Features that compare a tool with the context."""
MAX_KEPT = 3_000
MOST_KEPT_CLASSES = 40
"""Tools that a point is learnt against: the likeliest."""
MAX_TOOLS = 400

Schemas = Mapping[str, Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Rates:
    """Learning rates: features of the last actions, of words, and those that compare (by tool, for any tool)."""

    actions: float
    words: float
    own: float
    any_tool: float
    replays: int


EXPERTS = (Rates(0.04, 0.015, 0.05, 0.05, 4), Rates(0.1, 0.05, 0.2, 0.1, 1), Rates(0.03, 0.02, 0.03, 0.03, 2))


@dataclass(slots=True)
class Ranked:
    """Tools and "no call" (`SPEAKS`) with their probabilities."""

    classes: list[str]
    chances: Floats
    answers: list[Floats]
    """Each expert's."""
    places: Places
    prior: Floats
    few: int
    """How many features come before the words."""
    weight: float = 1.0
    """What the point counts: the later calls of a step look much alike."""

    def given_a_call(self) -> list[tuple[str, float]]:
        """Tools with their probabilities, given that one is called; likeliest first."""
        calls = float(self.chances[1:].sum()) or 1.0
        order = np.argsort(-self.chances, kind="stable")
        return [(self.classes[i], float(self.chances[i]) / calls) for i in order if i]

    @property
    def no_call(self) -> float:
        return float(self.chances[0])


@dataclass(slots=True)
class _Kept:
    places: Places
    prior: Floats
    right: int
    few: int
    weight: float


class Expert:
    """One online softmax."""

    def __init__(self, rates: Rates, bits: int) -> None:
        self.weights = HashedWeights(bits, 1.0, 0.5)
        self.rates = rates
        self.trust = np.ones(2, np.float64)
        """Weight of the back-off's log-probability, and its AdaGrad sum."""

    def answer(self, places: Places, prior: Floats) -> Floats:
        """Probability of each class."""
        return softmax(self.weights.scores(places) + np.float32(self.trust[0]) * prior)

    def learn(self, kept: _Kept) -> None:
        """One step towards the right class."""
        errors = self.answer(kept.places, kept.prior)
        errors[kept.right] -= 1.0
        errors *= np.float32(kept.weight)
        width = kept.places.shape[1]
        rates = np.full(width, self.rates.words, np.float32)
        rates[: kept.few] = self.rates.actions
        rates[width - OWN :] = self.rates.own
        rates[width - 2 * OWN : width - OWN] = self.rates.any_tool
        self.weights.learn(kept.places, errors, rates)
        slope = float(errors @ kept.prior)
        self.trust[1] += slope * slope
        self.trust[0] = max(0.1, self.trust[0] - 0.1 * slope / math.sqrt(self.trust[1]))


@dataclass(slots=True)
class NameModel:
    """Scores and learns the next tool's name."""

    pointer: Pointer
    bits: int = 18
    without: frozenset[str] = frozenset()
    """Parts that are left out."""
    transitions: Transitions = field(default_factory=Transitions)
    experts: list[Expert] = field(init=False)
    merits: Floats = field(default_factory=lambda: np.zeros(len(EXPERTS) + 1, np.float32))
    """Faded log-likelihood of each expert, the back-off model last."""
    seen: dict[str, None] = field(default_factory=dict)
    """Tools that were called, for requests that list none."""
    _kept: Replay[_Kept] = field(default_factory=lambda: Replay(MAX_KEPT))

    def __post_init__(self) -> None:
        self.experts = [Expert(rates, self.bits) for rates in EXPERTS]

    def rank(self, context: Context, tools: Schemas) -> Ranked:
        """Probabilities of the next tool, or of none."""
        classes = [SPEAKS, *(tools or self.seen)]
        chances = np.array(self.transitions.chances(context.actions, classes))
        if "transitions" in self.without:
            chances[:] = 1.0 / len(chances)
        prior = np.log(np.maximum(chances, 1e-6)).astype(np.float32)
        places, few = self._places(context, classes, prior)
        answers = [expert.answer(places, prior) for expert in self.experts]
        answers.append((chances / chances.sum()).astype(np.float32))
        mixed = answers[-1] if "context" in self.without else blend(answers, self.merits)
        return Ranked(classes, mixed, answers, places, prior, few, 2.0 / (2.0 + len(context.emitted)))

    def learn(self, ranked: Ranked, name: str, weight: float = 1.0) -> None:
        """This tool came next (`SPEAKS`: none)."""
        if name not in ranked.classes:
            return
        right = ranked.classes.index(name)
        shares = np.array([answer[right] for answer in ranked.answers], np.float32)
        credit(self.merits, shares, weight)
        rows = np.argsort(-ranked.chances)[:MOST_KEPT_CLASSES]
        if right not in rows:
            rows[-1] = right
        place = int(np.flatnonzero(rows == right)[0])
        kept = _Kept(
            ranked.places[rows].astype(np.int32), ranked.prior[rows], place, ranked.few, ranked.weight * weight
        )
        for expert in self.experts:
            expert.learn(kept)
            for past in self._kept.some(0 if "replays" in self.without else expert.rates.replays):
                expert.learn(past)
        self._kept.keep(kept)

    def note(self, actions: Sequence[str], name: str, weight: float) -> None:
        """What is counted of a next action."""
        self.transitions.learn(actions, name, weight)
        if name != SPEAKS:
            self.seen[name] = None
            if len(self.seen) > MAX_TOOLS:
                self.seen.pop(next(iter(self.seen)))

    def _places(self, context: Context, classes: Sequence[str], prior: Floats) -> tuple[Places, int]:
        actions, words = _actions(context), _words(context)
        shared = codes([*actions, *words])
        keys = np.array([code("tool " + name) for name in classes], np.uint64)
        own = np.array([codes(self._own(context, name, float(prior[i]))) for i, name in enumerate(classes)], np.uint64)
        every = [mix(shared[None, :], keys[:, None]), mix(own, _ANY_TOOL), mix(own, keys[:, None])]
        return self.experts[0].weights.places(np.concatenate(every, axis=1)), len(actions)

    def _own(self, context: Context, name: str, prior: float) -> list[str]:
        done, since = context.calls_by_name.get(name, 0), context.since_user.count(name)
        words = words_of(name)
        meets = tuple(sum(word[:6] in said for word in words) for said in (context.user_words, context.own_words))
        fuel = self._fuel(context, name)
        last, none, heard = context.last_call == name, name == SPEAKS, context.actions[-1] == "U"
        return [
            f"prior {int(max(prior, -8.0) * 1.5)} {none}",
            f"done {min(done, 3)} since {min(since, 2)} last {last} {none}",
            f"meets user {min(meets[0], 3)} of {min(len(words), 3)} {heard}",
            f"meets own {min(meets[1], 3)} {heard}",
            f"fuel {fuel} {none}",
            f"fuel {fuel} done {min(done, 2)} last {last}",
            f"again {min(len(context.emitted), 2)} {last} {none}",
            f"again {min(len(context.emitted), 2)} {last} fuel {fuel}",
            f"fuel {fuel} meets {min(meets[0], 2)} since {min(since, 1)}",
        ]

    def _fuel(self, context: Context, name: str) -> str:
        """How many unused values lie where this tool's arguments come from, and whether they are fresh."""
        marks = []
        for slot in self.pointer.tallies.slots.get(name, ())[:2]:
            best = 0
            for path, _ in self.pointer.tallies.sources.get(slot, Counter()).most_common(2):
                unused, fresh = context.table.unused(path, context.fresh_from)
                best = max(best, (unused > 0) + 2 * (fresh > 0) + (unused > 1 and fresh > 0))
            marks.append(str(best))
        return "".join(marks)


def _actions(context: Context) -> list[str]:
    """Features of what was done, whatever the tool."""
    earlier, before, last = ["^", "^", *context.actions[-3:]][-3:]
    since = context.since_user
    return [
        "bias",
        f"1 {last}",
        f"2 {before} {last}",
        f"3 {earlier} {before} {last}",
        f"step {len(context.emitted)} {last}",
        f"since {min(len(since), 6)}",
        f"calls {min(len(context.calls), 8)}",
        *(f"ever {name}" for name in context.calls_by_name),
        *(f"now {name}" for name in set(since)),
        *(f"emitted {call.name}" for call in context.emitted),
        *(context.facts if last != "U" else ()),
        *(f"given {last} {name} {_kind(value)}" for name, value in _last_arguments(context)),
    ]


def _last_arguments(context: Context) -> list[tuple[str, object]]:
    return list(context.calls[-1].arguments.items())[:4] if context.calls and context.actions[-1] not in "UA" else []


def _kind(value: object) -> str:
    """What sort of value it is: short words as they are, others by their shape and first letter."""
    text = str(value)
    return text if len(text) <= 12 and text.replace("_", "").isalpha() else f"{text[:1]} {shape(value)}"


def _words(context: Context) -> list[str]:
    """Features of what was said, whatever the tool."""
    last = context.actions[-1]
    at = "U" if last == "U" else "R"
    words = context.user_words[:60]
    features = [f"u{at} {word}" for word in set(words)]
    features += [f"uu{at} {one} {other}" for one, other in pairwise(words[:25])]
    features += [f"a{at} {word}" for word in set(context.own_words[:60])]
    if last != "U":
        features += [f"r {word} {last}" for word in set(context.result_words)]
    return features
