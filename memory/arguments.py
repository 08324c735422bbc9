"""Where arguments come from: a pointer over every value of the trajectory, learnt from which ones were copied.

For each argument a softmax over the places where values stand (a pointer network over hashed features: Vinyals et
al., NeurIPS 2015, with linear scores); the probability of a value is the sum over its places (pointer sum: Kadlec et
al., ACL 2016). Each feature has three weights: for any argument, for arguments of this name, for this tool's argument.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.memory.candidates import Base, Chosen, Scored, among, constants, occurrences
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, HashedWeights, Places, code, key, mix, paired, softmax
from agentspec.memory.replay import Replay
from agentspec.memory.slots import Slot, likeness
from agentspec.memory.table import key_of_value
from agentspec.memory.tallies import Tallies, shares
from agentspec.memory.view import View, look

NOWHERE = 0
"""A place whose weight stays 0."""
REPLAYS = 3
MAX_KEPT = 2_000
MOST_KEPT_ROWS = 48
SURE = 0.97
"""Nothing is learnt from what was this likely already."""

_SALTS = np.array([code(f"slot column {i}") for i in range(16)], np.uint64)
_LINK_SALTS = np.array([code(f"link column {i}") for i in range(2)], np.uint64)
_ANY = key("any")
_PRIOR = np.array([0.0, 0.4, 1.0, 1.5], np.float32)
_LINK_PRIOR = np.float32(1.0)
"""What a like name, and standing in the record of another argument under a like name, are worth from the start."""

Kept = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], Floats, float]


class Pointer:
    """Scores and learns what fills arguments."""

    def __init__(self, bits: int = 19, rate: float = 0.1, replays: int = REPLAYS) -> None:
        self.weights = HashedWeights(bits, rate, 0.5)
        self.tallies = Tallies()
        self._replays = replays
        self._kept = Replay[Kept](MAX_KEPT)

    def look(self, context: Context) -> View:
        """The occurrences of a context."""
        return look(context, self.weights, self.tallies.commonness())

    # Predicting

    def base(self, seen: View, slot: Slot, scope: str | None) -> Base:
        """Score everything that may fill this slot; values of past calls only of this scope."""
        tallies, at = self.tallies, seen.at
        form = slot.form(tallies.forms.get(slot.path, Counter()))
        fields = tallies.fields.get(slot.path)
        rows, number, values = occurrences(seen, slot, form, fields.most_common(1)[0][0] if fields else ())
        alike = _alike(seen, slot)[at.name[rows]]
        own = self._features(seen, slot, rows, alike)
        places = self._places(at.generic[rows], at.features[rows], own, slot)
        counts = tallies.values.get((scope, slot.path), Counter()) if scope is not None else Counter()
        listed, marks = constants(seen.context, slot, counts)
        numbers = [values.enter(text, value) for text, value in listed.items()]
        numbers.append(len(values.listed))
        values.listed.append(None)
        places = np.concatenate([places, self._constant_places(marks, slot, places.shape[1])])
        none = np.zeros(len(marks), np.int64)
        prior = np.concatenate([_PRIOR[alike], none.astype(np.float32)])
        return Base(
            slot, values, np.concatenate([number, np.array(numbers, np.int64)]), places,
            self.weights.scores(places) + prior, prior,
            record=np.concatenate([at.record[rows], none]),
            message=np.concatenate([at.message[rows], none]),
            path=np.concatenate([at.path[rows], none.astype(np.uint64)]),
            path_number=np.concatenate([at.path_number[rows], none - 1]),
            kind=np.concatenate([at.kind[rows], none + 5]),
            alike=np.concatenate([alike, none]),
        )  # fmt: skip

    def score(self, base: Base, chosen: Chosen) -> Scored:
        """The probabilities of a slot's candidates, given the rest of the call."""
        if not chosen.values:
            return Scored(base, base.places, softmax(base.scores), base.prior)
        linked = among(base.record, chosen.records)
        taken = among(base.number, [base.values.numbers[one] for one in chosen.values if one in base.values.numbers])
        mark = linked + 2 * taken + 4 * among(base.message, chosen.messages) + 8 * bool(chosen.records)
        features = paired([(base.path, mark), (base.kind.astype(np.uint64), mark + 16 * base.alike)], _LINK_SALTS)
        more = self.weights.places(np.concatenate([mix(features, one) for one in _keys(base.slot)], axis=1))
        worth = _LINK_PRIOR * (linked & (base.alike > 1))
        scores = base.scores + self.weights.scores(more) + worth
        return Scored(base, np.concatenate([base.places, more], axis=1), softmax(scores), base.prior + worth)

    def _features(self, seen: View, slot: Slot, rows: Places, alike: Places) -> Codes:
        """(candidates, 15) features that hang on the slot."""
        at, tallies, table = seen.at, self.tallies, seen.context.table
        path, kind, ranks = at.path[rows], at.kind[rows].astype(np.uint64), at.ranks[rows].astype(np.uint64)
        used, fresh, mentioned, common = at.used[rows], at.fresh[rows], at.mentioned[rows], at.common[rows]
        number = at.path_number[rows]
        usual = shares(tallies.sources.get(slot.path), seen.paths)[number]
        named = shares(tallies.sources.get(slot.name), seen.paths)[number]
        shaped = shares(tallies.shapes.get(slot.path), seen.shapes)[at.shape_number[rows]]
        mine = seen.context.slots_used.get(slot.path, [])
        flags = np.zeros(len(table.values), np.int64)
        flags[mine] = 1
        had, follows, step = flags[at.value[rows]], _follows(seen, rows, mine), _steps(seen, slot, rows)
        once, like = np.minimum(used, 1), alike > 1
        return paired(
            [
                (kind, usual + 8 * shaped + 64 * once),
                (kind, named + 8 * shaped + 64 * like),
                (ranks, usual + 8 * had),
                (kind, usual + 8 * mentioned + 64 * once + 128 * fresh),
                (shaped.astype(np.uint64), mentioned + 8 * fresh + 16 * alike),
                (kind, step + 16 * alike),
                (path, step),
                (kind, common + 8 * shaped),
                (kind, common + 8 * alike + 32 * mentioned),
                (kind, alike),
                (kind, alike + 4 * used + 16 * fresh + 32 * mentioned),
                (kind, at.types[rows] * 8 + slot.wanted),
                (kind, had + 2 * alike + 8 * follows),
                (path, had + 2 * follows),
                (ranks, had + 2 * like + 4 * fresh),
            ],
            _SALTS,
        )

    def _places(self, generic: Places, features: Codes, own: Codes, slot: Slot) -> Places:
        every, argument, exact = _keys(slot)
        both = np.concatenate([features, own], axis=1)
        more = self.weights.places(np.concatenate([mix(own, every), mix(both, argument), mix(both, exact)], axis=1))
        return np.concatenate([generic, more], axis=1)

    def _constant_places(self, marks: Codes, slot: Slot, width: int) -> Places:
        places = np.full((len(marks), width), NOWHERE, np.int64)
        places[:, : 3 * marks.shape[1]] = self.weights.places(
            np.concatenate([mix(marks, one) for one in _keys(slot)], axis=1)
        )
        return places

    # Learning

    def learn(self, scored: Scored, value: Any, weight: float = 1.0) -> int | None:
        """This value was right. Returns the candidate that explains it best, None if none does."""
        base = scored.base
        right = base.values.numbers.get(key_of_value(value), base.none)
        mask = base.number == right
        picked = np.flatnonzero(mask | (scored.chances > 1e-3))
        if len(picked) > MOST_KEPT_ROWS:
            picked = picked[np.argsort(-(scored.chances[picked] + mask[picked]))[:MOST_KEPT_ROWS]]
        kept = (scored.places[picked].astype(np.int32), mask[picked], scored.prior[picked], weight)
        self._step(kept)
        for past in self._kept.some(self._replays):
            self._step(past)
        self._kept.keep(kept)
        return scored.best_place(right) if right != base.none else None

    def _step(self, kept: Kept) -> None:
        places, right, prior, weight = kept
        wide = places.astype(np.int64)
        chances = softmax(self.weights.scores(wide) + prior)
        share = np.where(right, chances, np.float32(0.0))
        total = float(share.sum())
        if total > SURE:
            return
        self.weights.learn(wide, ((chances - share / max(total, 1e-9)) * weight).astype(np.float32))
        self.weights.weights[NOWHERE] = 0.0

    def note_sources(self, seen: View, scored: Scored, value: Any) -> None:
        """Count where the value stood, in every place."""
        base = scored.base
        right = base.values.numbers.get(key_of_value(value))
        numbers = np.unique(base.path_number[base.number == right]) if right is not None else ()
        self.tallies.note_sources(base.slot, [int(seen.paths[number]) for number in numbers if number >= 0])


