"""One answer as far as it has come, and what all answers to a request have used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from agentspec.errors import ApiError
from agentspec.verifier.engine.interface import Token
from agentspec.verifier.server.assembler import Assembler
from agentspec.verifier.server.deltas import CallArguments, CallStart, Delta, ReasoningDelta, TextDelta

Json = dict[str, Any]


@dataclass(slots=True)
class Drafts:
    """Draft tokens that were put to the test, those of them that stood, and the forwards that these saved."""

    drafted_tokens: int = 0
    accepted_tokens: int = 0
    saved_steps: int = 0

    def add(self, other: Drafts) -> None:
        self.drafted_tokens += other.drafted_tokens
        self.accepted_tokens += other.accepted_tokens
        self.saved_steps += other.saved_steps

    def body(self) -> Json:
        names = ("drafted_tokens", "accepted_tokens", "saved_steps")
        return {name: getattr(self, name) for name in names if self.drafted_tokens}


@dataclass(slots=True)
class CallMade:
    """A tool call of the answer."""

    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class Choice:
    """One answer to a prompt (of `n`)."""

    index: int
    assembler: Assembler
    text: str = ""
    reasoning: str = ""
    calls: list[CallMade] = field(default_factory=list)
    deltas: list[Delta] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    reason: str | None = None
    drafts: Drafts = field(default_factory=Drafts)

    def take(self, deltas: list[Delta]) -> None:
        """More of it was said."""
        self.deltas += deltas
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    self.text += text
                case ReasoningDelta(text):
                    self.reasoning += text
                case CallStart(_, call_id, name):
                    self.calls.append(CallMade(call_id, name))
                case CallArguments(index, fragment):
                    self.calls[index].arguments += fragment


@dataclass(slots=True)
class Usage:
    """Tokens of a whole request; the parts of an answer that were thinking and that were drafted counted too."""

    prompt: int = 0
    cached: int = 0
    completion: int = 0
    reasoning: int = 0
    drafts: Drafts = field(default_factory=Drafts)

    def body(self) -> Json:
        """As chat and plain completions tell it."""
        rejected = self.drafts.drafted_tokens - self.drafts.accepted_tokens
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {
                "reasoning_tokens": self.reasoning,
                "accepted_prediction_tokens": self.drafts.accepted_tokens,
                "rejected_prediction_tokens": rejected,
            },
        }


class Shape(Protocol):
    """Puts answers in the form of an API: as chunks while they come, or as one body at the end.

    Attributes:
        id: the answer's id in the API.
        named_events: each chunk is sent under its `type` as an event's name, and no `[DONE]` ends the stream.
    """

    id: str
    named_events: bool

    def opening(self) -> list[Json]:
        """The request was admitted."""
        ...

    def chunks(self, choice: Choice, deltas: list[Delta], tokens: list[Token]) -> list[Json]:
        """More was said; `tokens` are the generated ones since the last chunk."""
        ...

    def closing(self, choice: Choice, tokens: list[Token]) -> list[Json]:
        """A choice has ended."""
        ...

    def ending(self, choices: list[Choice], usage: Usage) -> list[Json]:
        """All have."""
        ...

    def failed(self, error: ApiError) -> list[Json]:
        """The engine failed after the first chunk."""
        ...

    def whole(self, choices: list[Choice], usage: Usage) -> Json:
        """The body of an answer that is not streamed."""
        ...


def label(drafts: Drafts, *, lossy: bool) -> Json:
    """The field `agentspec` of an answer; nothing where there is nothing to say."""
    told = {**drafts.body(), **({"lossy": True} if lossy else {})}
    return {"agentspec": told} if told else {}
