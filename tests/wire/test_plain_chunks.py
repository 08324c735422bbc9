"""A chunk of chat text is read the short way; whatever it holds, it says the same as when it is read whole."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentspec.events import ReasoningDelta, TextDelta, TurnEvent
from agentspec.wire.chat import ChatStream
from tests.wire.say_chat import chunk


class ReadWhole(ChatStream):
    def _plain(self, text: str) -> list[TurnEvent] | None:
        return None


odd = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 2), st.floats(0, 2), st.text(max_size=3), st.just([]), st.just({})
)
calls = st.lists(
    st.fixed_dictionaries({"index": st.integers(0, 1), "function": st.just({"name": "f", "arguments": "{}"})})
)
deltas = st.fixed_dictionaries(
    {},
    optional={
        "role": st.just("assistant"),
        "content": st.one_of(st.text(max_size=5), odd),
        "reasoning": st.one_of(st.text(max_size=5), odd),
        "reasoning_content": st.one_of(st.text(max_size=5), odd),
        "tool_calls": st.one_of(calls, odd),
        "function_call": st.one_of(st.just({"name": "f", "arguments": "{}"}), odd),
        "refusal": odd,
    },
)
choices = st.fixed_dictionaries(
    {"delta": st.one_of(deltas, odd)},
    optional={"index": odd, "finish_reason": st.one_of(st.just("stop"), odd), "logprobs": odd},
)
chunks = st.fixed_dictionaries(
    {"choices": st.one_of(st.lists(st.one_of(choices, odd), max_size=2), odd)},
    optional={"usage": st.one_of(st.just({"prompt_tokens": 1, "completion_tokens": 2}), odd), "type": odd},
)


@given(said=st.lists(chunks, max_size=4))
def test_it_says_the_same_as_read_whole(said: list[dict[str, Any]]) -> None:
    short, whole = ChatStream(), ReadWhole()
    for one in said:
        frame = b"data: " + json.dumps(one).encode() + b"\n\n"
        assert short.feed(frame) == whole.feed(frame)
    assert short.finish() == whole.finish()


def test_text_and_reasoning_are_read_the_short_way() -> None:
    stream = ChatStream()
    assert stream._plain(json.dumps(chunk({"content": "a", "tool_calls": None}))) == [TextDelta("a")]
    assert stream._plain(json.dumps(chunk({"reasoning": "b"}))) == [ReasoningDelta("b")]
    assert stream._plain(json.dumps(chunk({"content": "a"}, finish="stop"))) is None
