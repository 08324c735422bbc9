"""What a probe's stream says: confidences by hand, and nothing that an endpoint sends may raise."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.speculators.probe_answer import ProbeAnswer, Token, read_call

OPENING = '{"name": "'

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
names = st.text("abc_09-é.", min_size=1, max_size=8)


def cut(text: str, at: list[int], logprob: float | None = -0.1) -> list[Token]:
    cuts = [0, *sorted({c for c in at if 0 < c < len(text)}), len(text)]
    return [Token(text[a:b], logprob) for a, b in pairwise(cuts)]


def events(*payloads: Any) -> bytes:
    return b"".join(b"data: " + json.dumps(payload).encode() + b"\n\n" for payload in payloads)


def said(content: Any, *told: tuple[str, float]) -> dict[str, Any]:
    logprobs = {"content": [{"token": token, "logprob": logprob} for token, logprob in told]} if told else None
    return {"choices": [{"index": 0, "delta": {"content": content}, "logprobs": logprobs}]}


def read(*payloads: Any) -> ProbeAnswer:
    answer = ProbeAnswer()
    answer.feed(events(*payloads))
    answer.finish()
    return answer


@given(
    name=names,
    arguments=st.dictionaries(st.text(max_size=5), json_values, max_size=3),
    at=st.lists(st.integers(1, 60), max_size=20),
    after=st.sampled_from(["", "\n", " }", "}}", "\n```", '\n{"name": "other", "arguments": {}}', "<|im_end|>"]),
    indent=st.sampled_from([None, 1]),
)
@example(name="f", arguments={}, at=[], after="}}", indent=None)
def test_the_call_is_read_however_the_text_was_cut(
    name: str, arguments: dict[str, Any], at: list[int], after: str, indent: int | None
) -> None:
    text = f'{name}", "arguments": {json.dumps(arguments, indent=indent)}}}{after}'
    found = read_call(OPENING, cut(text, at))
    assert found is not None
    assert found[0] == ToolCall(name, arguments)
    assert 0.0 <= found[1] <= 1.0
    assert 0.0 <= found[2] <= 1.0


@given(at=st.lists(st.integers(1, 60), max_size=20), length=st.integers(0, 50))
def test_half_a_call_is_no_call(at: list[int], length: int) -> None:
    whole = 'get_order", "arguments": {"order_id": "}A1"}}'
    assert read_call(OPENING, cut(whole[: min(length, len(whole) - 1)], at)) is None


@pytest.mark.parametrize(
    ("tokens", "name", "arguments"),
    [
        ([("get", -0.1), ("_order", -0.2), ('", "', -0.3), ('arguments": {}}', -0.4)], -0.6, -0.4),
        ([("get_order", -0.5), ('", "arguments": {', -0.25), ('"a": ', -1.0), ("1}}", -2.0)], -0.75, -3.0),
        ([('get_order", "arguments": {"a": 1}}', -0.7)], -0.7, 0.0),
        ([("g", -1), ("et_order", None), ('", "arguments": {"a": ', None), ("1}}", -2)], -1.0, -2.0),
        ([("get_order", 0.5), ('", "arguments": ', 0.5), ("{}}", -math.inf)], 0.0, -math.inf),
        ([("get_order", None), ('", "arguments": ', None), ("{}}", None)], math.log(0.6), 0.0),
        ([("get_order", -0.1), ('", "arguments": ', -0.1), ("{}}", -0.1), (" more", -9.0)], -0.2, -0.1),
    ],
)
def test_confidences_are_the_products_over_name_and_arguments(
    tokens: list[tuple[str, float | None]], name: float, arguments: float
) -> None:
    found = read_call(OPENING, [Token(text, logprob) for text, logprob in tokens])
    assert found is not None
    assert found[0].name == "get_order"
    assert found[1:] == pytest.approx((math.exp(name), math.exp(arguments)))


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ('a", "parameters": {"x": 1}}', ToolCall("a", {"x": 1})),
        ('a", "arguments": "{\\"x\\": 1}"}', ToolCall("a", {"x": 1})),
        ('a", "arguments": ""}', ToolCall("a", {})),
        ('caf\\u00e9", "arguments": {}}', ToolCall("café", {})),
        ('a\\"b", "arguments": {}}', ToolCall('a"b', {})),
        ('a", "name": "b", "arguments": {}}', ToolCall("b", {})),
        ('arguments", "arguments": {"arguments": 1}}', ToolCall("arguments", {"arguments": 1})),
    ],
)
def test_other_ways_to_write_a_call(text: str, call: ToolCall) -> None:
    found = read_call(OPENING, cut(text, list(range(len(text)))))
    assert found is not None
    assert found[0] == call


@pytest.mark.parametrize(
    "text",
    ["", "}", '"}', 'a"}', 'a", "arguments": null}', 'a", "arguments": []}', 'a", "arguments": "x"}', '", 1}', "a'}\n"],
)
def test_what_is_no_call_is_none(text: str) -> None:
    assert read_call(OPENING, cut(text, [])) is None


def test_log_probabilities_that_come_in_chunks_belong_to_their_tokens() -> None:
    answer = read(
        said('a", "', ("a", -0.1), ('", "', -0.2)), said('arguments": {}}', ("arg", -1), ('uments": {}}', -2))
    )
    assert [(token.text, token.logprob) for token in answer.tokens] == [
        ("a", -0.1),
        ('", "', -0.2),
        ("arg", -1.0),
        ('uments": {}}', -2.0),
    ]


def test_log_probabilities_that_fit_no_text_are_summed_and_missing_ones_are_unknown() -> None:
    answer = read(said("é", ("bytes:\\xc3", -1.0), ("bytes:\\xa9", -0.5)), said("x"))
    assert [(token.text, token.logprob) for token in answer.tokens] == [("é", -1.5), ("x", None)]


def test_usage_is_taken_as_told() -> None:
    answer = read(said("a"), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    assert (answer.prompt_tokens, answer.completion_tokens) == (7, 3)


def test_tool_calls_are_put_together_by_index() -> None:
    def part(*calls: dict[str, Any]) -> dict[str, Any]:
        return {"choices": [{"delta": {"tool_calls": list(calls)}}]}

    answer = read(
        part({"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}),
        part({"index": 1, "function": {"name": "g", "arguments": '{"b"'}}),
        part({"index": 0, "function": {"arguments": '{"a":1}'}}, {"index": 1, "function": {"arguments": ":2}"}}),
    )
    assert [(call.name, call.arguments) for call in answer.calls.values()] == [("f", '{"a":1}'), ("g", '{"b":2}')]


GARBAGE: list[Any] = [
    None,
    [],
    5,
    {"choices": 5},
    {"choices": "x"},
    {"choices": [None, 1, "x", {}]},
    {"choices": [{"delta": 5}]},
    {"choices": [{"delta": {"content": ["x"], "tool_calls": 5}, "logprobs": 5}]},
    {"choices": [{"delta": {"content": ""}, "logprobs": {"content": [{"logprob": -1}]}}]},
    {"choices": [{"delta": {"content": "x"}, "logprobs": {"content": [{"token": 5, "logprob": "a"}]}}]},
    {"choices": [{"delta": {"content": "x"}, "logprobs": {"content": [{"token": "x", "logprob": 10**400}]}}]},
    {"choices": [{"delta": {"tool_calls": [None, {"function": None}, {"index": "a", "function": {"name": 5}}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}]}}]},
    {"choices": [{"delta": {"tool_calls": {"index": 0}}}]},
    {"usage": {"prompt_tokens": "x", "completion_tokens": None}},
    {"usage": {"prompt_tokens": -5, "completion_tokens": 1.5}},
    {"error": {"message": "no"}},
]


@pytest.mark.parametrize("payload", GARBAGE, ids=range(len(GARBAGE)))
def test_no_payload_raises(payload: Any) -> None:
    answer = read(payload, said("after"))
    assert answer.text.endswith("after")


@pytest.mark.parametrize("raw", [b"data: {\n\n", b"\xff\xfe", b"<html>", b"data: " + b"[" * 100_000 + b"\n\n"])
def test_no_bytes_raise(raw: bytes) -> None:
    answer = ProbeAnswer()
    answer.feed(raw)
    answer.finish()
    assert answer.text == ""


FIELDS = ["choices", "delta", "content", "tool_calls", "function", "logprobs", "usage", "token", "logprob", "name"]
odd_answers = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)


@given(payloads=st.lists(odd_answers, max_size=3))
def test_json_of_any_shape_raises_nothing(payloads: list[Any]) -> None:
    answer = read(*payloads)
    read_call(OPENING, answer.tokens)
