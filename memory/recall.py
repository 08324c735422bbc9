"""The memory of one tenant: what comes next in a trajectory, and learning from what came."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from agentspec.calls import ToolCall
from agentspec.memory import snapshot
from agentspec.memory.arguments import Pointer
from agentspec.memory.compose import Composer, values_told
from agentspec.memory.confusions import Confusions
from agentspec.memory.context import Context
from agentspec.memory.episodes import Episodes
from agentspec.memory.looking import Look, Parts, Tools, take_a_look
from agentspec.memory.names import NameModel
from agentspec.memory.observations import Observations
from agentspec.memory.table import key_of
from agentspec.memory.transitions import SPEAKS
from agentspec.memory.weighing import Weighing
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.trajectory import ASSISTANT, TOOL, USER, Said

PARTS = ("transitions", "context", "constants", "recurrence", "episodes", "confusions", "replays", "weighing")
"""Parts that can be left out, to see what each is worth."""

MAX_CONTEXTS = 64
MAX_LEARNT = 200_000
LEAST_WEIGHT = 0.05
"""Points that count less are counted, and no weights are learnt from them."""
FAILED_WEIGHT = 0.4
"""What an action of a failed trajectory counts."""
LEAST_CHAIN = 0.05
"""A chain ends where the product of its probabilities falls below."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A point that was learnt, to be counted once its trajectory has been gone through."""

    actions: tuple[str, ...]
    call: ToolCall | None
    weight: float
    """What it counts: the n-th time that a trajectory does the same after the same, 1/n². So none outweighs several."""


