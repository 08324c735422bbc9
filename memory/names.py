"""Which tool comes next, if any: an online softmax over the tools at hand and "no call".

Its features are the last actions, what was called, the words of the last messages, how well a tool's words meet the
user's, and fuel: whether values lie unused where the tool's arguments usually come from. The back-off model's
log-probability is one more feature, with weight 1 from the start. Five experts answer: three softmaxes that learn at
different rates and go over past points more or less often, the back-off model alone, and which tool follows the last
two here and in the past (`trigram.py`); their answers are mixed by how well each has done lately (`hashing.blend`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from agentspec.memory import kernels
from agentspec.memory.arguments import Pointer
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, Places, blend, code, codes, credit, salts
from agentspec.memory.meeting import Meetings
from agentspec.memory.name_experts import EXPERTS, OWN, Example, Expert
from agentspec.memory.reading import shape
from agentspec.memory.replay import Replay
from agentspec.memory.slots import words_of
from agentspec.memory.transitions import SPEAKS, Transitions
from agentspec.memory.trigram import Trigram

_ANY_TOOL = np.uint64(code("any tool"))
_SALTS = salts("own", OWN)
MAX_KEPT = 3_000
MOST_KEPT_CLASSES = 40
"""Tools that a point is learnt against: the likeliest."""
MAX_TOOLS = 400

Schemas = Mapping[str, Mapping[str, object]]


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


class _At:
    """A context, as every tool is compared with it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.user, self.own = frozenset(context.user_words), frozenset(context.own_words)
        self._unused: dict[int, tuple[int, int]] = {}

    def unused(self, path: int) -> tuple[int, int]:
        """How many values at this path were no argument yet, and how many of those are fresh."""
        known = self._unused.get(path)
        if known is None:
            known = self._unused[path] = self.context.table.unused(path, self.context.fresh_from)
        return known


