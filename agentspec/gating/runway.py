"""How much time is left until the real call is claimed, given what the turn has produced so far.

A survival view: among turns that got as far as this one, how much further did they go? Before the first word that is
asked in seconds; once there is text or reasoning it is asked in characters, and this turn's own pace turns those into
seconds: an endpoint under load is slower, but its model says as much as ever. What nobody has got to yet is given a
tail whose mean is a fifth of the usual, three seconds while nothing is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from agentspec.gating.sketch import Points, Sketch, exponential, weighted

USUAL_S = 3.0
"""Seconds from a turn's start to its claim, before any was seen."""

_TAIL_WEIGHT = 1.0
_TAIL_SHARE = 0.2
_ENOUGH = 4
"""Turns that must have been seen before characters are gone by instead of seconds."""


class Phase(StrEnum):
    """What a turn is at."""

    WAITING = "waiting"
    THINKING = "thinking"
    SPEAKING = "speaking"
    CALLING = "calling"


@dataclass(frozen=True, slots=True)
class Progress:
    """What a turn has produced so far.

    Attributes:
        elapsed_s: since its request came in.
        chars: of reasoning while it thinks, of text while it speaks.
        s_per_char: this turn's own pace, None before it has one.
        since_call_s: since its latest call closed or began.
    """

    phase: Phase
    elapsed_s: float
    chars: int = 0
    s_per_char: float | None = None
    since_call_s: float = 0.0


def _seconds() -> Sketch:
    return Sketch(prior=USUAL_S)


@dataclass(slots=True)
class Runway:
    """What was measured of one model's turns."""

    claim_s: Sketch = field(default_factory=_seconds)
    """From a turn's start to a claim."""
    first_s: Sketch = field(default_factory=lambda: Sketch(prior=0.5))
    """From a turn's start to its first word."""
    lengths: dict[Phase, Sketch] = field(default_factory=dict)
    """Characters of reasoning, or of text, until the call began."""
    closing_s: Sketch = field(default_factory=lambda: Sketch(prior=0.01))
    """From a call's closing to its claim where no other call followed: the rest of the answer, and the agent's own."""
    followed_s: Sketch = field(default_factory=lambda: Sketch(prior=1.0))
    """The same where another call followed."""

    def claimed(self, at_s: float, since_closed_s: float, *, followed: bool) -> None:
        """A call was claimed so long after its turn began, and after its own JSON closed."""
        self.claim_s.add(at_s)
        (self.followed_s if followed else self.closing_s).add(since_closed_s)

    def call_began(self, progress: Progress) -> None:
        """A turn reached its first call."""
        if progress.chars:
            self.lengths.setdefault(progress.phase, Sketch(prior=200.0)).add(float(progress.chars))

    def left(self, progress: Progress) -> Points:
        """The seconds that are left until a call is claimed, as a distribution."""
        if progress.phase is Phase.CALLING:
            return survivors(self.followed_s, progress.since_call_s, 1.0)
        lengths = self.lengths.get(progress.phase)
        if progress.s_per_char is None or lengths is None or len(lengths) < _ENOUGH:
            return survivors(self.claim_s, progress.elapsed_s, USUAL_S)
        closing_s = self.closing_s.value
        points = survivors(lengths, float(progress.chars), lengths.measured_mean())
        return [(chars * progress.s_per_char + closing_s, weight) for chars, weight in points]

    def left_after_closing(self) -> Points | None:
        """The seconds between a call's closing and its claim where nothing follows; None while too few were seen."""
        return self.closing_s.points() if len(self.closing_s) >= _ENOUGH else None


def survivors(sketch: Sketch, passed: float, usual: float) -> Points:
    """How much longer those went on that lasted longer than `passed`, and a tail for what nobody has got to yet."""
    count = len(sketch)
    tail = (_TAIL_WEIGHT * usual + _TAIL_SHARE * count * sketch.measured_mean()) / (_TAIL_WEIGHT + count)
    return weighted(sketch.beyond(passed), exponential(max(1e-6, tail)), _TAIL_WEIGHT)
