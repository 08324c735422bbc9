"""What the engine knows about one request, and the events it sends back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import InitVar, dataclass, field
from typing import Protocol

import torch

from agentspec.verifier.engine.kv import KvBuffer
from agentspec.verifier.verification.sampling import Logprobs, SamplingParams, generator


@dataclass(frozen=True, slots=True)
class Started:
    """Admitted: how long the prompt is, and how much of it was already computed."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token (never the end-of-sequence one)."""

    id: int
    logprobs: Logprobs | None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a sequence that ended by itself; `reason` is `stop` or `length`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a sequence that the engine could not run."""

    message: str


Event = Started | Token | Finished | Failed


class Constraint(Protocol):
    """What a sequence may generate. One per sequence; stateful; called from the worker thread."""

    def allowed(self) -> torch.Tensor | None:
        """The tokens that may come next, `[vocab]` bool on the CPU; None: all."""
        ...

    def advance(self, token: int) -> None:
        """A token was generated."""
        ...

    def forced(self) -> list[int]:
        """The tokens that must come next whatever the model says (often none); not yet advanced over."""
        ...

    def finished(self) -> bool:
        """Nothing but the end may follow."""
        ...


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to the engine.

    Attributes:
        prompt: token ids, not empty.
        continuation: text that the answer already begins with: the engine tokenizes it the way a live or finished
            sequence with the same prompt generated it, so that its keys and values can be reused.
        max_new: generated tokens at most.
        priority: lower runs sooner.
    """

    prompt: list[int]
    params: SamplingParams
    max_new: int
    priority: int = 0
    continuation: str = ""
    constraint: Constraint | None = None


@dataclass(slots=True)
class Ticket:
    """The submitter's handle; `cancel` may be called from any thread, more than once."""

    cancelled: bool = False

    def cancel(self) -> None:
        """Leave within one step; no further events follow."""
        self.cancelled = True


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine (worker thread only).

    Attributes:
        tokens: at first the prompt's, then also the generated ones.
        room: positions that a sequence may have.
        limit: tokens it may have, `room` and `max_new` considered.
        computed: leading tokens whose keys and values are in `kv`.
        emitted: leading tokens that the client has (the prompt counts).
        ending: set when generation is over but forced tokens still wait for their log-probabilities.
    """

    submission: Submission
    ticket: Ticket
    sink: Callable[[Event], None]
    order: int
    tokens: list[int]
    room: InitVar[int]
    computed: int = 0
    kv: KvBuffer | None = None
    ending: str | None = None
    prompt_length: int = field(init=False)
    emitted: int = field(init=False)
    limit: int = field(init=False)
    random: torch.Generator | None = field(init=False)

    def __post_init__(self, room: int) -> None:
        self.prompt_length = self.emitted = len(self.tokens)
        self.limit = min(self.prompt_length + self.submission.max_new, room)
        self.random = generator(self.submission.params)

    @property
    def pending(self) -> int:
        """Tokens that the next forwards have to run."""
        return len(self.tokens) - self.computed

    @property
    def prefilling(self) -> bool:
        return self.computed < self.prompt_length

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the more urgent first."""
        return (self.submission.priority, self.order)

    def wanted_logits(self, count: int) -> int:
        """Of the next `count` tokens, how many (the last ones) need logits."""
        first = self.emitted - 1 if self.submission.params.top_logprobs is not None else len(self.tokens) - 1
        return max(0, self.computed + count - max(self.computed, first))
