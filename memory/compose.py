"""Whole calls from likely arguments: which arguments a tool is given, and a small beam over what may fill each."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentspec.calls import ToolCall
from agentspec.memory.arguments import Example, Pointer
from agentspec.memory.candidates import Base, Chosen
from agentspec.memory.repeats import Repeats
from agentspec.memory.slots import Slot, is_name
from agentspec.memory.table import key_of_value
from agentspec.memory.view import View

BEAM = 3
KEY_SETS = 2
VALUES = 3
MAX_ARGUMENTS = 14
MAX_TOOLS = 20_000
OTHER = ("\0",)
"""Stands for arguments whose names are data."""
UNLIKELY = 1e-4
"""Probability of arguments of which one is nowhere to be found."""

Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Composed:
    """A call, the log-probability of its arguments, and where each came from."""

    call: ToolCall
    log_chance: float
    chosen: Chosen = field(default_factory=Chosen)
    sources: tuple[tuple[str, str], ...] = ()

    @property
    def chance(self) -> float:
        """Probability of the arguments, given the tool."""
        return math.exp(self.log_chance)


class Composer:
    """Makes whole calls of a tool, and learns which arguments tools are given."""

    def __init__(self, pointer: Pointer) -> None:
        self._pointer = pointer
        self.key_sets: OrderedDict[tuple[str, str], Counter[tuple[str, ...]]] = OrderedDict()
        """By tool, and by tool and action before: which arguments it was given."""

    def compose(
        self, seen: View, tool: str, schema: Schema, scope: str | None, bases: dict[str, Base]
    ) -> list[Composed]:
        """The likeliest calls of this tool, best first. `bases` keeps what was scored, by slot."""
        made: list[Composed] = []
        for keys, share in self.likely_keys(seen, tool, schema)[:KEY_SETS]:
            if keys == OTHER or len(keys) > MAX_ARGUMENTS:
                continue
            beam = [Composed(ToolCall(tool, {}), math.log(share), sources=(("arguments", "as usual"),) * (not keys))]
            for name in keys:
                base = self._base(seen, slot_of(tool, name, schema), scope, bases)
                longer = [more for one in beam for more in self._extended(seen, one, base)]
                beam = sorted(longer, key=lambda one: -one.log_chance)[:BEAM]
            made += beam
        return sorted(made, key=lambda one: -one.log_chance)[: 2 * BEAM]

    def _extended(self, seen: View, one: Composed, base: Base) -> list[Composed]:
        """The call with one more argument, each of its likeliest values."""
        scored = self._pointer.score(base, one.chosen)
        name, longer = base.slot.name, []
        for number, chance, candidate in scored.likeliest(VALUES):
            if chance < 1e-6:
                continue
            value = base.values.value(number)
            longer.append(
                Composed(
                    ToolCall(one.call.name, {**one.call.arguments, name: value}),
                    one.log_chance + math.log(chance),
                    one.chosen.and_also(value, int(base.record[candidate]), int(base.message[candidate])),
                    (*one.sources, (name, _place(seen, base, candidate))),
                )
            )
        return longer

    def chance(self, seen: View, call: ToolCall, schema: Schema, bases: Mapping[str, Base]) -> float:
        """Probability of a call's arguments, as far as its slots were scored; small where they were not."""
        keys = tuple(call.arguments)
        chance = next((share for known, share in self.likely_keys(seen, call.name, schema) if known == keys), 0.02)
        chosen = Chosen()
        for name, value in call.arguments.items():
            base = bases.get(f"{call.name}.{name}")
            number = base.values.number(key_of_value(value)) if base is not None else None
            if base is None or number is None:
                return UNLIKELY
            scored = self._pointer.score(base, chosen)
            place = scored.best_place(number)
            chance *= float(scored.of_values()[number])
            chosen = chosen.and_also(value, int(base.record[place]), int(base.message[place]))
        return max(chance, UNLIKELY)

    def likely_keys(self, seen: View, tool: str, schema: Schema) -> list[tuple[tuple[str, ...], float]]:
        """Which arguments the tool is likely given, with probabilities."""
        counts: Counter[tuple[str, ...]] = Counter()
        for context, weight in ((tool, ""), 2), ((tool, seen.context.actions[-1]), 6):
            for keys, n in self.key_sets.get(context, {}).items():
                counts[keys] += n * weight
        required, properties = schema.get("required"), schema.get("properties")
        if isinstance(required, list) and isinstance(properties, Mapping):
            counts[tuple(name for name in properties if name in required)] += 1
        elif not counts:
            counts[()] += 1
        total = counts.total() + 0.6
        return [(keys, n / total) for keys, n in counts.most_common(KEY_SETS + 1)]

    def examples(
        self, seen: View, call: ToolCall, schema: Schema, scope: str | None, bases: dict[str, Base]
    ) -> list[Example]:
        """The call was made here: what is to be learnt of its arguments."""
        chosen, examples = Chosen(), []
        named = [item for item in call.arguments.items() if is_name(item[0], schema)]
        for name, value in named[:MAX_ARGUMENTS]:
            base = self._base(seen, slot_of(call.name, name, schema), scope, bases)
            example = self._pointer.example(self._pointer.score(base, chosen), value)
            place = example.best
            record, message = (int(base.record[place]), int(base.message[place])) if place is not None else (0, 0)
            chosen = chosen.and_also(value, record, message)
            examples.append(example)
        return examples

    def learn(self, examples: Sequence[Example], repeats: Repeats) -> float:
        """Learn from a call's arguments. Returns what the one counts that counts least."""
        least = 1.0
        for example in examples:
            habits = example.paths or [repeats.own(example.value)]
            weight = repeats.most(example.slot.path, habits)
            self._pointer.learn(example, weight)
            self._pointer.tallies.note_sources(example.slot, example.paths)
            least = min(least, weight)
        return least

    def _base(self, seen: View, slot: Slot, scope: str | None, bases: dict[str, Base]) -> Base:
        known = bases.get(slot.path)
        if known is None:
            known = bases[slot.path] = self._pointer.base(seen, slot, scope)
        return known

    def note(self, last: str, call: ToolCall, schema: Schema, scope: str | None, told: set[tuple[str, str]]) -> None:
        """Count a call that came after the action `last`; a value that the trajectory has `told` already, once."""
        keys = tuple(call.arguments) if all(is_name(key, schema) for key in call.arguments) else OTHER
        for context in ((call.name, ""), (call.name, last)):
            self.key_sets.setdefault(context, Counter())[keys] += 1
            self.key_sets.move_to_end(context)
        while len(self.key_sets) > MAX_TOOLS:
            self.key_sets.popitem(last=False)
        for name, value in call.arguments.items() if keys != OTHER else ():
            slot, key = slot_of(call.name, name, schema), key_of_value(value)
            self._pointer.tallies.note(slot, value, None if (slot.path, key) in told else scope)
            told.add((slot.path, key))


def values_told(call: ToolCall) -> list[tuple[str, str]]:
    """The slots and the keys of the values that a call tells."""
    return [(f"{call.name}.{name}", key_of_value(value)) for name, value in call.arguments.items()]


def slot_of(tool: str, name: str, schema: Schema) -> Slot:
    """The slot of a tool's argument."""
    properties = schema.get("properties")
    own = properties.get(name) if isinstance(properties, Mapping) else None
    return Slot(tool, name, own if isinstance(own, Mapping) else {})


def _place(seen: View, base: Base, row: int) -> str:
    if row >= len(base.path_numbers):
        return "a value of past calls"
    return seen.context.table.paths.listed[int(base.path_numbers[row])]
