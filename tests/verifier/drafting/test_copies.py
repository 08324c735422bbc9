"""Copies: what stands in an answer is what was indexed."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.drafting.copies import copies, escaped, respaced, unescaped

json_of = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.text())
def test_the_escaped_copy_is_what_a_json_string_holds(text: str) -> None:
    assert json.loads(f'"{escaped(text)}"') == text


@given(st.text(min_size=1))
def test_what_a_json_string_holds_is_found_in_plain(text: str) -> None:
    written = json.dumps({"content": text})
    assert "\\" not in written or text in list(unescaped(written))


@given(st.dictionaries(st.text(), json_of, min_size=1))
def test_compact_json_gets_the_spaces_that_models_write(value: dict[str, object]) -> None:
    compact = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    spaced = json.dumps(value, ensure_ascii=False)
    assert spaced == compact or spaced in list(respaced(f"result: {compact} and so on"))


def test_a_text_without_quotes_or_lines_has_no_copy() -> None:
    assert copies("The order was sent on Monday.") == []


@given(st.text())
def test_any_text_can_be_copied(text: str) -> None:
    assert all(isinstance(copy, str) for copy in copies(text + '{"a":[' + text))
