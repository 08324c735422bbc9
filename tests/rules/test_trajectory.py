"""Which messages are the same conversation: what a framework rewrites does not count, what is said does."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentspec import trajectory as rules
from agentspec.calls import ToolCall, canonical_json
from agentspec.wire.chat import read_message


def said(messages: list[dict[str, Any]]) -> list[rules.Said]:
    return [one for message in messages for one in read_message(message)]


def chain(messages: list[Any], seed: str = "") -> list[bytes]:
    return rules.chain(said(messages), seed)


def digest(message: dict[str, Any]) -> bytes:
    return read_message(message)[0].digest


def calls_of(message: dict[str, Any]) -> list[ToolCall]:
    return list(read_message(message)[0].calls)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
arguments = st.dictionaries(texts, json_values, max_size=3)


def calling(*calls: tuple[str, Any], **more: Any) -> dict[str, Any]:
    made = [
        {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": value}}
        for i, (name, value) in enumerate(calls)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made, **more}


messages = st.one_of(
    st.builds(
        lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "user", "assistant"]), texts
    ),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "c0", "content": text}, texts),
    st.builds(lambda name, value: calling((name, json.dumps(value))), texts, arguments),
)
conversations = st.lists(messages, max_size=5)


@given(before=conversations, after=conversations)
def test_equal_prefixes_have_equal_values(before: list[Any], after: list[Any]) -> None:
    whole = chain(before + after)
    assert whole[: len(before)] == chain(before)
    assert len(whole) == len(before) + len(after)


@given(before=conversations, one=messages, other=messages)
def test_a_difference_stays_a_difference(before: list[Any], one: dict[str, Any], other: dict[str, Any]) -> None:
    assume(json.dumps(one, sort_keys=True) != json.dumps(other, sort_keys=True))
    assume(not (one["role"] == other["role"] and not one.get("content") and not other.get("content")))
    tail = [{"role": "user", "content": "same"}]
    assert chain([*before, one, *tail])[-2:] != chain([*before, other, *tail])[-2:]
    assert chain([*before, one, *tail])[-1] != chain([*before, other, *tail])[-1]


@given(one=texts, other=texts, conversation=conversations)
def test_tenants_never_share_a_value(one: str, other: str, conversation: list[Any]) -> None:
    assume(one != other and conversation)
    assert set(chain(conversation, one)).isdisjoint(chain(conversation, other))


@given(value=arguments)
def test_arguments_that_were_written_again_are_the_same(value: dict[str, Any]) -> None:
    again = json.dumps(dict(reversed(value.items())), indent=2, ensure_ascii=False)
    assert digest(calling(("f", json.dumps(value)))) == digest(calling(("f", again)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "developer", "content": "x"}, {"role": "system", "content": "x"}),
        ({"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "user", "content": "x"}),
        ({"role": "tool", "tool_call_id": "1", "content": "x"}, {"role": "tool", "tool_call_id": "2", "content": "x"}),
        ({"role": "assistant", "content": None}, {"role": "assistant", "content": ""}),
        ({"role": "assistant", "content": None}, {"role": "assistant"}),
        (calling(("f", "{}")), {**calling(("f", "{}")), "content": "", "reasoning_content": "hm", "refusal": None}),
        (calling(("f", "{}")), calling(("f", ""))),
        (calling(("f", '{"n": 1.0}')), calling(("f", '{"n": 1}'))),  # JSON.parse and back in JavaScript
        (calling(("f", '{"n": 1e2}')), calling(("f", '{"n": 100}'))),
    ],
)
def test_what_frameworks_rewrite_does_not_count(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(one) == digest(other)


def image(data: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}),
        ({"role": "user", "content": "x"}, {"role": "user", "content": "x "}),
        ({"role": "user", "content": "a\nb"}, {"role": "user", "content": [{"type": "text", "text": t} for t in "ab"]}),
        (image("A" * 100_000), image("A" * 99_999 + "B")),
        (calling(("f", "{}"), ("g", "{}")), calling(("g", "{}"), ("f", "{}"))),
        (calling(("f", '{"a": 1}')), calling(("f", '{"a": "1"}'))),
        (calling(("f", '{"a": 1}')), calling(("f", '{"a": true}'))),
        (calling(("f", '{"a": 1}')), calling(("f", '{"a": 1.5}'))),
        (calling(("f", "{")), calling(("f", "{]"))),
        (calling(("f", "{")), {"role": "assistant", "content": None}),
        ({"role": "user", "name": "alice", "content": "x"}, {"role": "user", "name": "bob", "content": "x"}),
    ],
)
def test_what_was_said_otherwise_is_another_conversation(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(one) != digest(other)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": 5, "content": {"a": 1}},
        {"role": "user", "content": [None, 5, "x", {"type": "text"}, {"type": "text", "text": 5}]},
        {"role": "user", "content": "lone \ud800 surrogate"},
        {"role": "user", "content": [{"type": "x", "y": "\udfff"}]},
        {"role": "assistant", "tool_calls": [None, 5, {}, {"function": None}, {"function": {"name": 5}}]},
        {"role": "assistant", "tool_calls": {"a": 1}},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]},
    ],
)
def test_odd_messages_have_a_digest(message: dict[str, Any]) -> None:
    assert digest(message) == digest(message)
    assert len(digest(message)) == 16
    assert isinstance(calls_of(message), list)


def test_calls_and_ids_are_found() -> None:
    message = calling(("f", '{"a": 1}'), ("g", "broken"), ("h", ""))
    assert calls_of(message) == [ToolCall("f", {"a": 1}, "c0"), ToolCall("h", {}, "c2")]
    assert read_message(message)[0].made == {"c0", "c1", "c2"}
    results = [{"role": "tool", "tool_call_id": "c1"}, {"role": "tool"}, {"role": "user"}]
    assert rules.answered_ids(said(results)) == ["c1"]


def test_depth_counts_calls_since_the_user_spoke() -> None:
    asked, called, result = {"role": "user"}, calling(("f", "{}")), {"role": "tool"}
    assert rules.depth([]) == 0
    assert rules.depth(said([asked])) == 0
    assert rules.depth(said([called, asked, called, result, called, result])) == 2


LEAVES = st.sampled_from([None, True, False, 0, 1, 2, 0.0, -0.0, 1.0, 1.5, "", "1", "a"])
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner))


@given(VALUES, VALUES)
def test_the_same_json_is_what_is_written_the_same(one: Any, other: Any) -> None:
    for left, right in ((one, other), (one, one), (other, one)):
        written = [canonical_json(rules.plain_numbers(value)) for value in (left, right)]
        assert rules.same_json(left, right) == (written[0] == written[1])