@dataclass(slots=True)
class NameModel:
    """Scores and learns the next tool's name."""

    pointer: Pointer
    bits: int = 18
    without: frozenset[str] = frozenset()
    """Parts that are left out."""
    transitions: Transitions = field(default_factory=Transitions)
    trigram: Trigram = field(default_factory=Trigram)
    experts: list[Expert] = field(init=False)
    merits: Floats = field(default_factory=lambda: np.zeros(len(EXPERTS) + 2, np.float32))
    """Faded log-likelihood of each expert; the back-off model and the trigram come last."""
    seen: dict[str, None] = field(default_factory=dict)
    """Tools that were called, for requests that list none."""
    _meetings: Meetings = field(default_factory=Meetings)
    _kept: Replay[Example] = field(default_factory=lambda: Replay(MAX_KEPT))

    def __post_init__(self) -> None:
        self.experts = [Expert(rates, self.bits) for rates in EXPERTS]

    def rank(self, context: Context, tools: Schemas) -> Ranked:
        """Probabilities of the next tool, or of none."""
        classes = [SPEAKS, *(tools or dict.fromkeys([*self.seen, *context.calls_by_name]))]
        chances = np.array(self.transitions.chances(context.actions, classes))
        if "transitions" in self.without:
            chances[:] = 1.0 / len(chances)
        prior = np.log(np.maximum(chances, 1e-6)).astype(np.float32)
        places, few = self._places(context, classes, prior, self._meetings.of(tools).marks(context, classes))
        answers = [expert.answer(places, prior) for expert in self.experts]
        backed = (chances / chances.sum()).astype(np.float32)
        answers += [backed, self._after_names(context, classes, float(backed[0]))]
        mixed = backed if "context" in self.without else blend(answers, self.merits)
        return Ranked(classes, mixed, answers, places, prior, few, 2.0 / (2.0 + len(context.emitted)))

    def _after_names(self, context: Context, classes: Sequence[str], no_call: float) -> Floats:
        """What follows the last two tools, the share of "no call" being given."""
        if len(classes) == 1:
            return np.ones(1, np.float32)
        chances = np.array(self.trigram.chances([call.name for call in context.calls], classes[1:]))
        if "transitions" in self.without:
            chances[:] = 1.0
        return np.concatenate([[no_call], (1.0 - no_call) * chances / chances.sum()]).astype(np.float32)

    def example(self, ranked: Ranked, name: str) -> Example | None:
        """This tool came next (`SPEAKS`: none): what is to be learnt from that; None where it was no choice."""
        if name not in ranked.classes:
            return None
        right = ranked.classes.index(name)
        shares = np.array([answer[right] for answer in ranked.answers], np.float32)
        rows = np.argsort(-ranked.chances)[:MOST_KEPT_CLASSES]
        if right not in rows:
            rows[-1] = right
        place = int(np.flatnonzero(rows == right)[0])
        return Example(ranked.places[rows], ranked.prior[rows], place, ranked.few, ranked.weight, shares)

    def learn(self, example: Example, weight: float = 1.0) -> None:
        """Learn from it."""
        credit(self.merits, example.shares, weight)
        kept = replace(example, weight=example.weight * weight)
        for expert in self.experts:
            expert.learn(kept)
            for past in self._kept.some(0 if "replays" in self.without else expert.rates.replays):
                expert.learn(past)
        self._kept.keep(kept)

    def note(self, actions: Sequence[str], names: Sequence[str], name: str, weight: float) -> None:
        """What is counted of a next action. `names`: the last two tools that were called."""
        self.transitions.learn(actions, name, weight)
        if name != SPEAKS:
            self.trigram.learn(names, name, weight)
            self.seen[name] = None
            if len(self.seen) > MAX_TOOLS:
                self.seen.pop(next(iter(self.seen)))

    def _places(self, context: Context, classes: Sequence[str], prior: Floats, meeting: Places) -> tuple[Places, int]:
        actions, words = codes(_actions(context)), _words(context)
        shared = np.concatenate([actions, words])
        keys = codes(["tool " + name for name in classes])
        at = _At(context)
        compared = [self._own(at, name, chance) for name, chance in zip(classes, prior.tolist(), strict=True)]
        numbers = np.concatenate([np.array(compared, np.int64), meeting], axis=1)
        own = kernels.columns_paired(np.zeros(numbers.shape, np.uint64), numbers, _SALTS)
        return kernels.class_places(shared, keys, own, _ANY_TOOL, self.experts[0].weights.shift), len(actions)

    def _own(self, at: _At, name: str, prior: float) -> tuple[int, ...]:
        """What compares a tool with the context, nine numbers."""
        context = at.context
        done, since = context.calls_by_name.get(name, 0), context.since_user.count(name)
        words = words_of(name)
        meets = [sum(word[:6] in said for word in words) for said in (at.user, at.own)]
        user, own = min(meets[0], 3), min(meets[1], 3)
        fuel = self._fuel(at, name)
        last, none, heard = context.last_call == name, name == SPEAKS, context.actions[-1] == "U"
        again = min(len(context.emitted), 2)
        return (
            int(max(prior, -8.0) * 1.5) * 2 + none + 100,
            min(done, 3) + 4 * min(since, 2) + 16 * last + 32 * none,
            user + 4 * min(len(words), 3) + 16 * heard,
            own + 4 * heard,
            fuel * 2 + none,
            fuel * 8 + 2 * min(done, 2) + last,
            again + 4 * last + 8 * none,
            again + 4 * last + 8 * fuel,
            fuel * 8 + min(user, 2) + 4 * min(since, 1),
        )

    def _fuel(self, at: _At, name: str) -> int:
        """How many unused values lie where this tool's first two arguments come from, and whether they are fresh."""
        mark = 0
        for slot in self.pointer.tallies.slots.get(name, ())[:2]:
            best = 0
            for path in _most(self.pointer.tallies.sources.get(slot)):
                unused, fresh = at.unused(path)
                best = max(best, (unused > 0) + 2 * (fresh > 0) + (unused > 1 and fresh > 0))
            mark = 8 * mark + best + 1
        return mark


def _most(counts: Counter[int] | None) -> list[int]:
    """The two that were counted most often, the first ones where several were."""
    if not counts:
        return []
    first = max(counts, key=counts.__getitem__)
    rest = [one for one in counts if one != first]
    return [first, max(rest, key=counts.__getitem__)] if rest else [first]


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


def _words(context: Context) -> Codes:
    """Features of what was said, whatever the tool."""
    last = context.actions[-1]
    at = "U" if last == "U" else "R"
    words = context.user_words[:60]
    features = [f"u{at} {word}" for word in set(words)]
    features += [f"uu{at} {one} {other}" for one, other in pairwise(words[:25])]
    features += [f"a{at} {word}" for word in set(context.own_words[:60])]
    if last != "U":
        features += [f"r {word} {last}" for word in set(context.result_words)]
    return codes(features)
