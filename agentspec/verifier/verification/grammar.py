"""Tool calls that always parse: the tools' JSON Schemas as a token mask (llguidance).

The answer is free text, then calls, one a line: `{"name": "x", "arguments": {"a": 1}}`. The spacing is fixed to the one
that models write by themselves, so that the mask rarely has to overrule them. Once `{"name": "` is written, only a
valid call of one of the tools can follow.
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
    """

    tools: tuple[Mapping[str, Any], ...]
    text: bool = True
    required: bool = False
    parallel: bool = True
    closer: bool = False

    def key(self) -> str:
        return json.dumps([list(map(dict, self.tools)), self.text, self.required, self.parallel, self.closer])


def lark(rules: CallRules) -> str:
    """The grammar in llguidance's Lark dialect."""
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

    def constraint(self, rules: CallRules) -> GrammarConstraint:
        """A fresh constraint.

        Raises:
            RequestError: a tool's schema cannot be compiled.
        """
        key = rules.key()
        matcher = self._compiled.get(key)
        if matcher is None:
            matcher = self._compiled[key] = self._compile(rules)
            if len(self._compiled) > _KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return GrammarConstraint(matcher.deep_copy(), self._vocab_size)

    def _compile(self, rules: CallRules) -> llguidance.LLMatcher:
        matcher = llguidance.LLMatcher(
            self._tokenizer, llguidance.LLMatcher.grammar_from_lark(lark(rules)), log_level=0
        )
        if matcher.is_error():
            reason = matcher.get_error().strip().splitlines()[0]
            raise RequestError(f"the tools cannot be compiled to a grammar: {reason}", code="invalid_tool_schema")
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

    def forced(self) -> list[int]:
        return [] if self._matcher.is_stopped() else list(self._matcher.compute_ff_tokens())

    def finished(self) -> bool:
        return self._matcher.is_stopped()
