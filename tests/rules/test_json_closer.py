"""A call is known the moment its JSON closes: not before, not later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import JsonCloser, parse_arguments

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(st.text(st.sampled_from('ab{}[]"\\\n'), max_size=4), json_values, max_size=4)


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@given(value=objects, indent=st.sampled_from([None, 2]), ascii_only=st.booleans(), space=st.sampled_from(["", " \n"]))
def test_an_object_is_closed_exactly_when_its_prefix_is_json(
    value: dict[str, Any], indent: int | None, ascii_only: bool, space: str
) -> None:
    text = space + json.dumps(value, indent=indent, ensure_ascii=ascii_only) + space
    closer = JsonCloser()
    for end in range(1, len(text) + 1):
        assert closer.feed(text[end - 1]) == is_json(text[:end]), text[:end]


@given(value=objects, after=st.text(max_size=6), data=st.data())
def test_fragments_and_what_follows_change_nothing(value: dict[str, Any], after: str, data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    closer = JsonCloser()
    assert not closer.feed(text[:cut])
    assert closer.feed(text[cut:] + after)
    assert closer.feed(after)


@pytest.mark.parametrize("text", ["", " ", '"{}"', "x", "1", "null", '{"a": "}', '{"a\\"}', '{"a": [}'])
def test_what_is_no_whole_object_does_not_close(text: str) -> None:
    assert not JsonCloser().feed(text)


@given(value=objects)
def test_arguments_are_read_as_json_reads_them(value: dict[str, Any]) -> None:
    assert parse_arguments(json.dumps(value)) == value


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_no_text_means_no_arguments(text: str) -> None:
    assert parse_arguments(text) == {}


@pytest.mark.parametrize(
    "text", ["null", "[]", "1", '"{}"', "{", "{]", "{} {}", "{'a': 1}", '{"a": ' + "9" * 5000 + "}"]
)
def test_what_is_no_object_is_no_arguments(text: str) -> None:
    assert parse_arguments(text) is None


def test_arguments_nested_absurdly_deep_are_no_arguments() -> None:
    assert parse_arguments('{"a":' * 100_000 + "1" + "}" * 100_000) is None
