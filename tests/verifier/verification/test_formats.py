"""Answers of a given format: JSON of a schema, a pattern, a choice; and grammars that look ahead and back."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.errors import RequestError
from agentspec.verifier.text import Text
from agentspec.verifier.verification.grammar import CallRules, GrammarConstraint, GrammarFactory, TextRules

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "tags": {"type": "array", "items": {"enum": [1, "é"]}}},
    "required": ["name"],
    "additionalProperties": False,
}
PATTERN = r"(yes|no), [a-c]{2,4}"
TOOL = {"name": "ping", "parameters": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}}}


@pytest.fixture(scope="module")
def factory(text: Text) -> GrammarFactory:
    size = -(-len(text.tokenizer) // 32) * 32
    return GrammarFactory(text, vocab_size=size, eos_ids=[text.tokenizer.eos_token_id])


def walked(constraint: GrammarConstraint, text: Text, rng: random.Random, most: int = 300) -> tuple[list[int], bool]:
    """Any allowed tokens, and whether the answer ended."""
    eos = text.tokenizer.eos_token_id
    said: list[int] = []
    while len(said) < most and not constraint.finished():
        allowed = constraint.allowed().nonzero().flatten().tolist()
        token = eos if eos in allowed and (rng.random() < 0.5 or len(allowed) == 1) else rng.choice(allowed)
        if token == eos:
            return said, True
        constraint.advance(token)
        said.append(token)
    return said, constraint.finished()


def spelled(text: Text, tokens: list[int]) -> str:
    return b"".join(map(text.piece, tokens)).decode(errors="replace")


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 30))
def test_answers_fit_their_format(factory: GrammarFactory, text: Text, seed: int) -> None:
    rng = random.Random(seed)
    said, ended = walked(factory.constraint(TextRules(schema=PERSON)), text, rng)
    if ended:
        jsonschema.validate(json.loads(spelled(text, said)), PERSON)
    said, ended = walked(factory.constraint(TextRules(regex=PATTERN)), text, rng)
    assert ended and re.fullmatch(PATTERN, spelled(text, said))
    said, ended = walked(factory.constraint(TextRules(choice=('a "b"', "ñ\n", "ab"))), text, rng)
    assert ended and spelled(text, said) in ('a "b"', "ñ\n", "ab")
    said, ended = walked(factory.constraint(TextRules(schema={"type": "object"})), text, rng)
    if ended:
        assert isinstance(json.loads(spelled(text, said)), dict)
    said, ended = walked(factory.constraint(TextRules(lark='start: "a"+ "b"')), text, rng)
    assert not ended or re.fullmatch("a+b", spelled(text, said))


@pytest.mark.parametrize(
    "rules", [TextRules(regex="(unclosed"), TextRules(schema={"type": "nonsense"}), TextRules(lark="start: nowhere")]
)
def test_a_format_that_cannot_be_compiled_is_the_requests_fault(factory: GrammarFactory, rules: TextRules) -> None:
    with pytest.raises(RequestError) as caught:
        factory.constraint(rules)
    assert caught.value.code == "invalid_format" and caught.value.status == 400


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 1 << 30), st.sampled_from(["tools", "schema", "regex"]))
def test_looking_ahead_and_taking_back_leave_no_trace(
    factory: GrammarFactory, text: Text, seed: int, kind: str
) -> None:
    rng = random.Random(seed)
    rules: Any = {
        "tools": CallRules((TOOL,), required=True, text=False),
        "schema": TextRules(schema=PERSON),
        "regex": TextRules(regex=PATTERN),
    }[kind]
    constraint, twin = factory.constraint(rules), factory.constraint(rules)
    said, _ = walked(factory.constraint(rules), text, rng, most=12)
    cut = rng.randrange(len(said) + 1)
    wrong = [*said[cut:], rng.randrange(3, 300), rng.randrange(3, 300)]
    for token in said[:cut]:
        constraint.advance(token)
        twin.advance(token)
    assert constraint.valid_prefix(wrong) >= len(said) - cut
    for token in said[cut:]:
        constraint.advance(token)
    constraint.rollback(len(said) - cut)
    assert constraint.allowed().tolist() == twin.allowed().tolist()
    assert constraint.forced() == twin.forced()
    for token in said[cut:]:
        constraint.advance(token)
