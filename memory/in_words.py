"""What a memory has learnt, in words: habits, where arguments come from, its usual mistakes. Names only, no values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentspec.memory.recall import Recall
from agentspec.memory.tallies import CONSTANT
from agentspec.memory.transitions import SPEAKS

LEAST_WEIGHT = 0.5
"""What was seen less often than this, faded, is not told."""
_FOLLOWERS = 4


@dataclass(frozen=True, slots=True)
class Follower:
    """A tool that comes next, or "" for none, and in which share of cases."""

    tool: str
    share: float


@dataclass(frozen=True, slots=True)
class Habit:
    """What agents do after something. `after`: in words; `weight`: how often it was seen, fading."""

    after: str
    weight: float
    next: tuple[Follower, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an argument's values come from: the share that stood in the trajectory before, and how many were seen."""

    tool: str
    argument: str
    copied_share: float
    seen: int


@dataclass(frozen=True, slots=True)
class Mistake:
    """Where one tool was expected and mostly another came ("" for none)."""

    expected: str
    after: str
    came: str
    share: float
    weight: float


@dataclass(frozen=True, slots=True)
class Learnt:
    """All of it, the most frequent first."""

    trajectories: int
    habits: tuple[Habit, ...] = ()
    origins: tuple[Origin, ...] = ()
    mistakes: tuple[Mistake, ...] = ()


def in_words(memory: Recall, most: int = 40) -> Learnt:
    """What this memory has learnt, at most so many of each kind."""
    with memory.reading():
        transitions, tallies = memory.parts.names.transitions, memory.parts.pointer.tallies
        unit = transitions.unit
        after_one = {
            context[0]: {name: weight / unit for name, weight in counts.items()}
            for context, counts in transitions.counts.items()
            if len(context) == 1
        }
        sources = {slot: dict(tallies.sources.get(slot, {})) for slots in tallies.slots.values() for slot in slots}
        confusions = {key: dict(counts) for key, counts in memory.parts.confusions.counts.items()}
        trajectories = len(memory.learnt)
    return Learnt(trajectories, _habits(after_one)[:most], _origins(sources)[:most], _mistakes(confusions)[:most])


def _habits(after_one: Mapping[str, Mapping[str, float]]) -> tuple[Habit, ...]:
    found = []
    for action, counts in after_one.items():
        total = sum(counts.values())
        if total >= LEAST_WEIGHT:
            ranked = sorted(counts.items(), key=lambda item: -item[1])[:_FOLLOWERS]
            followers = tuple(Follower("" if name == SPEAKS else name, weight / total) for name, weight in ranked)
            found.append(Habit(action_in_words(action), total, followers))
    return tuple(sorted(found, key=lambda habit: -habit.weight))


def _origins(sources: Mapping[str, Mapping[int, int]]) -> tuple[Origin, ...]:
    found = []
    for slot, counts in sources.items():
        seen = sum(counts.values())
        tool, _, argument = slot.rpartition(".")
        if seen:
            found.append(Origin(tool, argument, 1.0 - counts.get(CONSTANT, 0) / seen, seen))
    return tuple(sorted(found, key=lambda origin: (-origin.seen, origin.tool, origin.argument)))


def _mistakes(confusions: Mapping[tuple[str, str], Mapping[str, float]]) -> tuple[Mistake, ...]:
    found = []
    for (expected, last), counts in confusions.items():
        total = sum(counts.values())
        came, weight = max(counts.items(), key=lambda item: item[1], default=(expected, 0.0))
        if came != expected and weight >= LEAST_WEIGHT:
            found.append(Mistake(expected, action_in_words(last), came, weight / total, total))
    return tuple(sorted(found, key=lambda mistake: -mistake.weight))


def action_in_words(action: str) -> str:
    """An action of `context.Context.actions`, as people say it.

    >>> action_in_words("get_order+"), action_in_words("U"), action_in_words("^")
    ('calling get_order, in the same answer', 'the user spoke', 'the conversation began')
    """
    fixed = {"^": "the conversation began", "U": "the user spoke", "A": "the agent spoke"}
    if action in fixed:
        return fixed[action]
    if action.endswith("+"):
        return f"calling {action[:-1]}, in the same answer"
    tool, _, status = action.rpartition(":")
    return f"{tool} {_STATUS.get(status, f'answered ({status})')}" if tool else action


_STATUS = {"ok": "answered", "error": "failed", "empty": "found nothing"}
