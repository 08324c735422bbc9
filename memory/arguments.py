"""Where arguments come from: a pointer over every value of the trajectory, learnt from which ones were copied.

For each argument a softmax over the places where values stand (a pointer network over hashed features: Vinyals et
al., NeurIPS 2015, with linear scores); the probability of a value is the sum over its places (pointer sum: Kadlec et
al., ACL 2016). Each feature has three weights: for any argument, for arguments of this name, for this tool's argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from agentspec.memory import kernels
from agentspec.memory.candidates import MAX_CONSTANTS, Base, Chosen, Scored, constants, occurrences
from agentspec.memory.context import Context
from agentspec.memory.hashing import Codes, Floats, HashedWeights, Places, code, codes, salts, softmax
from agentspec.memory.kernels import FRESH, KIND, MENTIONED, MESSAGE, NAME, PATH, RECORD, SHAPE
from agentspec.memory.replay import Replay
from agentspec.memory.slots import Slot
from agentspec.memory.table import key_of_value
from agentspec.memory.tallies import SEEN, Tallies, shares
from agentspec.memory.view import View, look

NOWHERE = 0
"""A place whose weight stays 0."""
REPLAYS = 3
MAX_KEPT = 2_000
MOST_KEPT_ROWS = 48
WELL_KNOWN = 12
"""Values that a slot must have had before it is told where not to look."""
SURE = 0.97
"""Nothing is learnt from what was this likely already."""

_SALTS, _LINK_SALTS = salts("slot column", 15), salts("link column", 2)
_PRIOR = np.array([0.0, 0.4, 1.0, 1.5], np.float32)
_LINK_PRIOR = np.float32(1.0)
"""What a like name, and standing in the record of another argument under a like name, are worth from the start."""
_CONSTANT = 5
"""The kind of a candidate that stood nowhere."""

Kept = tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_], Floats, float]


@dataclass(frozen=True, slots=True)
class Example:
    """What is to be learnt of one argument of a call that was made.

    Attributes:
        best: the candidate that explains the value best, None if none does.
        paths: codes of the paths where the value stood.
        value: its code.
        places: (candidates, features) where the weights of the likeliest ones' features lie.
        right, prior: whether each had the value; what it was worth before anything was learnt.
    """

    slot: Slot
    best: int | None
    paths: tuple[int, ...]
    value: int
    places: npt.NDArray[np.int32]
    right: npt.NDArray[np.bool_]
    prior: Floats


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
        tallies, table = self.tallies, seen.context.table
        form = slot.form(tallies.forms.get(slot.path, Counter()))
        fields = tallies.fields.get(slot.path)
        bands = self._bands(seen, slot)
        names = fields.most_common(1)[0][0] if fields else ()
        rows, number, values = occurrences(seen, slot, form, names, self._likely(seen, slot, bands))
        listed, marks = constants(seen.context, slot, tallies.usual(scope, slot, MAX_CONSTANTS))
        numbers = [values.enter(text, value) for text, value in listed.items()]
        numbers.append(len(values))
        values.others.append(None)
        alike = np.concatenate([table.alike(slot.name)[seen.at[rows, NAME]], np.zeros(len(marks), np.int64)])
        keys = codes(["any", f"argument {slot.name}", f"slot {slot.path}"])
        made, prior = self._features(seen, slot, rows, bands), _PRIOR[alike]
        at = np.zeros((len(prior), 4), np.int32)
        at[: len(rows), 0], at[: len(rows), 1:] = number, seen.at[rows][:, (RECORD, MESSAGE, KIND)]
        at[len(rows) :, 0], at[len(rows) :, 3] = numbers, _CONSTANT
        paths = np.zeros(len(prior), np.uint64)
        paths[: len(rows)] = seen.codes[rows, 0]
        scores = np.concatenate([self._worth(seen, rows, made, keys), self._scores(marks, keys)]) + prior
        return Base(slot, keys, values, made, marks, at, paths, seen.at[rows, PATH], alike, scores, prior)

    def _worth(self, seen: View, rows: Places, made: Codes, keys: Codes) -> Floats:
        """Scores of occurrences; what their common features are worth for any argument is known."""
        return kernels.occurrence_scores(made, seen.scores[rows], keys, self.weights.weights, self.weights.shift)

    def _scores(self, features: Codes, keys: Codes) -> Floats:
        return kernels.scores(features, keys, self.weights.weights, self.weights.shift)

    def score(self, base: Base, chosen: Chosen) -> Scored:
        """The probabilities of a slot's candidates, given the rest of the call."""
        if not chosen.values:
            return Scored(base, softmax(base.scores), base.prior)
        numbers = [base.values.number(one) for one in chosen.values]
        records = _numbers(chosen.records)
        taken = _numbers([one for one in numbers if one is not None])
        links = kernels.links(base.at, base.paths, records, _numbers(chosen.messages), taken, base.alike, _LINK_SALTS)
        worth = _LINK_PRIOR * (np.isin(base.at[:, 1], records) & (base.alike > 1))
        chances = base.scores + self._scores(links, base.keys) + worth
        kernels.to_chances(chances)
        return Scored(base, chances, base.prior + worth, links)

    def _bands(self, seen: View, slot: Slot) -> Places:
        """What the past says of a slot: columns by path, path, shape and name, see `kernels.slot_features`."""
        tallies, table = self.tallies, seen.context.table
        bands = np.zeros((max(len(table.paths), len(table.names), len(table.shapes)), 4), np.int64)
        bands[: len(table.paths), 0] = shares(tallies.sources.get(slot.path), table.paths)
        bands[: len(table.paths), 1] = shares(tallies.sources.get(slot.name), table.paths)
        bands[: len(table.shapes), 2] = shares(tallies.shapes.get(slot.path), table.shapes)
        bands[: len(table.names), 3] = table.alike(slot.name)
        return bands

    def _likely(self, seen: View, slot: Slot, bands: Places) -> npt.NDArray[np.bool_]:
        """Once a slot is well known: not what stands where its values never stood, under no like name, and is old."""
        shapes = self.tallies.shapes.get(slot.path)
        if shapes is None or shapes.total() < WELL_KNOWN:
            return np.ones(len(seen.at), np.bool_)
        at, like = seen.at, bands[seen.at[:, SHAPE], 2] >= SEEN
        told = (at[:, MENTIONED] > 0) | (at[:, FRESH] > 0)
        likely: npt.NDArray[np.bool_] = (bands[at[:, PATH], 0] >= SEEN) | (bands[at[:, NAME], 3] > 0) | (like & told)
        return likely

    def _features(self, seen: View, slot: Slot, rows: npt.NDArray[np.int32], bands: Places) -> Codes:
        """(candidates, 31) features of occurrences that may fill the slot."""
        mine = seen.context.slots_used.get(slot.path, [])
        had = np.zeros(len(seen.context.table.values), np.bool_)
        had[mine] = True
        after = kernels.follows(seen.at, rows, mine[-1] if mine else -1)
        last = seen.context.last_record.get(slot.tool, -1)
        return kernels.slot_features(
            seen.at, seen.codes, seen.features, rows, bands, had, after, last, slot.wanted, _SALTS
        )

    # Learning

    def example(self, scored: Scored, value: Any) -> Example:
        """This value was right: what is to be learnt from that."""
        base = scored.base
        known = base.values.number(key_of_value(value))
        right = base.none if known is None else known
        mask = base.at[:, 0] == right
        picked = np.flatnonzero(mask | (scored.chances > 1e-3))
        if len(picked) > MOST_KEPT_ROWS:
            picked = picked[np.argsort(-(scored.chances[picked] + mask[picked]))[:MOST_KEPT_ROWS]]
        stood = set(base.path_numbers[mask[: len(base.path_numbers)]].tolist())
        codes = base.values.table.paths.codes
        return Example(
            base.slot,
            scored.best_place(right) if right != base.none else None,
            tuple(codes[number] for number in stood),
            code(key_of_value(value)),
            self._places(scored, picked),
            mask[picked],
            scored.prior[picked],
        )

    def learn(self, example: Example, weight: float = 1.0) -> None:
        """Learn from it."""
        kept = (example.places, example.right, example.prior, weight)
        self._step(kept)
        for past in self._kept.some(self._replays):
            self._step(past)
        self._kept.keep(kept)

    def _places(self, scored: Scored, picked: Places) -> npt.NDArray[np.int32]:
        """Where the weights of some candidates' features lie."""
        base, occurrences = scored.base, len(scored.base.features)
        width = base.features.shape[1]
        features = np.zeros((len(picked), width + len(_LINK_SALTS)), np.uint64)
        stood = picked < occurrences
        features[stood, :width] = base.features[picked[stood]]
        features[~stood, : base.marks.shape[1]] = base.marks[picked[~stood] - occurrences]
        if scored.links is not None:
            features[:, width:] = scored.links[picked]
        return self.weights.places(features, base.keys)

    def _step(self, kept: Kept) -> None:
        places, right, prior, weight = kept
        weights, rates = self.weights, np.full(places.shape[1], self.weights.rate, np.float32)
        kernels.learn_pointed(weights.weights, weights.squares, places, right, prior, weight, rates, SURE)
        weights.weights[NOWHERE] = 0.0


def _numbers(numbers: Sequence[int]) -> npt.NDArray[np.int32]:
    return np.array(numbers, np.int32)
