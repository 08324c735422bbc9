"""When are two calls the same as plain JSON? So the proxy compares guesses and relayed calls."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall, canonical_arguments, canonical_json, same_call
from tests.contract.bookings import BOOK, as_json, bookings, complete, finite, texts, whole

json_values = st.recursive(
    st.none() | st.booleans() | whole | finite | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
objects = st.dictionaries(texts, json_values, max_size=4)


@given(objects, st.randoms())
def test_canonical_arguments_do_not_depend_on_order(value, dice):
    items = list(value.items())
    dice.shuffle(items)
    assert canonical_arguments(dict(items)) == canonical_arguments(value)
    assert json.loads(canonical_arguments(value)) == value


@given(objects, objects)
def test_other_arguments_are_another_call(one, other):
    assert same_call(ToolCall("t", one), ToolCall("t", other)) == (canonical_json(one) == canonical_json(other))
    assert not same_call(ToolCall("t", one), ToolCall("u", one))


@given(bookings)
def test_the_proxy_agrees_with_the_runtime_that_a_guess_is_the_call(values):
    """With and without its defaults, under the schema that the runtime sent."""
    schema = BOOK.json_schema()
    full = as_json(complete(values))
    bare = {name: value for name, value in as_json(values).items()}
    assert same_call(ToolCall("book", bare), ToolCall("book", full), schema)


@given(bookings, bookings)
def test_the_proxy_never_takes_a_guess_for_another_call(one, other):
    schema = BOOK.json_schema()
    says = same_call(ToolCall("book", as_json(one)), ToolCall("book", as_json(other)), schema)
    assert says <= (BOOK.of_prediction(as_json(one)).key == BOOK.of_prediction(as_json(other)).key)
