"""What is to be learnt of a trajectory, point by point, as it goes on: examples for each part, kept until it is over.

A look that was made to predict is what is learnt from: what a candidate was worth when it was offered is what has to be
put right. So learning reads nothing again; only where nobody asked, memory looks after the fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from agentspec.calls import ToolCall
from agentspec.memory import arguments, name_experts, weighing
from agentspec.memory.context import Context
from agentspec.memory.hashing import code
from agentspec.memory.looking import Look, Parts, Tools, take_a_look
from agentspec.memory.repeats import Repeats
from agentspec.memory.table import key_of
from agentspec.memory.transitions import SPEAKS
from agentspec.trajectory import ASSISTANT, Said

MAX_UNFINISHED = 8
"""Looks of one trajectory that are kept whole, a few hundred KB each; others are finished at once."""

Emitted = tuple[str, ...]
"""Keys of the calls that a running answer had made."""


@dataclass(frozen=True, slots=True)
class Point:
    """Where something was to be predicted, and what came.

    Attributes:
        place: how many messages came before.
        actions: the last four.
        names: of the last two tools that were called.
        call: None where nothing (more) was called.
    """

    place: int
    actions: tuple[str, ...]
    names: tuple[str, ...]
    call: ToolCall | None

    def weight(self, repeats: Repeats) -> float:
        """What it counts."""
        return repeats.weight("after " + self.actions[-1], code(self.came))

    @property
    def came(self) -> str:
        """The tool that was called; `SPEAKS` for none."""
        return self.call.name if self.call is not None else SPEAKS


@dataclass(frozen=True, slots=True)
class Lesson:
    """Examples for the parts of memory from one point; none where there is nothing to learn from.

    `first`: the tool that was held likeliest, "" for none.
    """

    point: Point
    first: str = ""
    name: name_experts.Example | None = None
    candidates: weighing.Example | None = None
    arguments: Sequence[arguments.Example] = ()


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A point whose arguments nobody expected: they are looked at when it is learnt, where the look was."""

    point: Point
    look: Look


@dataclass(slots=True)
class Reading:
    """A trajectory as it is read.

    Attributes:
        scope: whose it is; what was looked at holds values of that scope.
        context: what is known of it.
        looks: what was looked at since its last message, by the calls that its running answer had made.
        points: all of them so far.
        lessons: those of the points from message `whole_from` on.
    """

    scope: str
    context: Context = field(default_factory=Context)
    looks: dict[Emitted, Look] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    lessons: list[Lesson | Unfinished] = field(default_factory=list)
    whole_from: int = 0
    _unfinished: int = 0

    def goes_on_as(self, scope: str, history: Sequence[Said]) -> bool:
        """Whether this is that trajectory, of the same scope, up to here."""
        return self.scope == scope and self.context.goes_on_as(history)

    def at(self, emitted: Sequence[ToolCall]) -> Context:
        """The context when these calls have been made."""
        if not emitted:
            return self.context
        here = self.context.fork()
        here.emit(emitted)
        return here

    def read(self, said: Said, learner: Learner | None) -> None:
        """Take in one message. With a learner lessons are made of it where it was looked at."""
        place = self.context.message
        for emitted, call in points_of(said, heard=self.context.heard):
            before = [*self.context.actions[-4:], *(f"{one.name}+" for one in emitted)]
            called = [one.name for one in (*self.context.calls[-2:], *emitted)]
            point = Point(place, tuple(before[-4:]), tuple(called[-2:]), call)
            self.points.append(point)
            if learner is not None and (self.looks or learner.everywhere):
                look = self.looks.get(tuple(key_of(one) for one in emitted))
                self.lessons.append(self._lesson(learner, point, look, emitted))
            else:
                self.forget_lessons(place + 1)
        self.context.read(said)
        self.looks = {}

    def _lesson(
        self, learner: Learner, point: Point, look: Look | None, emitted: Sequence[ToolCall]
    ) -> Lesson | Unfinished:
        if look is None:
            return learner.lesson(self.at(emitted), point)
        if self._unfinished >= MAX_UNFINISHED or learner.everywhere or look.covers(point.call):
            return learner.lesson(look.seen.context, point, look)
        self._unfinished += 1
        if look.seen.context is self.context:  # it stays where it is
            self.context = self.context.fork()
        return Unfinished(point, look)

    def read_all(self, history: Sequence[Said], learner: Learner | None) -> None:
        """Take in what is new of a history that goes on as this one."""
        for said in history[self.context.message :]:
            self.read(said, learner)

    def forget_lessons(self, before: int) -> None:
        """Let go of all so far: they were learnt, are too many, or one before this message is missing."""
        self.lessons, self.whole_from, self._unfinished = [], before, 0


@dataclass(frozen=True, slots=True)
class Learner:
    """Makes lessons, and learns from them.

    Attributes:
        scope: whose values may be recalled, None for nobody's.
        everywhere: look also where nobody asked.
    """

    parts: Parts
    tools: Tools
    scope: str | None
    everywhere: bool = False

    def lesson(self, context: Context, point: Point, look: Look | None = None) -> Lesson:
        """What is to be learnt of one point; it is looked at now if it was not before."""
        parts, call = self.parts, point.call
        if call is None:
            ranked = look.ranked if look is not None else parts.names.rank(context, self.tools)
            return Lesson(point, name=parts.names.example(ranked, SPEAKS))
        look = look or take_a_look(parts, context, self.tools, self.scope)
        key = key_of(call)
        right = next((i for i, one in enumerate(look.weighed.candidates) if one.key == key), None)
        schema = self.tools.get(call.name, {})
        return Lesson(
            point,
            look.likely[0][0] if look.likely else "",
            parts.names.example(look.ranked, call.name),
            parts.weighing.example(look.weighed, right),
            parts.composer.examples(look.seen, call, schema, parts.values_of(self.scope), look.bases),
        )

    def finished(self, lesson: Lesson | Unfinished) -> Lesson:
        """The whole lesson."""
        if isinstance(lesson, Lesson):
            return lesson
        return self.lesson(lesson.look.seen.context, lesson.point, lesson.look)

    def learn(self, lesson: Lesson, weight: float, repeats: Repeats) -> None:
        """Learn the weights of one point."""
        parts, point = self.parts, lesson.point
        least = parts.composer.learn(lesson.arguments, repeats)
        if lesson.candidates is not None:
            parts.weighing.learn(lesson.candidates, min(weight, least))
        if lesson.first:
            parts.confusions.learn(lesson.first, point.actions[-1], point.came)
        if lesson.name is not None:
            parts.names.learn(lesson.name, weight)


def points_of(said: Said, *, heard: bool) -> Iterator[tuple[list[ToolCall], ToolCall | None]]:
    """Where something was to be predicted in an answer: (its calls before, the call or None for no more).

    An answer before the user spoke (`heard`) counts only if it makes calls; after a call that cannot be read nothing is
    known.
    """
    if said.role != ASSISTANT or not (heard or said.calls):
        return
    for nth, call in enumerate(said.calls):
        yield list(said.calls[:nth]), call
    if len(said.calls) >= len(said.made):
        yield list(said.calls), None
