"""The pointer over a trajectory's values: what may fill an argument, how likely, and what is counted of it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.memory.arguments import Pointer
from agentspec.memory.candidates import Base, Chosen
from agentspec.memory.context import Context
from agentspec.memory.slots import Slot
from agentspec.memory.table import key_of_value
from agentspec.memory.tallies import KEPT_VALUES
from tests.memory.talks import Talk

json_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text("a1\0\ud800", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a1", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def slot(**schema: Any) -> Slot:
    return Slot("f", "a", schema)


def base(pointer: Pointer, talk: Talk, wanted: Slot, scope: str | None = None) -> Base:
    context = Context()
    context.sync(talk.history)
    return pointer.base(pointer.look(context), wanted, scope)


def listed(pointer: Pointer, talk: Talk, wanted: Slot, scope: str | None = None) -> list[Any]:
    """The values that may fill an argument."""
    return base(pointer, talk, wanted, scope).values.listed[:-1]


def shares(pointer: Pointer, talk: Talk, wanted: Slot, scope: str | None = None) -> dict[Any, float]:
    made = base(pointer, talk, wanted, scope)
    chances = pointer.score(made, Chosen()).of_values()
    return dict(zip(made.values.listed, chances.tolist(), strict=False))


def teach(pointer: Pointer, made: Base, value: Any) -> int | None:
    """This value was right; the candidate that explains it best."""
    example = pointer.example(pointer.score(made, Chosen()), value)
    pointer.learn(example)
    return example.best


RESULT = {
    "id": "A1",
    "n": 5,
    "big": 2.5,
    "on": True,
    "tags": ["x", "y"],
    "rows": [{"k": "K1", "v": 1}],
    "at": {"k": "K2"},
}


def told() -> Talk:
    return Talk().user('look up "Q 7"').call("get", RESULT, key="E9")


@pytest.mark.parametrize(
    ("schema", "inside", "outside"),
    [
        ({"type": "string"}, ["A1", "5", "2.5", "true", "Q 7", "E9", "K1"], [5, True, ["x", "y"]]),
        ({"type": "integer"}, [5], ["A1", "5"]),
        ({"type": "number"}, [5, 2.5], ["A1"]),
        ({"type": "boolean"}, [True, False], ["A1", 5]),
        ({"type": "array", "items": {"type": "string"}}, [["x", "y"], ["A1"]], ["A1"]),
        ({"type": "array", "items": {"properties": {}}}, [[{"k": "K1", "v": 1}], [{"k": "K2"}]], [["x", "y"]]),
        ({"type": "object"}, [{"k": "K2"}, {"k": "K1", "v": 1}], ["A1"]),
        ({"type": "string", "enum": ["A1", "B2"]}, ["A1", "B2"], ["E9", "Q 7"]),
        ({}, ["A1", 5, True, "E9"], [["x", "y"]]),
    ],
)
def test_what_may_fill_an_argument_hangs_on_its_type(
    schema: dict[str, Any], inside: list[Any], outside: list[Any]
) -> None:
    found = {key_of_value(one) for one in listed(Pointer(), told(), slot(**schema))}
    assert {key_of_value(one) for one in inside} <= found
    assert not {key_of_value(one) for one in outside} & found


def test_one_and_true_are_different_values() -> None:
    keys = [key_of_value(one) for one in (1, True, "1", "true", 1.0, None, "null", [1], [True], "", {}, "{}")]
    assert len(set(keys)) == len(keys)


@given(json_value, json_value)
@settings(max_examples=200, deadline=None)
def test_the_key_of_a_value_is_its_own(one: Any, other: Any) -> None:
    assert (key_of_value(one) == key_of_value(other)) == (repr(_sorted(one)) == repr(_sorted(other)))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value


@given(st.lists(json_value, max_size=6), st.dictionaries(st.sampled_from(["type", "enum"]), json_value))
@settings(max_examples=100, deadline=None)
def test_any_values_and_schemas_make_probabilities(values: list[Any], schema: dict[str, Any]) -> None:
    pointer, wanted = Pointer(), slot(**schema)
    for one in values:
        pointer.tallies.note(wanted, one, "s")
    talk = Talk().user("go").call("get", {"rows": values})
    made = base(pointer, talk, wanted, "s")
    for value in [*values, "not there"]:
        scored = pointer.score(made, Chosen())
        assert float(scored.chances.sum()) == pytest.approx(1.0, abs=1e-4)
        assert np.all(scored.of_values() >= 0)
        place = teach(pointer, made, value)
        assert place is None or key_of_value(made.values.listed[made.number[place]]) == key_of_value(value)


def test_a_constant_comes_back_as_the_very_value() -> None:
    for value in ("\0abc", "\x005", "5", 5, True, "true", None, 1.5, "", "é\ud800", [1, "a"], {"a": [None]}):
        pointer, wanted = Pointer(), slot()
        pointer.tallies.note(wanted, value, "s")
        assert [repr(one) for one in listed(pointer, Talk().user("-"), wanted, "s")] == [repr(value)]


def test_constants_of_another_scope_are_none() -> None:
    pointer, wanted = Pointer(), slot()
    pointer.tallies.note(wanted, "secret", "s")
    for scope in (None, "", "t", "s\0", "S"):
        assert listed(pointer, Talk().user("-"), wanted, scope) == []


def test_nothing_was_said_and_still_something_may_be_asked() -> None:
    assert listed(Pointer(), Talk(), slot()) == []
    assert listed(Pointer(), Talk(), slot(enum=["a"])) == ["a"]


def test_names_alike_are_worth_something_before_anything_was_learnt() -> None:
    talk = Talk().user("hm").call("get", {"zip": "Z1", "order_id": "O1", "user": "U1"})
    found = shares(Pointer(), talk, Slot("f", "order_id"))
    assert max(found, key=lambda one: found[one]) == "O1"


def test_what_is_nowhere_to_be_found_lets_all_sink() -> None:
    pointer = Pointer()
    for _ in range(30):
        teach(pointer, base(pointer, told(), slot()), "made up")
    assert sum(shares(pointer, told(), slot()).values()) < 0.3


def test_what_was_used_already_is_learnt_to_be_left_alone() -> None:
    pointer, rng = Pointer(), random.Random(1)

    def talk(used: int) -> tuple[Talk, list[str]]:
        ids = [f"K{rng.randrange(10**6)}" for _ in range(4)]
        made = Talk().user("all").call("get", {"ids": ids})
        for one in ids[:used]:
            made.call("f", "ok", a=one)
        return made, ids

    for number in range(25):
        made, ids = talk(number % 4)
        teach(pointer, base(pointer, made, slot()), ids[number % 4])
    for used in range(4):
        made, ids = talk(used)
        found = shares(pointer, made, slot())
        assert max(found, key=lambda one: found[one]) == ids[used]


def test_the_record_of_one_argument_is_that_of_the_next() -> None:
    rows = [{"sku": f"S{i}", "shop": f"P{i}"} for i in range(5)]
    pointer, talk, wanted = Pointer(), Talk().user("buy").call("get", rows), Slot("f", "shop")
    made = base(pointer, talk, wanted)
    for i in range(5):
        row = int(np.flatnonzero(made.number == made.values.number(f"S{i}"))[0])
        chosen = Chosen().and_also(f"S{i}", int(made.record[row]), int(made.message[row]))
        chances = pointer.score(made, chosen).of_values()
        assert made.values.listed[int(chances.argmax())] == f"P{i}"


def test_values_of_one_argument_are_bounded_and_the_usual_stay() -> None:
    pointer, wanted = Pointer(), slot()
    for i in range(1000):
        pointer.tallies.note(wanted, "usual", "s")
        pointer.tallies.note(wanted, f"once {i}", "s")
    assert len(pointer.tallies.values["s", "f.a"]) <= KEPT_VALUES
    assert "usual" in listed(pointer, Talk().user("-"), wanted, "s")


def test_tables_of_arguments_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MAX_SLOTS", "MAX_SCOPED_SLOTS"):
        monkeypatch.setattr(f"agentspec.memory.tallies.{name}", 10)
    monkeypatch.setattr("agentspec.memory.arguments.MAX_KEPT", 10)
    pointer = Pointer()
    for i in range(100):
        wanted = Slot(f"f{i}", "a")
        pointer.tallies.note(wanted, {"k": i}, f"s{i}")
        pointer.tallies.note_sources(wanted, [i])
        teach(pointer, base(pointer, told(), wanted), "A1")
    tallies = pointer.tallies
    for table in (tallies.values, tallies.forms, tallies.fields, tallies.sources, tallies.shapes, tallies.slots):
        assert len(table) <= 10
    assert len(pointer._kept) <= 10


def test_arguments_without_end_of_one_tool_are_bounded() -> None:
    pointer = Pointer()
    for i in range(2000):
        pointer.tallies.note_sources(Slot("f", f"a{i}"), [])
    assert len(pointer.tallies.slots["f"]) <= 500
