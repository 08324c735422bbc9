"""One look at a point of a trajectory: every candidate for the next call, with the evidence for it, weighed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec.calls import ToolCall
from agentspec.memory.arguments import Pointer
from agentspec.memory.candidates import Base
from agentspec.memory.compose import Composed, Composer
from agentspec.memory.confusions import Confusions
from agentspec.memory.context import Context
from agentspec.memory.episodes import MAX_ORDER, Episodes, Vote, Votes
from agentspec.memory.names import NameModel, Ranked
from agentspec.memory.table import key_of
from agentspec.memory.view import View
from agentspec.memory.weighing import Evidence, Weighed, Weighing

NAMES = 3
COVERED = 0.8
"""Names are tried until they have this share of the probability."""
LEAST_CHANCE = 0.08
MAX_SLOTS = 8
"""Arguments that are filled for one look; those of the likeliest name are, however many."""
RECALLED = 12
"""Most calls of past trajectories that become candidates."""

Tools = Mapping[str, Mapping[str, Any]]


@dataclass(slots=True)
class Look:
    """What was seen at one point."""

    ranked: Ranked
    likely: list[tuple[str, float]]
    """Tools with their probabilities given a call, likeliest first."""
    seen: View
    bases: dict[str, Base]
    """By slot: the candidates of the arguments that were looked at."""
    weighed: Weighed

    def covers(self, call: ToolCall | None) -> bool:
        """Whether all of a call's arguments were looked at."""
        return call is None or all(f"{call.name}.{name}" in self.bases for name in call.arguments)


@dataclass(slots=True)
class Parts:
    """The parts of a memory. `without`: names of those that are left out."""

    pointer: Pointer
    names: NameModel
    composer: Composer
    episodes: Episodes
    confusions: Confusions
    weighing: Weighing
    without: frozenset[str] = frozenset()

    def values_of(self, scope: str | None) -> str | None:
        """The scope whose past argument values may be constants."""
        return None if "constants" in self.without else scope


def take_a_look(parts: Parts, context: Context, tools: Tools, scope: str | None) -> Look:
    """Everything that may come next here. `scope`: whose values may be recalled, None for nobody's."""
    ranked = parts.names.rank(context, tools)
    likely = ranked.given_a_call()
    seen = parts.pointer.look(context)
    bases: dict[str, Base] = {}
    composed = _composed(parts, seen, likely, _Asked(tools, parts.values_of(scope), bases))
    votes = parts.episodes.votes(scope, context) if scope is not None else Votes()
    witness = _Witness(parts, context, likely, votes)
    candidates = [witness.evidence(one.call, key, one.chance, one.sources) for key, one in composed.items()]
    for key, vote in sorted(votes.of.items(), key=lambda item: -_strength(item[1], votes))[:RECALLED]:
        if key not in composed and (not tools or vote.call.name in tools):
            chance = parts.composer.chance(seen, vote.call, tools.get(vote.call.name, {}), bases)
            candidates.append(witness.evidence(vote.call, key, chance))
    return Look(ranked, likely, seen, bases, parts.weighing.weigh(candidates))


@dataclass(frozen=True, slots=True)
class _Asked:
    tools: Tools
    scope: str | None
    bases: dict[str, Base]


def _composed(parts: Parts, seen: View, likely: Sequence[tuple[str, float]], asked: _Asked) -> dict[str, Composed]:
    """Calls of the likeliest tools, by their keys."""
    found: dict[str, Composed] = {}
    covered = 0.0
    for name, chance in likely[:NAMES]:
        if found and (covered > COVERED or chance < LEAST_CHANCE):
            break
        usual = parts.composer.likely_keys(seen, name, asked.tools.get(name, {}))[0][0]
        if found and len(asked.bases) + len(usual) > MAX_SLOTS:
            continue
        covered += chance
        for one in parts.composer.compose(seen, name, asked.tools.get(name, {}), asked.scope, asked.bases):
            found.setdefault(key_of(one.call), one)
    return found


@dataclass(slots=True)
class _Witness:
    """Says what speaks for a call and against it."""

    parts: Parts
    context: Context
    likely: Sequence[tuple[str, float]]
    votes: Votes

    def evidence(self, call: ToolCall, key: str, chance: float, sources: Sequence[tuple[str, str]] = ()) -> Evidence:
        """All that is known of one candidate. `chance`: of its arguments, given its name."""
        context, vote = self.context, self.votes.of.get(key)
        made, now = key in context.made, context.keys[len(context.keys) - len(context.emitted) :]
        marks = [f"composed {bool(sources)}", f"made {made} {context.actions[-1] == 'U'}", f"emitted {key in now}"]
        if "recurrence" not in self.parts.without:
            marks += self._followed(vote)
        if "episodes" not in self.parts.without:
            marks += [*self._alike(vote, chance), *self._due(vote, chance)]
        if "confusions" not in self.parts.without:
            marks.append(self._confused(call.name))
        name_chance = next((share for name, share in self.likely if name == call.name), 1e-4)
        return Evidence(call, key, name_chance, chance, marks, made, len(vote.episodes) if vote else 0, tuple(sources))

    def _followed(self, vote: Vote | None) -> list[str]:
        marks = []
        for order in range(MAX_ORDER):
            total = self.votes.totals[order]
            share = vote.followed[order] / total if vote is not None and total else 0.0
            marks.append(f"followed {order} {_fifths(share)} {min(int(total), 3)}")
        return marks

    def _alike(self, vote: Vote | None, chance: float) -> list[str]:
        found = vote or Vote(ToolCall("", {}))
        alike, agreed = _fifths(found.similar), _fifths(found.weight)
        return [
            f"alike {alike} {found.aligned} {min(len(self.votes.of), 1)}",
            f"agreed {agreed} {found.aligned} {alike}",
            f"agreed {agreed} {min(len(self.context.calls), 3)} {chance > 0.5}",
        ]

    def _due(self, vote: Vote | None, chance: float) -> list[str]:
        """Whether it is the next call of similar trajectories, together with what followed the same calls."""
        due, alike = (_fifths(vote.due), _fifths(vote.similar)) if vote is not None else (0, 0)
        followed = 0
        for order, total in enumerate(self.votes.totals, 1):
            if total:
                followed = 10 * order + (_fifths(vote.followed[order - 1] / total) if vote is not None else 0)
        heard = self.context.actions[-1] == "U"
        return [f"due {due} {alike}", f"due {due} {heard} {followed}", f"longest {followed} {_fifths(chance)}"]

    def _confused(self, name: str) -> str:
        first = self.likely[0][0] if self.likely else ""
        share, weight = self.parts.confusions.share(first, self.context.actions[-1], name)
        return f"confused {_fifths(share)} {min(int(weight), 4)} {name == first}"


def _strength(vote: Vote, votes: Votes) -> float:
    shares = [seen / total for seen, total in zip(vote.followed, votes.totals, strict=True) if total]
    return max([*shares, 0.0]) + vote.similar


def _fifths(share: float) -> int:
    """0 for nothing, 1 to 5 by fifths."""
    return 0 if share <= 0 else 1 + min(int(share * 5), 4)
