"""Answers that always parse: tool calls, JSON, or a pattern, as a token mask (llguidance).

With tools the answer is free text, then calls, one a line: `{"name": "x", "arguments": {"a": 1}}`. Once `{"name": "` is
written, only a valid call of one of the tools can follow. The spacing of all JSON is fixed to the one that models write
by themselves, so that the mask rarely has to overrule them.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import llguidance
import numpy as np
import torch

from agentspec.errors import RequestError
from agentspec.verifier.text import Text

_SPACING = {"item_separator": ", ", "key_separator": ": ", "whitespace_flexible": False, "lenient": True}
_KEPT = 64  # compiled grammars


@dataclass(frozen=True, slots=True)
class CallRules:
    """Which calls may come.

    Attributes:
        tools: OpenAI function objects (`name`, `parameters`) that may be called.
        text: free text may come before the first call.
        required: at least one call must come.
        parallel: more than one may come.
        closer: allow `</tool_call>` after a call (models whose template shows it).
        answer: instead of free text, JSON that this JSON Schema describes; no text comes before calls then.
    """

    tools: tuple[Mapping[str, Any], ...]
    text: bool = True
    required: bool = False
    parallel: bool = True
    closer: bool = False
    answer: Mapping[str, Any] | None = None

    def key(self) -> str:
        switches = [self.text, self.required, self.parallel, self.closer]
        return json.dumps([list(map(dict, self.tools)), switches, self.answer and dict(self.answer)])

    def grammar(self) -> str:
        """In llguidance's own form."""
        return str(llguidance.LLMatcher.grammar_from_lark(lark(self)))


@dataclass(frozen=True, slots=True)
class TextRules:
    """What a whole answer must be; exactly one is set.

    Attributes:
        schema: JSON that a JSON Schema describes (`response_format`; `{"type": "object"}` for any object).
        regex: a text that a pattern matches from end to end.
        choice: one of some texts.
        lark: a grammar in llguidance's Lark dialect.
    """

    schema: Mapping[str, Any] | None = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    lark: str | None = None

    def key(self) -> str:
        return json.dumps([self.schema and dict(self.schema), self.regex, self.choice, self.lark])

    def grammar(self) -> str:
        """In llguidance's own form."""
        make = llguidance.LLMatcher
        if self.schema is not None:
            return str(make.grammar_from_json_schema({**self.schema, "x-guidance": _SPACING}))
        if self.regex is not None:
            return str(make.grammar_from_regex(self.regex))
        if self.choice:
            options = " | ".join(json.dumps(option, ensure_ascii=False) for option in self.choice)
            return str(make.grammar_from_lark(f"%llguidance {{}}\nstart: {options}\n"))
        return str(make.grammar_from_lark(self.lark or ""))


Rules = CallRules | TextRules


def lark(rules: CallRules) -> str:
    """The grammar in llguidance's Lark dialect."""
    if rules.answer is not None:
        return _answer_or_calls(rules, rules.answer)
    calls = " | ".join(f"tool_{i}" for i in range(len(rules.tools)))
    start = ("opening" if rules.text else '"{\\"name\\": \\""') + " body"
    if rules.parallel:
        start += " next*"
    if rules.text and not rules.required:
        start = "TEXT | " + start
    lines = [
        "%llguidance {}",
        f"start: {start}",
        f"body: ({calls})" + (' ("\\n</tool_call>")?' if rules.closer else ""),
        'next: "\\n" ' + ('("<tool_call>\\n")? ' if rules.closer else "") + '"{\\"name\\": \\"" body',
        "TEXT: /(.|\\n)*/",
        # lazy: ends as soon as it matches, so plain text cannot run past the opening of a call
        'opening[lazy]: /(.|\\n)*\\{\\s*"name":\\s*"/',
    ]
    for index, tool in enumerate(rules.tools):
        name = json.dumps(json.dumps(tool["name"], ensure_ascii=False)[1:-1] + '", "arguments": ', ensure_ascii=False)
        lines.append(f'tool_{index}: {name} %json {json.dumps(_parameters(tool))} "}}"')
    return "\n".join(lines) + "\n"


def _answer_or_calls(rules: CallRules, answer: Mapping[str, Any]) -> str:
    """All of it is JSON, so that an answer and a call may begin alike."""
    calls, shared = [], {}
    for index, tool in enumerate(rules.tools):
        arguments, defined = _lifted(_parameters(tool), f"{index}.")
        shared.update(defined)
        call = {"properties": {"name": {"const": tool["name"]}, "arguments": arguments}}
        calls.append({**call, "type": "object", "required": ["name", "arguments"], "additionalProperties": False})
    anything = {"anyOf": calls, "$defs": shared, "x-guidance": _SPACING}
    lines = [
        "%llguidance {}",
        "start: answer | call" + (' ("\\n" call)*' if rules.parallel else ""),
        f"answer: %json {json.dumps({**answer, 'x-guidance': _SPACING})}",
        f"call: %json {json.dumps(anything)}",
    ]
    return "\n".join(lines) + "\n"


