"""Arguments that are to be filled: what a schema says of them, however it is written, and how alike names are."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.memory.compose import slot_of
from agentspec.memory.reading import RECORD, RECORDS, SCALAR, SCALARS
from agentspec.memory.slots import Slot, form_of, likeness, project, words_of

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["string", "array", "object", "null", "", "é\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "enum", "anyOf", "oneOf", "items", "properties", "required", "x"]), inner
        )
    ),
    max_leaves=20,
)


def slot(**schema: Any) -> Slot:
    return Slot("f", "a", schema)


@given(st.dictionaries(st.sampled_from(["type", "enum", "anyOf", "oneOf", "items", "properties"]), junk))
@settings(max_examples=200, deadline=None)
def test_any_schema_is_read(schema: dict[str, Any]) -> None:
    made = slot(**schema)
    assert 0 <= made.wanted <= 6
    assert isinstance(made.members, list)
    assert made.form(Counter()) in (SCALAR, SCALARS, RECORD, RECORDS)
    assert slot_of("f", "a", schema).schema is not None


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({}, 0), ({"type": "string"}, 1), ({"type": ["null", "integer"]}, 2), ({"type": "number"}, 3),
        ({"anyOf": [{"type": "null"}, {"type": "array"}]}, 5), ({"oneOf": [{"type": "object"}]}, 6),
        ({"type": "boolean"}, 4), ({"type": "null"}, 0), ({"type": "text"}, 0), ({"type": 3}, 0),
        ({"anyOf": {"type": "string"}}, 0),
    ],
)  # fmt: skip
def test_the_wanted_type(schema: dict[str, Any], wanted: int) -> None:
    assert slot(**schema).wanted == wanted


def test_members_are_what_the_schema_names() -> None:
    assert slot(enum=["a", 1, None]).members == ["a", 1, None]
    assert slot(anyOf=[{"enum": ["a"]}, {"type": "null"}]).members == ["a"]
    assert slot(type="boolean").members == [True, False]
    assert slot(enum="abc").members == slot(enum={"a": 1}).members == []


def test_the_form_is_that_of_the_schema_until_values_were_seen() -> None:
    objects = {"type": "array", "items": {"type": "object", "properties": {}}}
    assert slot(**objects).form(Counter()) == RECORDS
    assert slot(type="array").form(Counter()) == slot(type="array", items=7).form(Counter()) == SCALARS
    assert slot(type="object").form(Counter()) == RECORD
    assert slot(type="string").form(Counter({SCALARS: 3, SCALAR: 1})) == SCALARS


@pytest.mark.parametrize(
    ("value", "form"),
    [("a", SCALAR), (None, SCALAR), ([], SCALARS), ([1], SCALARS), ([{}], RECORDS), ([{}, 1], SCALARS), ({}, RECORD)],
)
def test_forms_of_values(value: Any, form: int) -> None:
    assert form_of(value) == form


@pytest.mark.parametrize(
    ("name", "argument", "alike"),
    [
        ("order_id", "order_id", 3), ("order_id", "Order_Id", 3), ("id", "order_id", 2), ("order_ids", "orderId", 2),
        ("order_id", "id", 2), ("user_name", "user_id", 1), ("zip", "city", 0), ("", "city", 0), ("city", "", 0),
        ("%", "!", 0),
    ],
)  # fmt: skip
def test_how_alike_names_are(name: str, argument: str, alike: int) -> None:
    assert likeness(name, argument) == alike


@given(st.text(), st.text())
@settings(max_examples=100, deadline=None)
def test_any_names_can_be_compared(one: str, other: str) -> None:
    assert 0 <= likeness(one.lower(), other) <= 3
    assert all(words_of(one))


def test_records_are_cut_down_to_fields() -> None:
    rows = [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
    assert project(rows, ["a"]) == [{"a": 1}, {"a": 3}]
    assert list(project(rows[1], ["a", "b"])) == ["a", "b"]
    assert project([*rows, {"a": 5}], ["a", "b"]) is project({"a": 1}, ["b"]) is project("text", ["a"]) is None
    assert rows == [{"a": 1, "b": 2}, {"b": 4, "a": 3}]
