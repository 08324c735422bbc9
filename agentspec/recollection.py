"""What memory is asked, what it answers, and what it learns from: plain data, no rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agentspec.calls import ToolCall
from agentspec.trajectory import Said
from agentspec.wire.request import Schemas


@dataclass(frozen=True, slots=True)
class Question:
    """What comes next in this trajectory?

    Attributes:
        trajectory: its id; memory may keep what it has read of it.
        scope: the end user's; argument values are recalled only within it.
        history: the messages up to here, in order.
        tools: the function tools that the agent may call.
        emitted: calls that the running answer has made already.
        ahead: messages that are assumed to follow the history: what the running answer calls, and results as far as
            they are known. Nobody has said them; they are looked at and not kept.
    """

    trajectory: str
    scope: str
    history: Sequence[Said]
    tools: Schemas
    emitted: Sequence[ToolCall] = ()
    ahead: Sequence[Said] = ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """A next call that memory holds likely.

    `probability` is that of the very call, given that a call comes at all; `name_probability` and
    `argument_probability` are its factors before all the evidence was weighed together. `support`: trajectories in
    which the same call was seen. `why`: where the arguments came from, in words.
    """

    call: ToolCall
    probability: float
    name_probability: float = 1.0
    argument_probability: float = 1.0
    support: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is likely to come next.

    Attributes:
        no_call: probability that the agent calls nothing (more) in this answer.
        candidates: whole calls, likeliest first.
        names: tools with their probabilities given that one is called, likeliest first.
    """

    no_call: float
    candidates: tuple[Recalled, ...] = ()
    names: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Past:
    """A trajectory as far as it went. `outcome`: 1.0 succeeded, 0.0 failed, None where nobody said."""

    trajectory: str
    scope: str
    history: Sequence[Said]
    tools: Schemas = field(default_factory=dict)
    outcome: float | None = None


class Recollection(Protocol):
    """The memory of one tenant. `forecast` and `learn` may be called from different threads."""

    def forecast(self, question: Question) -> Forecast:
        """What is likely to come next. Milliseconds, no model call."""
        ...

    def learn(self, past: Past) -> None:
        """Take in a trajectory. One that was learnt before is learnt only from where it has grown."""
        ...


class Memories(Protocol):
    """The memories of all tenants. Callers must not be in a hurry: to ask may mean to make one first."""

    def of(self, tenant: str) -> Recollection:
        """The tenant's memory as it is now. Ask each time: after something was forgotten it is another one."""
        ...

    def learnt(self, tenant: str, past: Past) -> None:
        """Have a trajectory learnt and kept, soon."""
        ...
