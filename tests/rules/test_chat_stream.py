"""A chat stream told as turn events: the same wherever it was cut, whatever the endpoint's habits."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.calls import ToolCall
from agentspec.errors import RequestError
from agentspec.events import (
    CallComplete,
    CallFragment,
    CallNamed,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnEvent,
    Usage,
)
from agentspec.wire.chat import ChatStream, read_answer, read_request


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta if delta is not None else {}, "logprobs": None, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice], **more}


def call(index: int | None, arguments: str, name: str | None = None, id: str | None = None) -> dict[str, Any]:
    part: dict[str, Any] = {"function": {"arguments": arguments, **({"name": name} if name else {})}}
    if index is not None:
        part["index"] = index
    return part | ({"id": id, "type": "function"} if id is not None else {})


def raw(*payloads: Any, end: str = "\n\n") -> bytes:
    lines = [p if isinstance(p, str) else "data: " + json.dumps(p, ensure_ascii=False) for p in payloads]
    return "".join(line + end for line in lines).encode()


def tell(data: bytes, cuts: list[int] | None = None) -> list[TurnEvent]:
    stream = ChatStream()
    marks = [0, *sorted(cut % (len(data) + 1) for cut in cuts or []), len(data)]
    events = [event for a, b in pairwise(marks) for event in stream.feed(data[a:b])]
    return events + stream.finish()


def made(events: list[TurnEvent]) -> list[tuple[str, dict[str, Any] | None]]:
    complete = [event for event in events if isinstance(event, CallComplete)]
    return [(event.name, event.call.arguments if event.call else None) for event in complete]


RECORDED = raw(
    chunk({"role": "assistant", "content": None, "reasoning_content": "Beide Städte\u2028"}),
    ": keep-alive",
    chunk({"reasoning": "second", "reasoning_details": [{"x": 1}]}),
    chunk({"content": "Looking ", "refusal": None}, service_tier="x", system_fingerprint=None),
    chunk({"tool_calls": [call(0, "", "weather", "a")]}),
    chunk({"tool_calls": [call(1, "", "weather", "b"), call(0, '{"city": "Zürich {')]}),
    "data: {this is broken",
    "event: ping\ndata: {}",
    chunk({"tool_calls": [call(1, '{"city": "O\\"s')]}),
    chunk({"tool_calls": [call(0, '}", "days": [1'), call(1, 'lo}"')]}),
    chunk({"tool_calls": [call(1, "}")]}),
    chunk({"tool_calls": [call(0, ', {"x": {}}]}')]}),
    chunk({}, "tool_calls", logprobs={"content": [{"token": "}", "logprob": -0.1}]}),
    {"id": "x", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}},
    "data: [DONE]",
)


@given(cuts=st.lists(st.integers(0, 10_000), max_size=30))
def test_cuts_change_nothing(cuts: list[int]) -> None:
    assert tell(RECORDED, cuts) == tell(RECORDED)


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r"])
def test_a_recorded_stream_is_told_in_order(end: str) -> None:
    events = tell(RECORDED.replace(b"\n\n", end.encode()))
    assert events == tell(RECORDED)
    assert [event for event in events if not isinstance(event, CallFragment)] == [
        ReasoningDelta("Beide Städte\u2028"),
        ReasoningDelta("second"),
        TextDelta("Looking "),
        CallNamed(0, "weather", "a"),
        CallNamed(1, "weather", "b"),
        CallComplete(1, "weather", ToolCall("weather", {"city": 'O"slo}'}, "b")),
        CallComplete(0, "weather", ToolCall("weather", {"city": "Zürich {}", "days": [1, {"x": {}}]}, "a")),
        TurnEnd("tool_calls"),
        Usage(12, 7),
    ]


arguments = st.dictionaries(st.text('ab{}[]"\\', max_size=3), st.text('x{}[]"\\é\u2028', max_size=5), max_size=3)


@given(data=st.data(), wanted=st.lists(arguments, min_size=1, max_size=3), by_index=st.booleans())
def test_a_call_is_known_when_its_json_closes_and_not_before(
    data: st.DataObject, wanted: list[dict[str, str]], by_index: bool
) -> None:
    stream, done = ChatStream(), []
    for number, value in enumerate(wanted):
        index, identity = (number, f"c{number}") if by_index else (None, f"c{number}")
        stream.feed(raw(chunk({"tool_calls": [call(index, "", "f", identity)]})))
        text = json.dumps(value)
        cuts = sorted({data.draw(st.integers(0, len(text) - 1)) for _ in range(3)} | {0, len(text) - 1})
        for a, b in pairwise(cuts):
            assert made(stream.feed(raw(chunk({"tool_calls": [call(index, text[a:b])]})))) == []
        done += made(stream.feed(raw(chunk({"tool_calls": [call(index, text[-1:])]}))))
        assert done[-1:] == [("f", value)]
    assert made(stream.finish()) == []
    assert done == [("f", value) for value in wanted]


def test_a_call_that_comes_whole_in_one_piece_is_complete_at_once() -> None:
    events = ChatStream().feed(raw(chunk({"tool_calls": [call(0, '{"a": 1}', "f", "x"), call(1, "{}", "g", "y")]})))
    assert made(events) == [("f", {"a": 1}), ("g", {})]


@pytest.mark.parametrize("identity", ["", None])
def test_whole_calls_without_index_and_id_are_several_calls(identity: str | None) -> None:
    one, two = call(None, '{"a": 1}', "f", identity), call(None, '{"a": 2}', "f", identity)
    assert made(tell(raw(chunk({"tool_calls": [one, two]}, "tool_calls")))) == [("f", {"a": 1}), ("f", {"a": 2})]
    assert made(tell(raw(chunk({"tool_calls": [one]}), chunk({"tool_calls": [two]})))) == [
        ("f", {"a": 1}),
        ("f", {"a": 2}),
    ]


def test_calls_that_all_have_index_0_are_told_apart_by_their_ids() -> None:
    parts = [call(0, '{"a": 1}', "read", "x"), call(0, "", "write", "y"), call(0, '{"b": 2}')]
    events = tell(raw(*(chunk({"tool_calls": [part]}) for part in parts)))
    assert [event.name for event in events if isinstance(event, CallNamed)] == ["read", "write"]
    assert made(events) == [("read", {"a": 1}), ("write", {"b": 2})]


def test_an_id_repeated_in_every_fragment_is_one_call() -> None:
    parts = [call(None, "{", "f", "x"), call(None, '"a"', None, "x"), call(None, ": 1}", None, "x")]
    assert made(tell(raw(*(chunk({"tool_calls": [part]}) for part in parts)))) == [("f", {"a": 1})]


def test_a_name_repeated_in_every_fragment_is_one_call() -> None:
    parts = [call(0, "{", "f", "x"), call(0, '"a"', "f", "x"), call(0, ": 1}", "f", "x")]
    events = tell(raw(*(chunk({"tool_calls": [part]}) for part in parts)))
    assert [event for event in events if isinstance(event, CallNamed)] == [CallNamed(0, "f", "x")]
    assert made(events) == [("f", {"a": 1})]


@pytest.mark.parametrize("text", ["{", "", "null", '{"a": 1', "[1]", "x"])
def test_a_call_that_never_closed_is_told_at_the_end_of_the_turn(text: str) -> None:
    events = tell(raw(chunk({"tool_calls": [call(0, text, "f", "x")]}), chunk({}, "tool_calls")))
    assert made(events) == [("f", {} if text == "" else None)]
    assert events[-1] == TurnEnd("tool_calls")


def test_a_stream_that_broke_off_after_a_name_made_no_call_without_arguments() -> None:
    assert made(tell(raw(chunk({"tool_calls": [call(0, "", "delete_all", "x")]})))) in ([], [("delete_all", None)])


def test_the_turn_ends_once() -> None:
    for tail in ([], ["data: [DONE]"], [chunk({}, "stop"), "data: [DONE]"]):
        events = tell(raw(chunk({"content": "a"}), chunk({}, "stop"), *tail))
        assert [event for event in events if isinstance(event, TurnEnd)] == [TurnEnd("stop")]
    assert tell(b"") == [TurnEnd(None)]


def test_other_choices_are_not_this_answer() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "stop"}]}
    assert tell(raw(other, chunk({"content": "yes"}))) == [TextDelta("yes"), TurnEnd(None)]


@pytest.mark.parametrize(
    "payload",
    [
        5,
        None,
        [],
        {"choices": None},
        {"choices": [None, 5]},
        {"choices": [{"delta": None}, {"delta": {"content": 5, "tool_calls": 5}}]},
        {"choices": [{"delta": {"tool_calls": [None, {"index": "x"}, {"function": 5}, {"function": {"name": 5}}]}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": None, "id": 5, "function": {"arguments": {"a": 1}}}]}}]},
        {"choices": [{"delta": {"reasoning": {"x": 1}}, "finish_reason": 5}]},
        {"choices": [], "usage": {"prompt_tokens": "x"}},
        {"usage": 5, "error": {"message": "overloaded"}},
    ],
)
def test_nothing_that_an_endpoint_sends_raises(payload: Any) -> None:
    events = tell(raw(payload, chunk({"content": "after"}), chunk({"tool_calls": [call(0, "{}", "f", "x")]})))
    assert TextDelta("after") in events
    assert ("f", {}) in made(events)
    assert isinstance(read_answer(json.dumps(payload).encode()), list)


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\n\n", b"data: " + b"[" * 100_000 + b"\n\n", b"<html>\n\n", b"data: \xed\xa0\x80\n\n"]
)
def test_no_bytes_raise(data: bytes) -> None:
    assert tell(data + raw(chunk({"content": "after"})))[-2:] == [TextDelta("after"), TurnEnd(None)]
    assert read_answer(data) == []


def test_a_whole_answer_tells_the_same_as_a_stream() -> None:
    functions = [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]
    message = {"role": "assistant", "content": "x", "reasoning": "r", "tool_calls": functions}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": {"prompt_tokens": 1}}
    assert read_answer(json.dumps(body).encode()) == [
        ReasoningDelta("r"),
        TextDelta("x"),
        CallNamed(0, "f", "a"),
        CallFragment(0, '{"a": 1}'),
        CallComplete(0, "f", ToolCall("f", {"a": 1}, "a")),
        TurnEnd("tool_calls"),
        Usage(1, 0),
    ]


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"{'a': 1}"])
def test_broken_json_is_the_requests_fault(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_request(body)
    assert (caught.value.status, caught.value.code) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"accepted_prediction_tokens": 5, "rejected_prediction_tokens": 2}, (7, 5)),
        ({"accepted_prediction_tokens": 5}, (None, None)),
        ({"reasoning_tokens": 1}, (None, None)),
        (None, (None, None)),
        ("x", (None, None)),
    ],
)
def test_drafted_and_accepted_tokens_are_read_where_they_are_counted(details: Any, told: Any) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 9, "completion_tokens_details": details}
    (event,) = [one for one in tell(raw({"choices": [], "usage": usage})) if isinstance(one, Usage)]
    assert event == Usage(1, 9, *told)
