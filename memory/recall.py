"""The memory of one tenant: what comes next in a trajectory, and learning from what came."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from agentspec.memory import snapshot
from agentspec.memory.arguments import Pointer
from agentspec.memory.compose import Composer, values_told
from agentspec.memory.confusions import Confusions
from agentspec.memory.context import Context
from agentspec.memory.episodes import Episodes
from agentspec.memory.lessons import Learner, Point, Reading
from agentspec.memory.looking import Look, Parts, Tools, take_a_look
from agentspec.memory.names import NameModel
from agentspec.memory.observations import Observations
from agentspec.memory.repeats import Repeats
from agentspec.memory.table import key_of
from agentspec.memory.weighing import Weighing
from agentspec.recollection import Forecast, Past, Question, Recalled
from agentspec.trajectory import TOOL, Said, answered_ids

PARTS = ("transitions", "context", "constants", "recurrence", "episodes", "confusions", "replays", "weighing")
"""Parts that can be left out, to see what each is worth."""

MAX_READINGS = 32
"""Trajectories that are kept as far as they were read."""
MAX_LESSONS = 1_000
"""Points of them that wait to be learnt, about 50 KB each; others are looked at again."""
MAX_LEARNT = 200_000
LEAST_WEIGHT = 0.05
"""Points that count less are counted, and no weights are learnt from them."""
FAILED_WEIGHT = 0.4
"""What an action of a failed trajectory counts."""


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
        self._readings: OrderedDict[str, Reading] = OrderedDict()
        self._lock = threading.RLock()
        self._learning = threading.Lock()
        """One trajectory after the other."""

    # Predicting

    def forecast(self, question: Question) -> Forecast:
        """What is likely to come next. Milliseconds, no model call."""
        with self._lock:
            reading = self._reading(question)
            if question.ahead:
                return self._forecast(self._look(self._ahead(reading, question), question))
            look = self._look(reading.at(question.emitted), question)
            reading.looks[tuple(key_of(call) for call in question.emitted)] = look
            return self._forecast(look)

    def _ahead(self, reading: Reading, question: Question) -> Context:
        """The context after what is assumed; a result that is not known is the usual one, or just no error."""
        here, scope = reading.context.fork(), values_within(question.scope, question.trajectory)
        told = frozenset(answered_ids(question.ahead))
        for said in question.ahead:
            here.read(said)
            for call in said.calls:
                if call.id is None or call.id in told:
                    continue
                usual = self.observations.expected(scope, call) if scope is not None else None
                if usual is None:
                    here.went_well(call.id)
                else:
                    here.read(Said(TOOL, b"", answers=(call.id,), results=(usual,)))
        return here

    def _reading(self, question: Question) -> Reading:
        reading = self._readings.pop(question.trajectory, None)
        if reading is None or not reading.goes_on_as(question.scope, question.history):
            reading = Reading(question.scope)
        reading.read_all(question.history, self._learner(question.tools, question.scope, question.trajectory))
        self._keep(question.trajectory, reading)
        return reading

    def _keep(self, trajectory: str, reading: Reading) -> None:
        self._readings[trajectory] = reading
        if len(self._readings) > MAX_READINGS:
            self._readings.popitem(last=False)
        left = MAX_LESSONS - sum(len(one.lessons) for one in self._readings.values())
        for one in self._readings.values():
            if left < 0 and one is not reading:
                left += len(one.lessons)
                one.forget_lessons(one.context.message)

    def _learner(self, tools: Tools, scope: str, trajectory: str, *, everywhere: bool = False) -> Learner:
        return Learner(self.parts, tools, values_within(scope, trajectory), everywhere)

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
            asked = self._readings.pop(past.trajectory, None)
        reading = self._read(past, asked, known)
        repeats = Repeats(self.parts.pointer.tallies.witnessed, past.scope)
        weighed = [(point, point.weight(repeats)) for point in reading.points]
        weight_of = {id(point): weight for point, weight in weighed}
        learner = self._learner(past.tools, past.scope, past.trajectory)
        for begun in reading.lessons:
            weight = weight_of[id(begun.point)]
            if begun.point.place >= known and weight >= LEAST_WEIGHT:
                lesson = learner.finished(begun)
                with self._lock:  # let go in between: a forecast waits for one point at most
                    learner.learn(lesson, weight, repeats)
        noted = [one for one in weighed if one[0].place >= known]
        told = {
            one for point in reading.points if point.place < known and point.call for one in values_told(point.call)
        }
        reading.forget_lessons(reading.context.message)
        with self._lock:
            self._note(past, scope, reading.context, noted, told)
            if not known:
                repeats.settle()
            if asked is not None and past.trajectory not in self._readings:  # more may be asked of it
                self._keep(past.trajectory, reading)

    def _read(self, past: Past, reading: Reading | None, known: int) -> Reading:
        """The whole trajectory, with lessons from message `known` on; no other thread has this reading."""
        if reading is not None and reading.whole_from <= known and reading.goes_on_as(past.scope, past.history):
            reading.read_all(past.history, self._learner(past.tools, past.scope, past.trajectory, everywhere=True))
            return reading
        reading = Reading(past.scope)
        reading.read_all(past.history[:known], None)
        reading.read_all(past.history, self._learner(past.tools, past.scope, past.trajectory, everywhere=True))
        return reading

    def _note(
        self,
        past: Past,
        scope: str | None,
        context: Context,
        noted: Sequence[tuple[Point, float]],
        told: set[tuple[str, str]],
    ) -> None:
        """Count what happened, once for the trajectory. `told`: values that were counted for it before."""
        if not noted:
            return
        is_new = self.learnt.pop(past.trajectory, None) is None
        self.learnt[past.trajectory] = len(past.history)
        if len(self.learnt) > MAX_LEARNT:
            self.learnt.popitem(last=False)
        failed = past.outcome is not None and past.outcome < 0.5
        for point, weight in noted:
            self.parts.names.note(point.actions, point.names, point.came, weight * (FAILED_WEIGHT if failed else 1.0))
            if (call := point.call) is not None:
                self.parts.composer.note(point.actions[-1], call, past.tools.get(call.name, {}), scope, told)
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
            reading = Reading(past.scope, Context(outline=True))
            reading.read_all(past.history, None)
            repeats = Repeats(self.parts.pointer.tallies.witnessed, past.scope)
            noted = [(point, point.weight(repeats)) for point in reading.points]
            with self._lock:
                repeats.settle()
                self._note(past, values_within(past.scope, past.trajectory), reading.context, noted, set())

    # Keeping

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nothing is learnt meanwhile: for whoever looks into its parts."""
        with self._lock:
            yield

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


def values_within(scope: str, trajectory: str) -> str | None:
    """The scope within which values are recalled; None where that is the trajectory alone."""
    return None if scope == trajectory else scope
