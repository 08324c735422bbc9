from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.server.toolcalls import CallArguments, CallStart, Delta, TextDelta, ToolCallParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(
    st.tuples(st.text("abc_", min_size=1, max_size=8), st.dictionaries(st.text(max_size=4), JSON, max_size=3)),
    max_size=3,
)


def parse(text: str, sizes: list[int]) -> tuple[str, list[tuple[str, str]], list[Delta]]:
    parser = ToolCallParser()
    deltas: list[Delta] = []
    rest = text
    for size in sizes:
        deltas += parser.feed(rest[:size])
        rest = rest[size:]
    deltas += parser.feed(rest) + parser.end()
    content = "".join(d.text for d in deltas if isinstance(d, TextDelta))
    calls: list[tuple[str, str]] = []
    for delta in deltas:
        if isinstance(delta, CallStart):
            assert delta.index == len(calls)
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            assert delta.index == len(calls) - 1
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.fragment)
    return content, calls, deltas


@given(st.text(st.characters(exclude_characters="`<{"), max_size=40), CALLS, st.lists(st.integers(0, 9), max_size=40))
def test_any_chunking_gives_the_same_calls(
    text: str, calls: list[tuple[str, dict[str, object]]], sizes: list[int]
) -> None:
    lines = [f'{{"name": "{name}", "arguments": {json.dumps(arguments)}}}' for name, arguments in calls]
    written = "\n".join([text, *lines])
    content, found, _ = parse(written, sizes)
    assert found == [(name, json.dumps(arguments)) for name, arguments in calls]
    assert content == (text.rstrip() if calls else text)


@given(st.text('{"name: `<tool_call>json\n x', max_size=60), st.lists(st.integers(0, 5), max_size=60))
def test_text_that_almost_opens_a_call_is_the_same_in_any_chunking(text: str, sizes: list[int]) -> None:
    assert parse(text, sizes)[:2] == parse(text, [])[:2]


def test_text_streams_at_once_and_only_a_possible_opening_is_held_back() -> None:
    parser = ToolCallParser()
    assert parser.feed("Plan: look") == [TextDelta("Plan: look")]
    assert parser.feed(' up.\n{"na') == [TextDelta(" up.")]
    assert parser.feed('tural"') == [TextDelta('\n{"natural"')]
    assert parser.feed('\n{"name": "get') == []
    start, arguments = parser.feed('_weather", "arguments": {"ci')
    assert isinstance(start, CallStart) and start.name == "get_weather" and start.id.startswith("call_")
    assert arguments == CallArguments(0, '{"ci')
    assert parser.feed('ty": "}"}') == [CallArguments(0, 'ty": "}"}')]
    assert parser.feed("}") == [] and parser.end() == []


def test_fences_and_tags_around_a_call_are_dropped() -> None:
    call = '{"name": "a", "arguments": {}}'
    for before, after in (("```json\n", "\n```"), ("<tool_call>\n", "\n</tool_call>"), ("\n\n", "\n")):
        content, calls, _ = parse(f"Plan.\n{before}{call}{after}", [])
        assert (content, calls) == ("Plan.", [("a", "{}")])


def test_wrapped_calls_get_indexes_in_order() -> None:
    one = '<tool_call>\n{"name": "a", "arguments": {"x": 1}}\n</tool_call>'
    two = '<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>'
    content, calls, deltas = parse(f"{one}\n{two}", [3] * 50)
    assert content == "" and calls == [("a", '{"x": 1}'), ("b", "{}")]
    ids = [d.id for d in deltas if isinstance(d, CallStart)]
    assert len(set(ids)) == 2


def test_an_answer_cut_off_in_the_name_is_text() -> None:
    assert parse('Plan.\n{"name": "get_w', [])[:2] == ('Plan.\n{"name": "get_w', [])


def test_an_answer_cut_off_in_the_arguments_keeps_what_came() -> None:
    assert parse('{"name": "a", "arguments": {"x": "y', [])[1] == [("a", '{"x": "y')]


def test_a_code_block_that_is_no_call_is_text() -> None:
    text = 'See:\n```json\n{"a": 1}\n```'
    assert parse(text, [1] * 40)[:2] == (text, [])
