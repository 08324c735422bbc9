"""Turn events: what a model's answer says, whatever API it came through, in the order it was said."""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.calls import ToolCall


@dataclass(frozen=True, slots=True)
class AnswerBegan:
    """The endpoint keeps this answer under an id: a later request may continue it by that alone."""

    id: str


@dataclass(frozen=True, slots=True)
class ItemBegan:
    """The endpoint keeps this part of the answer under an id: a later request may refer to it by that alone."""

    id: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's visible text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallNamed:
    """A tool call began and its name is known; `index` tells parallel calls apart."""

    index: int
    name: str
    id: str | None


@dataclass(frozen=True, slots=True)
class OtherChoiceCalls:
    """A call began in another choice of the answer (`n` > 1). Not followed any further, but agents may act on it."""

    name: str
    id: str | None


@dataclass(frozen=True, slots=True)
class CallFragment:
    """More of a call's arguments, as text."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallComplete:
    """A call's JSON has closed. `call` is None where the arguments are no JSON object.

    `broken_off`: it has not closed, but the answer has ended or failed: nobody can act on it.
    """

    index: int
    name: str
    call: ToolCall | None
    broken_off: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the endpoint counted them; drafted and accepted ones are None where it does not tell."""

    prompt_tokens: int
    completion_tokens: int
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The answer is over; `reason` is the endpoint's finish reason, `FAILED` where it says that it failed."""

    reason: str | None


FAILED = "failed"

TurnEvent = (
    AnswerBegan
    | ItemBegan
    | TextDelta
    | ReasoningDelta
    | CallNamed
    | OtherChoiceCalls
    | CallFragment
    | CallComplete
    | Usage
    | TurnEnd
)


def text_joined(events: list[TurnEvent]) -> list[TurnEvent]:
    """The same, with pieces of text that follow each other as one, and those of reasoning.

    >>> text_joined([TextDelta("a"), TextDelta("b"), ReasoningDelta("c")])
    [TextDelta(text='ab'), ReasoningDelta(text='c')]
    """
    joined: list[TurnEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, TextDelta) and isinstance(last, TextDelta):
            joined[-1] = TextDelta(last.text + event.text)
        elif isinstance(event, ReasoningDelta) and isinstance(last, ReasoningDelta):
            joined[-1] = ReasoningDelta(last.text + event.text)
        else:
            joined.append(event)
    return joined
