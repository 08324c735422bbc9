"""Calls are found in whatever form and pieces they arrive, and text that is no call is not touched."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.server.deltas import CallArguments, CallStart, Delta, TextDelta
from agentspec.verifier.server.toolcalls import ToolCallParser

SCHEMAS: dict[str, Any] = {
    "get_weather": {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    "get": {"properties": {"note": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    "ping": {},
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(st.text(max_size=4), JSON, max_size=3)
WORDS = st.dictionaries(st.text("abc_", min_size=1, max_size=4), st.text("ab </}]\n'\"é", max_size=8), max_size=3)
SIZES = st.lists(st.integers(0, 9), max_size=60)
NAMES = st.sampled_from(sorted(SCHEMAS))
PLAIN = st.text(st.characters(exclude_characters="`<{[\x1c\x1d\x1e\x1f"), max_size=40)
MARKS = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "\n",
    " ",
    "`",
    "```",
    "```json",
    "<tool_call>",
    "</tool_call>",
    "(",
    ")",
    "=",
]
MARKS += ['{"name": "', "get_weather", "ping", '", "arguments": {', "<function=", "<parameter=", ">", "</parameter>"]
MARKS += ["</function>", "[TOOL_CALLS]", '"function"', '"type"', "a", "'"]


def parse(
    text: str, sizes: Sequence[int] = (), *, schemas: Any = SCHEMAS, whole: bool = True
) -> tuple[str, list[tuple[str, str]], list[Delta]]:
    parser = ToolCallParser(schemas)
    deltas: list[Delta] = []
    rest = text
    for size in sizes:
        deltas += parser.feed(rest[:size])
        rest = rest[size:]
    deltas += parser.feed(rest) + parser.end(whole=whole)
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


def read(calls: list[tuple[str, str]]) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in calls]


@given(PLAIN, st.lists(st.tuples(NAMES, ARGUMENTS), max_size=3), SIZES)
def test_any_chunking_gives_the_same_calls(
    text: str, calls: list[tuple[str, dict[str, object]]], sizes: list[int]
) -> None:
    lines = [f'{{"name": "{name}", "arguments": {json.dumps(arguments)}}}' for name, arguments in calls]
    content, found, _ = parse("\n".join([text, *lines]), sizes)
    assert found == [(name, json.dumps(arguments)) for name, arguments in calls]
    assert content == (text.rstrip() if calls else text)


def bare(name: str, arguments: Any) -> str:
    return json.dumps({"arguments": arguments, "name": name})


def wrapped(name: str, arguments: Any) -> str:
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def fenced(name: str, arguments: Any) -> str:
    return "```json\n" + json.dumps({"name": name, "parameters": arguments}, indent=2) + "\n```"


def typed(name: str, arguments: Any) -> str:
    return json.dumps({"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}})


def mistral(name: str, arguments: Any) -> str:
    return "[TOOL_CALLS]" + json.dumps([{"name": name, "arguments": arguments}])


def mistral_named(name: str, arguments: Any) -> str:
    return f"[TOOL_CALLS]{name}[ARGS]{json.dumps(arguments)}"


def llama(name: str, arguments: Any) -> str:
    return f"<function={name}>{json.dumps(arguments)}</function>"


def python_tag(name: str, arguments: Any) -> str:
    return f"<|python_tag|>{json.dumps({'name': name, 'parameters': arguments})}"


FORMS = [bare, wrapped, fenced, typed, mistral, mistral_named, llama, python_tag]


@settings(max_examples=300)
@given(st.sampled_from(FORMS), st.tuples(PLAIN, PLAIN), NAMES, ARGUMENTS, SIZES)
def test_every_json_form_is_found(
    form: Any, around: tuple[str, str], name: str, arguments: dict[str, Any], sizes: list[int]
) -> None:
    before, after = around
    content, calls, _ = parse(f"{before}\n{form(name, arguments)}\n.{after}", sizes)
    assert read(calls) == [(name, arguments)]
    assert content == f"{before.rstrip()}\n.{after}"


@given(PLAIN, st.lists(st.tuples(NAMES, WORDS), min_size=1, max_size=3), SIZES)
def test_xml_parameters_are_found(before: str, calls: list[tuple[str, dict[str, str]]], sizes: list[int]) -> None:
    texts = [{key: value.strip("\n") + "!" for key, value in words.items()} for _, words in calls]
    written = before
    for (name, _), words in zip(calls, texts, strict=True):
        parts = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in words.items())
        written += f"\n<tool_call>\n<function={name}>\n{parts}</function>\n</tool_call>"
    content, found, _ = parse(written, sizes)
    assert read(found) == [(name, words) for (name, _), words in zip(calls, texts, strict=True)]
    assert content == before.rstrip()


def test_xml_parameters_take_the_types_of_the_schema() -> None:
    def value(name: str, key: str, text: str) -> Any:
        _, calls, _ = parse(f"<function={name}><parameter={key}>{text}</parameter></function>")
        return read(calls)[0][1][key]

    assert value("get_weather", "days", "3") == 3 and value("get_weather", "city", "3") == "3"
    assert value("get", "note", "None") is None and value("get", "note", "12") == "12"
    assert value("ping", "unknown", "[1]") == [1] and value("ping", "unknown", "x") == "x"
    assert value("get_weather", "days", "three") == "three" and value("ping", "flag", "True") is True


@given(PLAIN, st.lists(st.tuples(NAMES, WORDS), min_size=1, max_size=3), SIZES)
def test_python_lists_of_calls_are_found(
    before: str, calls: list[tuple[str, dict[str, str]]], sizes: list[int]
) -> None:
    inner = ", ".join(f"{name}({', '.join(f'{k}_={v!r}' for k, v in words.items())})" for name, words in calls)
    content, found, _ = parse(f"{before} [{inner}]", sizes)
    assert read(found) == [(name, {f"{key}_": value for key, value in words.items()}) for name, words in calls]
    assert content == before.rstrip()


@given(st.lists(st.sampled_from(MARKS), max_size=40).map("".join), SIZES, st.booleans())
def test_whatever_comes_the_chunking_changes_nothing(text: str, sizes: list[int], whole: bool) -> None:
    content, calls, _ = parse(text, sizes, whole=whole)
    assert (content, calls) == parse(text, whole=whole)[:2]
    if not calls:
        assert content == text


@given(st.lists(st.sampled_from(MARKS), max_size=25).map("".join))
def test_text_beside_calls_is_all_there(text: str) -> None:
    """Of the letters in the answer each is in the text, in a call, or in a tag around one."""
    content, calls, _ = parse(text)
    letters = content + "".join(name + arguments for name, arguments in calls)
    assert letters.count("ping") <= text.count("ping")
    assert text.count("ping") - letters.count("ping") <= text.count("parameter") + text.count("function")


@pytest.mark.parametrize(
    "text",
    [
        'See:\n```json\n{"a": 1}\n```',
        '{"name": "Bob", "arguments": {"x": 1}}',
        '{"name": "ping", "arguments": 3}',
        '{"name": "ping", "arguments": "{"}',
        "<function=unknown><parameter=a>1</parameter></function>",
        "<function=ping>not parameters</function>",
        "[ping(1)]",
        "[ping(a=open())]",
        "[unknown(a=1)]",
        "[TOOL_CALLS] and nothing",
        "[TOOL_CALLS][1, 2]",
        '[{"name": "ping", "arguments": {}}, 3]',
        'Plan.\n{"name": "get_w',
        "<tool_call>\n<function=ping>\n<parameter=a>\n1",
    ],
)
def test_what_is_malformed_or_unknown_stays_text(text: str) -> None:
    for sizes in ([], [1] * len(text)):
        content, calls, _ = parse(text, sizes)
        kept = text.replace('{"name": "ping", "arguments": {}}', "")
        assert (content, calls) == (text, []) or (content.replace(" ", "") == kept.replace(" ", "") and len(calls) == 1)


def test_a_call_that_only_lacks_its_end_is_one_if_the_answer_ended_by_itself() -> None:
    for text in (
        '[{"name": "ping", "arguments": {}}',
        "<function=ping>\n<parameter=a>\nx\n</parameter>\n",
        "[ping(a='x')",
        '{"arguments": {}, "name": "ping"',
    ):
        assert [name for name, _ in parse(text)[1]] == ["ping"]
        assert parse(text, whole=False)[1] == [] or text.startswith("[{")


def test_text_streams_at_once_and_only_a_possible_opening_is_held_back() -> None:
    parser = ToolCallParser(SCHEMAS)
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
    call = '{"name": "ping", "arguments": {}}'
    for before, after in (("```json\n", "\n```"), ("<tool_call>\n", "\n</tool_call>"), ("\n\n", "\n")):
        content, calls, _ = parse(f"Plan.\n{before}{call}{after}", [])
        assert (content, calls) == ("Plan.", [("ping", "{}")])


def test_wrapped_calls_get_indexes_in_order() -> None:
    one = '<tool_call>\n{"name": "ping", "arguments": {"x": 1}}\n</tool_call>'
    two = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'
    content, calls, deltas = parse(f"{one}\n{two}", [3] * 50)
    assert content == "" and calls == [("ping", '{"x": 1}'), ("get", "{}")]
    ids = [d.id for d in deltas if isinstance(d, CallStart)]
    assert len(set(ids)) == 2


def test_an_answer_cut_off_in_the_name_is_text() -> None:
    assert parse('Plan.\n{"name": "get_w')[:2] == ('Plan.\n{"name": "get_w', [])


def test_an_answer_cut_off_in_the_arguments_keeps_what_came() -> None:
    assert parse('{"name": "ping", "arguments": {"x": "y', [])[1] == [("ping", '{"x": "y')]


def test_a_code_block_that_is_no_call_is_text() -> None:
    text = 'See:\n```json\n{"a": 1}\n```'
    assert parse(text, [1] * 40)[:2] == (text, [])
