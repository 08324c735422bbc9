"""Whatever is picked among the allowed tokens, the calls parse, name a given tool, and fit its schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.errors import RequestError
from agentspec.verifier.server.toolcalls import CallArguments, CallStart, ToolCallParser
from agentspec.verifier.text import Text
from agentspec.verifier.verification.grammar import CallRules, GrammarConstraint, GrammarFactory

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"type": "integer", "maximum": 99}},
        "required": ["city"],
    },
}
FLAG = {
    "name": "set-flag",
    "parameters": {
        "type": "object",
        "properties": {
            "on": {"type": "boolean"},
            "tags": {"type": "array", "items": {"enum": ["a", 'é"b']}, "maxItems": 2},
        },
        "required": ["on"],
    },
}
BARE = {"name": "ping"}


@pytest.fixture(scope="module")
def factory(text: Text) -> GrammarFactory:
    size = -(-len(text.tokenizer) // 32) * 32
    return GrammarFactory(text, vocab_size=size, eos_ids=[text.tokenizer.eos_token_id])


def walk(constraint: GrammarConstraint, text: Text, rng: random.Random, *, most: int = 400) -> tuple[str, bool]:
    """Generate by picking any allowed token; the text, and whether it ended by itself."""
    eos = text.tokenizer.eos_token_id
    raw = b""
    for _ in range(most):
        allowed = constraint.allowed().nonzero().flatten().tolist()
        assert allowed
        token = eos if eos in allowed and rng.random() < 0.5 else rng.choice(allowed)
        if token == eos:
            return raw.decode(), True
        raw += text.piece(token)
        constraint.advance(token)
        if constraint.finished():
            return raw.decode(), True
    return raw.decode(errors="replace"), False


def calls_in(answer: str) -> list[tuple[str, str]]:
    parser = ToolCallParser()
    calls: list[tuple[str, str]] = []
    for delta in parser.feed(answer) + parser.end():
        if isinstance(delta, CallStart):
            calls.append((delta.name, ""))
        elif isinstance(delta, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + delta.fragment)
    return calls


def check(calls: list[tuple[str, str]], tools: list[dict[str, Any]]) -> None:
    schemas = {tool["name"]: tool.get("parameters", {"type": "object"}) for tool in tools}
    for name, arguments in calls:
        jsonschema.validate(json.loads(arguments), schemas[name])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.booleans(), st.sampled_from([[WEATHER, FLAG, BARE], [FLAG], [WEATHER]]))
def test_every_walk_is_a_list_of_valid_calls(
    factory: GrammarFactory, text: Text, seed: int, parallel: bool, tools: list[dict[str, Any]]
) -> None:
    rules = CallRules(tuple(tools), text=False, required=True, parallel=parallel)
    answer, ended = walk(factory.constraint(rules), text, random.Random(seed))
    if not ended:
        return
    calls = calls_in(answer)
    check(calls, tools)
    assert len(calls) >= 1 and (parallel or len(calls) == 1)
    assert [json.loads(line)["name"] for line in answer.split("\n")] == [name for name, _ in calls]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1 << 30))
def test_free_text_stays_free_until_a_call_opens(factory: GrammarFactory, text: Text, seed: int) -> None:
    constraint = factory.constraint(CallRules((WEATHER, FLAG)))
    assert constraint.accept_text(text.encode('Plan: any {"text": 1} at all.\n{"name": "'))
    answer, ended = walk(constraint, text, random.Random(seed))
    if ended:
        calls = calls_in('{"name": "' + answer)
        assert calls
        check(calls, [WEATHER, FLAG])


def test_auto_may_end_without_a_call_and_required_may_not(factory: GrammarFactory, text: Text) -> None:
    eos = text.tokenizer.eos_token_id
    for required in (False, True):
        constraint = factory.constraint(CallRules((WEATHER,), required=required))
        assert constraint.accept_text(text.encode("Just text."))
        assert bool(constraint.allowed()[eos]) is not required


def test_after_the_last_call_only_the_end_is_left(factory: GrammarFactory, text: Text) -> None:
    constraint = factory.constraint(CallRules((BARE,), parallel=False))
    assert constraint.accept_text(text.encode('ok\n{"name": "ping", "arguments": {}}'))
    assert constraint.finished()


def test_forced_tokens_are_the_only_allowed_ones(factory: GrammarFactory, text: Text) -> None:
    constraint = factory.constraint(CallRules((WEATHER,), text=False, required=True, parallel=False))
    forced = constraint.forced()
    assert b"".join(map(text.piece, forced)).decode().startswith('{"name": "get_weather", "arguments": {"city":')
    for token in forced:
        assert constraint.allowed().nonzero().flatten().tolist() == [token]
        constraint.advance(token)


def test_undeclared_arguments_are_not_invented(factory: GrammarFactory, text: Text) -> None:
    constraint = factory.constraint(CallRules((FLAG,), text=False, required=True))
    assert not constraint.accept_text(text.encode('{"name": "set-flag", "arguments": {"on": true, "other"'))


def test_closing_tags_are_accepted_where_the_template_has_them(factory: GrammarFactory, text: Text) -> None:
    written = text.encode('<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n<tool_call>\n{"name": "pi')
    assert factory.constraint(CallRules((BARE,), closer=True)).accept_text(written)
    assert not factory.constraint(CallRules((BARE,))).accept_text(written)


def test_a_tool_whose_schema_cannot_be_compiled_is_named_an_error(factory: GrammarFactory) -> None:
    broken = {"name": "x", "parameters": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}
    with pytest.raises(RequestError) as caught:
        factory.constraint(CallRules((broken,)))
    assert caught.value.code == "invalid_tool_schema" and caught.value.status == 400
