"""Which arguments are the same call, and which are not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall, canonical_arguments, canonical_json, same_call

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=4)

NUMBER = {"properties": {"n": {"type": "number"}}}
INTEGER = {"properties": {"n": {"type": "integer"}}}
MAYBE = {"properties": {"n": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None}}}
POINT = {
    "$defs": {
        "Point": {"properties": {"x": {"type": "number"}, "unit": {"default": "m"}, "next": {"$ref": "#/$defs/Point"}}}
    },
    "properties": {"p": {"$ref": "#/$defs/Point"}, "ps": {"items": {"$ref": "#/$defs/Point"}}},
}


@given(value=objects)
def test_order_and_white_space_make_no_difference(value: dict[str, Any]) -> None:
    again = json.loads(json.dumps(dict(reversed(value.items())), indent=3))
    assert canonical_arguments(value) == canonical_arguments(again)


@given(one=objects, other=objects)
def test_different_json_is_a_different_call(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (canonical_arguments(one) == canonical_arguments(other)) == (canonical_json(one) == canonical_json(other))


@given(value=objects)
def test_the_canonical_text_is_stable(value: dict[str, Any]) -> None:
    for schema in (None, NUMBER, INTEGER, MAYBE, POINT):
        once = canonical_arguments(value, schema)
        assert canonical_arguments(json.loads(once), schema) == once


@pytest.mark.parametrize(
    ("one", "other", "schema"),
    [
        ({"n": 3}, {"n": 3.0}, NUMBER),
        ({"n": 3}, {"n": 3.0}, INTEGER),
        ({"n": 3}, {"n": 3.0}, MAYBE),
        ({}, {"n": None}, MAYBE),
        ({"p": {"x": 1}}, {"p": {"unit": "m", "x": 1.0}}, POINT),
        ({"p": {"next": {"x": 1}}}, {"p": {"next": {"x": 1.0, "unit": "m"}, "unit": "m"}}, POINT),
        ({"ps": [{"x": 1}]}, {"ps": [{"x": 1.0, "unit": "m"}]}, POINT),
        ({"n": 3}, {"n": 3.0}, {"properties": {"n": {"type": ["number", "null"]}}}),
        ({"n": 3}, {"n": 3.0}, {"properties": {"n": {"oneOf": [{"type": "number"}, {"type": "string"}]}}}),
        ({"k": 3}, {"k": 3.0}, {"additionalProperties": {"type": "number"}}),
        ({}, {"a": {"b": 1.0}}, {"properties": {"a": {"default": {"b": 1}, "properties": {"b": {"type": "number"}}}}}),
    ],
)
def test_written_otherwise_yet_the_same_call(
    one: dict[str, Any], other: dict[str, Any], schema: dict[str, Any]
) -> None:
    assert same_call(ToolCall("f", one), ToolCall("f", other, id="x"), schema)


@pytest.mark.parametrize(
    ("one", "other", "schema"),
    [
        ({"s": "a"}, {"s": "a "}, None),
        ({"s": "a"}, {"s": "A"}, None),
        ({"s": "é"}, {"s": "e\u0301"}, None),
        ({"n": 1}, {"n": True}, NUMBER),
        ({"n": 1}, {"n": "1"}, NUMBER),
        ({"n": 0}, {"n": None}, MAYBE),
        ({"n": 1}, {"n": 1.5}, INTEGER),
        ({"n": 9007199254740993}, {"n": 9007199254740992}, INTEGER),
        ({"a": None}, {}, None),
        ({"a": []}, {"a": {}}, None),
        ({"ps": [1, 2]}, {"ps": [2, 1]}, POINT),
        ({"n": 1, "extra": 1}, {"n": 1}, {**NUMBER, "additionalProperties": False}),
    ],
)
def test_alike_but_not_the_same_call(one: dict[str, Any], other: dict[str, Any], schema: dict[str, Any] | None) -> None:
    assert not same_call(ToolCall("f", one), ToolCall("f", other), schema)


def test_another_tool_is_another_call() -> None:
    assert not same_call(ToolCall("f", {}), ToolCall("g", {}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"n": True}, "additionalProperties": True},
        {"properties": {"n": {"items": True, "anyOf": [True, {}]}}},
        {"properties": []},
        {"properties": "x"},
        {"properties": {"n": "x"}},
        {"$ref": "#"},
        {"$ref": "#/$defs/None"},
        {"$ref": "http://elsewhere/schema"},
        {"properties": {"n": {"anyOf": [{"$ref": "#/properties/n"}, {"$ref": "#/properties/n"}]}}},
        {"properties": {"n": {"type": "int"}}},
        {"properties": {"n": {"type": [["number"]]}}},
        {"properties": {"n": {"type": {"x": 1}}}},
    ],
)
def test_an_odd_schema_is_no_crash(schema: dict[str, Any]) -> None:
    assert json.loads(canonical_arguments({"n": [1, {"a": 2}], "m": 1.5}, schema)) == {"n": [1, {"a": 2}], "m": 1.5}


@pytest.mark.parametrize("schema", [None, NUMBER, INTEGER, MAYBE])
@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e400", "-1e400"])
def test_a_number_beyond_all_floats_is_no_crash(schema: dict[str, Any] | None, number: str) -> None:
    value = json.loads(f'{{"n": {number}}}')
    assert same_call(ToolCall("f", value), ToolCall("f", value), schema)