class Recall:
    """Predicts next calls and learns from what happened. Any thread may ask and teach."""

    PARTS = PARTS

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        pointer = Pointer(replays=0) if "replays" in without else Pointer()
        self.parts = Parts(
            pointer,
            NameModel(pointer, without=without),
            Composer(pointer),
            Episodes(),
            Confusions(),
            Weighing(),
            without,
        )
        self.observations = Observations()
        self.learnt: OrderedDict[str, int] = OrderedDict()
        """By trajectory: how many of its messages were learnt."""
        self._contexts: OrderedDict[str, Context] = OrderedDict()
        self._lock = threading.RLock()
        self._learning = threading.Lock()
        """One trajectory after the other."""

    # Predicting

    def forecast(self, question: Question) -> Forecast:
        """What is likely to come next. Milliseconds, no model call."""
        with self._lock:
            context = self._context(question)
            return self._forecast(self._look(context, question))

    def chain(self, question: Question, depth: int) -> list[Forecast]:
        """The next forecast and those after it, each given that the one before came true and had its usual result.

        A result that memory has not seen for this scope ends the chain, and so does a product of probabilities below
        `LEAST_CHAIN`. Predicted results are only for looking further; nobody is served one.
        """
        forecasts = [self.forecast(question)]
        scope = values_within(question.scope, question.trajectory)
        history, chance = list(question.history), 1.0
        while len(forecasts) < depth and forecasts[-1].candidates and scope is not None and not question.emitted:
            best = forecasts[-1].candidates[0]
            chance *= (1.0 - forecasts[-1].no_call) * best.probability
            with self._lock:
                result = self.observations.expected(scope, best.call)
            if result is None or chance < LEAST_CHAIN:
                break
            history += _happened(best.call, result, len(forecasts))
            context = Context()
            context.sync(history)
            with self._lock:
                forecasts.append(self._forecast(self._look(context, replace(question, history=history))))
        return forecasts

    def _context(self, question: Question) -> Context:
        context = self._contexts.pop(question.trajectory, None)
        if context is None or not context.sync(question.history, question.emitted):
            context = Context()
            context.sync(question.history, question.emitted)
        self._contexts[question.trajectory] = context
        if len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)
        return context

    def _look(self, context: Context, question: Question) -> Look:
        return take_a_look(self.parts, context, question.tools, values_within(question.scope, question.trajectory))

    def _forecast(self, look: Look) -> Forecast:
        weighed = look.weighed
        scores = [float(chance) for chance in weighed.chances[:-1]]
        if "weighing" in self.parts.without:
            scores = [one.name_chance * one.argument_chance for one in weighed.candidates]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        found = [(weighed.candidates[i], min(max(scores[i], 0.0), 1.0)) for i in order]
        return Forecast(
            no_call=min(look.ranked.no_call, 1.0),
            candidates=tuple(
                Recalled(one.call, chance, one.name_chance, one.argument_chance, one.support, one.why)
                for one, chance in found
            ),
            names=tuple((name, chance) for name, chance in look.likely),
        )

    # Learning

    def learn(self, past: Past) -> None:
        """Take in a trajectory. One that was learnt before is learnt only from where it has grown."""
        with self._learning:
            self._learn(past, values_within(past.scope, past.trajectory))

    def _learn(self, past: Past, scope: str | None) -> None:
        with self._lock:
            known = self.learnt.get(past.trajectory, 0)
        context = Context()
        noted: list[Noted] = []
        seen: Counter[tuple[str, str]] = Counter()
        told: set[tuple[str, str]] = set()
        for place, emitted, call in points(past.history):
            with self._lock:  # let go in between: a forecast waits for one point at most
                context.sync(past.history[:place], emitted)
                weight = _weight(seen, context, call)
                if place >= known:
                    if weight >= LEAST_WEIGHT:
                        self._learn_point(context, past.tools, scope, call, weight)
                    noted.append(Noted(tuple(context.actions[-4:]), call, weight))
                elif call is not None:
                    told.update(values_told(call))
        with self._lock:
            context.sync(past.history)
            self._note(past, scope, context, noted, told)

    def _learn_point(
        self, context: Context, tools: Tools, scope: str | None, call: ToolCall | None, weight: float
    ) -> None:
        parts = self.parts
        if call is None:
            parts.names.learn(parts.names.rank(context, tools), SPEAKS, weight)
            return
        look = take_a_look(parts, context, tools, scope)
        key = key_of(call)
        right = next((i for i, one in enumerate(look.weighed.candidates) if one.key == key), None)
        parts.weighing.learn(look.weighed, right, weight)
        if look.likely:
            parts.confusions.learn(look.likely[0][0], context.actions[-1], call.name)
        parts.names.learn(look.ranked, call.name, weight)
        parts.composer.learn(look.seen, call, tools.get(call.name, {}), parts.values_of(scope), weight)

    def _note(
        self, past: Past, scope: str | None, context: Context, noted: Sequence[Noted], told: set[tuple[str, str]]
    ) -> None:
        """Count what happened, once for the trajectory. `told`: values that were counted for it before."""
        if not noted:
            return
        is_new = self.learnt.pop(past.trajectory, None) is None
        self.learnt[past.trajectory] = len(past.history)
        if len(self.learnt) > MAX_LEARNT:
            self.learnt.popitem(last=False)
        failed = past.outcome is not None and past.outcome < 0.5
        for one in noted:
            name = one.call.name if one.call else SPEAKS
            self.parts.names.note(one.actions, name, one.weight * (FAILED_WEIGHT if failed else 1.0))
            if one.call is not None:
                self.parts.composer.note(one.actions[-1], one.call, past.tools.get(one.call.name, {}), scope, told)
        if is_new:
            self.parts.names.transitions.age()
            self.parts.pointer.tallies.note_words(context)
        if scope is not None:
            self.parts.episodes.learn(scope, past.trajectory, context)
            for call, result in zip(context.calls, context.results, strict=True):
                if result is not None:
                    self.observations.learn(scope, call, result)

    def fill(self, pasts: Iterable[Past]) -> None:
        """Take in many trajectories at once: what they did is counted and indexed, and no weights are learnt."""
        for past in pasts:
            context = Context(outline=True)
            noted = []
            seen: Counter[tuple[str, str]] = Counter()
            for place, emitted, call in points(past.history):
                context.sync(past.history[:place], emitted)
                noted.append(Noted(tuple(context.actions[-4:]), call, _weight(seen, context, call)))
            with self._lock:
                context.sync(past.history)
                self._note(past, values_within(past.scope, past.trajectory), context, noted, set())

    # Keeping

    def dump(self) -> bytes:
        """All that it has learnt, as bytes that hold data only."""
        with self._lock:
            state = snapshot.state_of(self.parts, self.observations, self.learnt)
        return snapshot.encode(state)

    def restore(self, blob: bytes) -> None:
        """Take over what `dump` gave.

        Raises:
            ValueError: it is no dump of this version.
        """
        state = snapshot.decode(blob)
        with self._lock:
            snapshot.take_over(state, self.parts, self.observations, self.learnt)

    def size_bytes(self) -> int:
        """About how much memory it takes."""
        with self._lock:
            return snapshot.size_bytes(self.parts, self.observations, self.learnt)


def points(history: Sequence[Said]) -> Iterator[tuple[int, list[ToolCall], ToolCall | None]]:
    """Where something was to be predicted: (messages before, calls of the same answer before, the call or None).

    The end of an answer is a point of its own: no further call. An answer before the user spoke counts only if it makes
    calls; after a call that cannot be read nothing is known.
    """
    heard = False
    for place, said in enumerate(history):
        heard = heard or said.role == USER
        if said.role != ASSISTANT or not (heard or said.calls):
            continue
        for nth, call in enumerate(said.calls):
            yield place, list(said.calls[:nth]), call
        if len(said.calls) >= len(said.made):
            yield place, list(said.calls), None


def _weight(seen: Counter[tuple[str, str]], context: Context, call: ToolCall | None) -> float:
    did = (context.actions[-1], call.name if call is not None else SPEAKS)
    seen[did] += 1
    return 1.0 / seen[did] ** 2


def values_within(scope: str, trajectory: str) -> str | None:
    """The scope within which values are recalled; None where that is the trajectory alone."""
    return None if scope == trajectory else scope


def _happened(call: ToolCall, result: str, nth: int) -> list[Said]:
    """A call and its result, as messages that nobody has said yet."""
    identity = f"predicted {nth}"
    made = ToolCall(call.name, call.arguments, identity)
    return [
        Said(ASSISTANT, b"", (made,), frozenset({identity})),
        Said(TOOL, b"", answers=(identity,), results=(result,)),
    ]
