"""A turn as the engine needs it: the prompt's tokens, what the answer begins with, and what it may hold."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentspec.errors import RequestError
from agentspec.verifier.server.after_thinking import AfterThinking
from agentspec.verifier.server.reasoning import CLOSE, OPEN, opened_by
from agentspec.verifier.server.request import ChatJob
from agentspec.verifier.text import Text
from agentspec.verifier.verification.constraint import Constraint
from agentspec.verifier.verification.grammar import CallRules, GrammarConstraint, GrammarFactory, Rules

_CALL = '{"name": "'
_CALL_OPENING = re.compile(r'\{\s*"name":\s*"')


@dataclass(frozen=True, slots=True)
class Turn:
    """Attributes:
    prompt: token ids.
    continuation: text that the answer already begins with.
    opened: the answer begins inside the model's thinking.
    constraint: makes a fresh one for each choice; it gives None where any text will do.
    """

    prompt: list[int]
    continuation: str
    opened: bool
    constraint: Callable[[], Constraint | None]


class Turns:
    """Renders and constrains with one model's tokenizer."""

    def __init__(self, text: Text, grammar: GrammarFactory) -> None:
        self._text = text
        self._grammar = grammar
        self._closer = "</tool_call>" in text.template
        self._opener = text.token_of(OPEN) if OPEN in text.template else None

    def prepare(self, job: ChatJob) -> Turn:
        """Render a job.

        Raises:
            RequestError: the template refuses the messages, a schema cannot be compiled, or the continued message
                cannot become what is asked for.
        """
        written = self._text.rendered(job.messages, job.tools, job.template)
        opened, continuation = opened_by(written), job.continuation
        make: Callable[[], Constraint | None] = _anything
        if continuation is None:
            rules, prompt = job.rules, written.rstrip()
            if rules is not None:
                make = self._fresh(rules, opened=opened, closed=prompt.endswith(CLOSE))
        else:
            continuation = _thought(continuation) if opened else continuation
            if job.rules is not None:
                make = self._continued(job.rules, continuation)
            opened = False
        return Turn(self._text.encode(written), continuation or "", opened, make)

    def _fresh(self, rules: Rules, *, opened: bool, closed: bool) -> Callable[[], Constraint]:
        rules = replace(rules, closer=self._closer) if isinstance(rules, CallRules) else rules
        thinks = opened or (self._opener is not None and not closed)
        self._grammar.constraint(rules)  # a schema that cannot be compiled is refused now

        def make() -> Constraint:
            inner = self._grammar.constraint(rules)
            return AfterThinking(inner, self._text, None if opened else self._opener) if thinks else inner

        return make

    def _continued(self, rules: Rules, written: str) -> Callable[[], Constraint | None]:
        """A constraint that has read `written` and ends with the call that is open there (or the first one to come)."""
        openings = list(_CALL_OPENING.finditer(written)) if isinstance(rules, CallRules) else []
        tail = _CALL + written[openings[-1].end() :] if openings else written
        begun = self._text.encode(tail)
        if isinstance(rules, CallRules):
            rules = replace(rules, text=not openings, parallel=False, answer=None if openings else rules.answer)

        def make() -> GrammarConstraint | None:
            constraint = self._grammar.constraint(rules)
            return constraint if constraint.accept_text(begun) else None

        if not (isinstance(rules, CallRules) and not rules.required) and make() is None:
            raise RequestError("the continued message cannot become what is asked for", code="invalid_continuation")
        return make


def _anything() -> None:
    """Any text will do."""


def _thought(continuation: str) -> str:
    """A continued message behind a prompt that has opened the thinking: with its thinking, or with none."""
    begun = continuation.lstrip()
    if begun.startswith(OPEN):
        return begun.removeprefix(OPEN).removeprefix("\n")
    return f"\n{CLOSE}\n\n{continuation}"