def _alike(seen: View, slot: Slot) -> Places:
    """By name: how alike it is to the argument's."""
    names = seen.context.table.names
    return np.array([likeness(names[one], slot.name) for one in seen.names.tolist()], np.int64)


def _follows(seen: View, rows: Places, mine: list[int]) -> Places:
    """1: of a path where the slot's last value stood; 2: right after that."""
    at, follows = seen.at, np.zeros(len(rows), np.int64)
    last = np.flatnonzero((at.value == mine[-1]) & (at.kind < 2)) if mine else ()
    numbers, ranks = at.path_number[rows], at.rank[rows]
    for i in last:
        same = numbers == at.path_number[i]
        follows[same] = np.maximum(follows[same], 1)
        follows[same & (ranks == at.rank[i] + 1)] = 2
    return follows


def _steps(seen: View, slot: Slot, rows: Places) -> Places:
    """How far each occurrence's record is from that of the tool's last call: 1 to 8, 0 nothing known, 9 no record."""
    record, last = seen.at.record[rows], seen.context.last_record.get(slot.tool)
    steps = np.clip(record - last, -2, 5) + 3 if last is not None else np.zeros(len(rows), np.int64)
    return np.where(record > 0, steps, 9)


def _keys(slot: Slot) -> list[Codes]:
    """What a feature is mixed with: for any argument, for arguments of this name, for this tool's."""
    return [_ANY, key(f"argument {slot.name}"), key(f"slot {slot.path}")]
