"""Thinking is told apart whatever way it arrives, and no grammar reaches into it."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.verifier.server.after_thinking import AfterThinking
from agentspec.verifier.server.deltas import Delta, ReasoningDelta, TextDelta
from agentspec.verifier.server.reasoning import CLOSE, OPEN, ThinkSplitter
from agentspec.verifier.server.service import Service
from agentspec.verifier.verification.grammar import CallRules
from tests.verifier.server.asks import MESSAGES, PARAMETERS, TOOLS, WEATHER, chunks

PLAIN = st.text(st.characters(exclude_characters="<"), max_size=20)


def split(text: str, sizes: list[int], *, opened: bool) -> tuple[str, str, list[Delta]]:
    splitter = ThinkSplitter(opened=opened)
    deltas: list[Delta] = []
    rest = text
    for size in sizes:
        deltas += splitter.feed(rest[:size])
        rest = rest[size:]
    deltas += splitter.feed(rest) + splitter.end()
    thought = "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta))
    return thought, "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)), deltas


@given(PLAIN, PLAIN, st.booleans(), st.lists(st.integers(1, 5), max_size=30))
def test_thinking_and_text_are_told_apart_in_any_chunking(
    thought: str, said: str, opened: bool, sizes: list[int]
) -> None:
    written = ("" if opened else f"{OPEN}\n") + f"{thought}\n{CLOSE}\n\n{said}"
    assert split(written, sizes, opened=opened)[:2] == (thought.strip("\n"), said.lstrip("\n"))


@given(st.text("<think>/\n a", max_size=40), st.booleans(), st.lists(st.integers(0, 3), max_size=40))
def test_whatever_comes_the_chunking_changes_nothing(text: str, opened: bool, sizes: list[int]) -> None:
    assert split(text, sizes, opened=opened)[:2] == split(text, [], opened=opened)[:2]


@given(st.text(max_size=40).filter(lambda text: not text.lstrip().startswith(OPEN)), st.lists(st.integers(0, 3)))
def test_an_answer_without_thinking_is_untouched(text: str, sizes: list[int]) -> None:
    assert split(text, sizes, opened=False)[:2] == ("", text)


def test_thinking_streams_and_holds_back_only_a_possible_end() -> None:
    splitter = ThinkSplitter(opened=True)
    assert splitter.feed("\nI look") == [ReasoningDelta("I look")]
    assert splitter.feed(" up.\n</th") == [ReasoningDelta(" up.")]
    assert splitter.thinking
    assert splitter.feed("ink>\n\nHere") == [TextDelta("Here")]
    assert not splitter.thinking


def test_thinking_that_does_not_end_is_all_thinking() -> None:
    assert split("on and on </thin", [3] * 9, opened=True)[:2] == ("on and on </thin", "")


@pytest.fixture(scope="module")
def constraint(thinking: Service) -> Any:
    def make(opener: int | None) -> AfterThinking:
        rules = CallRules(tuple(tool["function"] for tool in TOOLS), text=False, required=True, parallel=False)
        return AfterThinking(thinking.grammar.constraint(rules), thinking.text, opener)

    return make


def test_a_grammar_waits_for_the_end_of_the_thinking(thinking: Service, constraint: Any) -> None:
    after: AfterThinking = constraint(None)
    for token in thinking.text.encode('any {"name": "nonsense'):
        assert after.allowed() is None and after.forced() == [] and not after.finished()
        after.advance(token)
    after.advance(thinking.text.encode(CLOSE)[0])
    spelled = b"".join(map(thinking.text.piece, after.forced()))
    assert b'{"name": "'.startswith(spelled) or spelled.startswith(b'{"name": "')
    for token in thinking.text.encode('{"name": "ping", "arguments": {}}'):
        assert bool(after.allowed()[token])
        after.advance(token)
    assert after.finished()


def test_an_answer_may_open_its_thinking_itself_or_not_think(thinking: Service, constraint: Any) -> None:
    (opener,) = thinking.text.encode(OPEN)
    thinks: AfterThinking = constraint(opener)
    allowed = thinks.allowed()
    assert allowed is not None and bool(allowed[opener]) and not bool(allowed[thinking.text.encode("x")[0]])
    thinks.advance(opener)
    assert thinks.allowed() is None
    calls: AfterThinking = constraint(opener)
    for token in thinking.text.encode('{"name": "ping", "arguments": {}}'):
        calls.advance(token)
    assert calls.finished()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_what_is_taken_back_has_never_been(thinking: Service, constraint: Any, seed: int) -> None:
    rng = random.Random(seed)
    (opener,) = thinking.text.encode(OPEN)
    written = thinking.text.encode(
        f'{OPEN}hm{CLOSE}{{"name": "get_weather", "arguments": {{"city": "Rom", "days": 2}}}}'
    )
    straight, wavering = constraint(opener), constraint(opener)
    for index, token in enumerate(written):
        ahead = written[index : index + rng.randrange(5)]
        good = wavering.valid_prefix(ahead)
        for drafted in ahead[:good]:
            wavering.advance(drafted)
        wavering.rollback(good)
        for one in (straight, wavering):
            one.advance(token)
        masks = straight.allowed(), wavering.allowed()
        assert (masks[0] is None) == (masks[1] is None)
        assert masks[0] is None or bool((masks[0] == masks[1]).all())
    assert straight.finished() and wavering.finished()


def ask(http: httpx.Client, **body: Any) -> Any:
    answer = http.post("/v1/chat/completions", json={"messages": MESSAGES, "temperature": 0, **body}).json()
    return answer["choices"][0], answer["usage"]


def test_what_the_template_opened_is_reasoning(thinking: Service, thinking_http: httpx.Client) -> None:
    (letter,) = thinking.text.encode("a")
    choice, usage = ask(thinking_http, max_tokens=9, logit_bias={str(letter): 100})
    message = choice["message"]
    assert message["reasoning_content"] == message["reasoning"] == "a" * 9 and message["content"] == ""
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 9
    choice, usage = ask(
        thinking_http, max_tokens=9, logit_bias={str(letter): 100}, chat_template_kwargs={"enable_thinking": False}
    )
    assert choice["message"]["content"] == "a" * 9 and "reasoning_content" not in choice["message"]
    assert usage["completion_tokens_details"]["reasoning_tokens"] == 0


def test_streamed_reasoning_has_its_own_field(thinking: Service, thinking_http: httpx.Client) -> None:
    (letter,) = thinking.text.encode("a")
    body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 5, "logit_bias": {str(letter): 100}, "stream": True}
    deltas = [c["choices"][0]["delta"] for c in chunks(thinking_http.post("/v1/chat/completions", json=body).text)]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "aaaaa"
    assert "".join(delta.get("content") or "" for delta in deltas) == ""


@pytest.mark.parametrize("choice", [WEATHER, "required"])
def test_a_forced_call_comes_after_the_thinking(thinking: Service, thinking_http: httpx.Client, choice: Any) -> None:
    (end,) = thinking.text.encode(CLOSE)
    body = {"tools": TOOLS, "tool_choice": choice, "max_tokens": 200, "logit_bias": {str(end): 30}}
    answered, _ = ask(thinking_http, **body)
    if answered["finish_reason"] == "length":
        assert choice == "required"  # text may come before the call, and random weights write it for ever
        return
    (call,) = answered["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), {"type": "object"})
    if choice is WEATHER:
        jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS)


def test_reasoning_is_an_item_of_a_response(thinking: Service, thinking_http: httpx.Client) -> None:
    (end,) = thinking.text.encode(CLOSE)
    (letter,) = thinking.text.encode("a")
    asked = {"input": "x", "temperature": 0, "max_output_tokens": 6, "logit_bias": {str(letter): 100}}
    answer = thinking_http.post("/v1/responses", json=asked).json()
    (item,) = answer["output"]
    assert item["type"] == "reasoning" and item["content"] == [{"type": "reasoning_text", "text": "aaaaaa"}]
    assert answer["usage"]["output_tokens_details"]["reasoning_tokens"] == 6
    asked["logit_bias"] = {str(end): 100}
    kinds = [
        event["type"] for event in chunks(thinking_http.post("/v1/responses", json={**asked, "stream": True}).text)
    ]
    assert kinds[2:4] == ["response.output_item.added", "response.content_part.added"]


def test_a_probe_closes_the_thinking_that_the_template_opened(thinking_http: httpx.Client) -> None:
    for begun in ('{"name": "', '<think>\nI look.\n</think>\n\n{"name": "'):
        body = {"messages": [*MESSAGES, {"role": "assistant", "content": begun}], "continue_final_message": True}
        answered, _ = ask(thinking_http, **body, tools=TOOLS, max_tokens=200)
        assert json.loads('{"name": "' + answered["message"]["content"])["name"] in ("get_weather", "ping")