def _lifted(schema: dict[str, Any], prefix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A schema to be put inside another, and its definitions for that one's root, under names of their own."""
    written = json.dumps(schema)
    for word in ("$defs", "definitions"):
        written = written.replace(f'"#/{word}/', f'"#/$defs/{prefix}')
    lifted: dict[str, Any] = json.loads(written)
    defined = {**lifted.pop("definitions", {}), **lifted.pop("$defs", {})}
    return lifted, {prefix + name: value for name, value in defined.items()}


def _parameters(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments' schema: an object, only the declared properties unless the tool says otherwise, our spacing."""
    schema: dict[str, Any] = dict(tool.get("parameters") or {})
    schema.setdefault("type", "object")
    schema.setdefault("properties", {})
    if not any(word in schema for word in ("patternProperties", "allOf", "anyOf", "oneOf", "$ref")):
        schema.setdefault("additionalProperties", False)
    return {**schema, "x-guidance": _SPACING}


class GrammarFactory:
    """Compiles rules for one tokenizer and keeps the results. Not thread-safe: the server's event loop calls it."""

    def __init__(self, text: Text, *, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._vocab_size = vocab_size
        wrapper = llguidance.TokenizerWrapper(_Vocabulary(text, vocab_size, eos_ids[0]))
        self._tokenizer = llguidance.LLTokenizer(wrapper, n_vocab=vocab_size, eos_token=list(eos_ids))
        self._compiled: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()

    def constraint(self, rules: Rules) -> GrammarConstraint:
        """A fresh constraint.

        Raises:
            RequestError: the rules (a tool's schema, a pattern) cannot be compiled.
        """
        key = rules.key()
        matcher = self._compiled.get(key)
        if matcher is None:
            matcher = self._compiled[key] = self._compile(rules)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return GrammarConstraint(matcher.deep_copy(), self._vocab_size)

    def _compile(self, rules: Rules) -> llguidance.LLMatcher:
        matcher = llguidance.LLMatcher(self._tokenizer, rules.grammar(), log_level=0)
        if matcher.is_error():
            reason = matcher.get_error().strip().splitlines()[0]
            if isinstance(rules, CallRules):
                raise RequestError(f"the tools cannot be compiled to a grammar: {reason}", code="invalid_tool_schema")
            raise RequestError(f"the answer's format cannot be compiled to a grammar: {reason}", code="invalid_format")
        return matcher


class _Vocabulary:
    """What llguidance asks of a tokenizer.

    Its own reader of Hugging Face tokenizers takes every added token in angle brackets for a special one, so that
    `<tool_call>` could not be matched as text.
    """

    def __init__(self, text: Text, size: int, eos_id: int) -> None:
        self._encode = text.encode
        self.eos_token_id = eos_id
        self.bos_token_id = None
        self.special_token_ids = sorted(text.special)
        names = {token: str(text.tokenizer.convert_ids_to_tokens(token)).encode() for token in text.special}
        self.tokens = [names.get(token) or text.piece(token) for token in range(size)]

    def __call__(self, written: bytes | str) -> list[int]:
        return self._encode(written.decode() if isinstance(written, bytes) else written)


class GrammarConstraint:
    """A `Constraint` over an llguidance matcher."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab_size: int) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size

    def accept_text(self, tokens: list[int]) -> bool:
        """Advance over text that is already written; False (and no longer usable) when it does not fit the grammar."""
        return bool(self._matcher.consume_tokens(tokens))

    def allowed(self) -> torch.Tensor:
        """`[vocab]` bool."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        mask = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
        return torch.from_numpy(mask.view(np.bool_))

    def advance(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise RuntimeError(f"the grammar refused a token that it had allowed: {self._matcher.get_error()}")

    def rollback(self, count: int) -> None:
        if not self._matcher.rollback(count):
            raise RuntimeError(f"the grammar cannot take back {count} tokens: {self._matcher.get_error()}")

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        return int(self._matcher.validate_tokens(list(tokens)))

    def forced(self) -> list[int]:
        return [] if self._matcher.is_stopped() else list(self._matcher.compute_ff_tokens())

    def finished(self) -> bool:
        return self._matcher.is_stopped()
