"""From tokens to deltas: however tokens cut the bytes of an answer, it says the same."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentspec.verifier.server.answer import Choice
from agentspec.verifier.server.assembler import Assembler
from agentspec.verifier.server.reasoning import ThinkSplitter
from agentspec.verifier.server.toolcalls import ToolCallParser

CALL = '{"name": "ping", "arguments": {"a": "é}"}}'
TEXTS = ["\n", "grün ", "你好", "😀", "STOP", "ST", "x", "\udce9"]
MARKS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<function=ping>", "</function>", "```json\n", "```"]
PARTS = st.sampled_from([*TEXTS, *MARKS, CALL, "[ping(a='ü')]"])


def said(raw: bytes, cuts: list[int], *, opened: bool, whole: bool) -> tuple[Any, ...]:
    ends = sorted({min(cut, len(raw)) for cut in cuts} | {len(raw)})
    pieces = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    parser = ToolCallParser({"ping": {}})
    splitter = ThinkSplitter(opened=opened)
    choice = Choice(0, Assembler(pieces.__getitem__, ("STOP",), splitter=splitter, parser=parser))
    for token in range(len(pieces)):
        choice.take(choice.assembler.feed(token))
        if choice.assembler.stopped:
            break
    choice.take(choice.assembler.end(whole=whole))
    return choice.text, choice.reasoning, [(call.name, call.arguments) for call in choice.calls]


@given(st.lists(PARTS, max_size=12), st.lists(st.integers(0, 150), max_size=40), st.booleans(), st.booleans())
def test_tokens_may_cut_an_answer_anywhere(parts: list[str], cuts: list[int], opened: bool, whole: bool) -> None:
    raw = "".join(parts).encode(errors="surrogateescape")  # the lone byte is no UTF-8, as models write it at times
    assert said(raw, cuts, opened=opened, whole=whole) == said(raw, [], opened=opened, whole=whole)


def test_thinking_text_and_calls_come_in_their_places() -> None:
    raw = b'<think>\nhm\n</think>\n\nPlan.\n{"name": "ping", "arguments": {}}'
    assert said(raw, list(range(80)), opened=False, whole=True) == ("Plan.", "hm", [("ping", "{}")])


def test_a_call_inside_the_thinking_is_none() -> None:
    raw = b'I could {"name": "ping", "arguments": {}} </think> No.'
    assert said(raw, [], opened=True, whole=True) == (" No.", 'I could {"name": "ping", "arguments": {}} ', [])
