"""The joints of agentspec: what each part may expect of the others.

A part is replaced by writing a class with these methods; nothing needs to be inherited.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.effects import ToolSpec
from agentspec.gating.runway import Progress
from agentspec.trajectory import Said
from agentspec.wire.request import Schemas, TurnRequest

Headers = Sequence[tuple[bytes, bytes]]
"""HTTP headers as they go over the wire: names in lower case, in order, repeated where repeated."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A call guessed with a confidence, and what the guess cost.

    `name_confidence` and `argument_confidence` are probabilities in 0..1, the predictor's own. `calibrated`: they have
    been held against what came, so that three guesses of 0.3 are as good as one of 0.9; else they only say which guess
    is the better one, and the gate goes by how often such guesses were right. `rests_on`: the probability that what it
    was predicted from comes true, where that is a guess itself (a chain); the confidences are then those given that it
    does. `family`: whose guesses share one bound on discarded runs with it; by default its predictor's alone.
    `follows`: calls of the same answer that it is predicted to come after, where nobody has made them yet.
    """

    call: ToolCall
    predictor: str
    name_confidence: float
    argument_confidence: float
    cost_s: float = 0.0
    tokens: int = 0
    calibrated: bool = False
    rests_on: float = 1.0
    follows: tuple[ToolCall, ...] = ()
    family: str = ""

    @property
    def answerable(self) -> str:
        """Who answers for it where it turns out to be wrong."""
        return self.family or self.predictor

    @property
    def confidence(self) -> float:
        """Probability that the very call is made, as the predictor sees it, given what it rests on."""
        return self.name_confidence * self.argument_confidence

    def check(self) -> None:
        """Refuse rubbish before it gets anywhere.

        Raises:
            TypeError, ValueError: the call is no call, its arguments are no JSON, a confidence is no probability.
        """
        if not isinstance(self.call, ToolCall) or not isinstance(self.call.name, str):
            raise TypeError("a prediction needs a call with a name")
        if not isinstance(self.call.arguments, dict) or not all(isinstance(key, str) for key in self.call.arguments):
            raise TypeError("the arguments of a predicted call are a dict with text keys")
        msgspec.json.encode(self.call.arguments)  # lone surrogates and objects cannot go over the channel
        told = (self.name_confidence, self.argument_confidence, self.rests_on)
        if not all(0.0 <= probability <= 1.0 for probability in told):
            raise ValueError("a confidence is a probability from 0 to 1")


@dataclass(slots=True)
class Drafting:
    """A turn whose engine takes drafts for it.

    `request_id`: the id by which the engine knows the turn; nobody else does. `offered`: texts, each once. `taken`: how
    many times the engine took some.
    """

    request_id: str
    offered: list[str] = field(default_factory=list)
    taken: int = 0


class LiveTurn(Protocol):
    """A turn while its answer arrives, as a speculator sees it. Read only."""

    request: TurnRequest
    history: Sequence[Said]
    """The trajectory's messages up to here."""
    engine: Engine
    """What kind of endpoint answers."""
    upstream: Upstream
    """The way to it."""
    headers: Headers
    path: str
    body: bytes
    id: str
    began_at: float
    """Unix time at which the request came in."""
    trajectory: str
    scope: str
    """Within it argument values are recalled: the end user's, by default the trajectory."""
    tenant: str
    tools: Mapping[str, ToolSpec]
    """Declared tools that may run ahead, by the name the request uses."""
    offered: Schemas
    """All function tools that the agent may call."""
    calls: list[ToolCall]
    """The calls that the answer has made so far."""
    probe: ProbeRecord | None
    """The probe of this turn that is under way; the `ProbeLog` keeps it."""
    probe_verdict: str | None
    """Why the last probe was begun, or was not."""
    drafting: Drafting | None
    """What its engine is offered as drafts; None where that takes none."""

    @property
    def said(self) -> str:
        """The visible text so far."""
        ...

    @property
    def reasoned(self) -> str:
        """The reasoning so far."""
        ...

    @property
    def over(self) -> bool:
        """Whether the answer has ended, one way or another."""
        ...

    @property
    def call_began(self) -> bool:
        """Whether the answer has reached a tool call: too late to guess its name."""
        ...

    def elapsed_s(self) -> float:
        """Seconds since the request came in."""
        ...

    def progress(self) -> Progress:
        """What the answer has produced so far, for the gate."""
        ...

    async def grown(self, chars: int) -> bool:
        """Wait until `chars` of text or reasoning are there; False when the answer ended or reached a call first."""
        ...

    async def called(self, more_than: int) -> bool:
        """Wait until the answer has made more calls than so many; False when it ended first."""
        ...

    def expects_no_call(self, predictor: str, probability: float) -> None:
        """For the books: so likely no call comes, or no further one."""
        ...


Offer = Callable[[Prediction], None]
"""Takes a prediction; returns at once. What happens to it is the gate's business."""


class Speculator(Protocol):
    """Guesses the next tool calls of a turn."""

    name: str

    async def speculate(self, turn: LiveTurn, offer: Offer) -> None:
        """Offer guesses as they come up, best knowledge first. Cancelled when the turn's answer ends.

        A poor guess is no error; whatever is raised is counted against this speculator and nothing else.
        """
        ...


class Foresees(Protocol):
    """Guesses what a trajectory's next turn calls, before its request has come."""

    name: str

    async def after(self, turn: LiveTurn, messages: Sequence[Said]) -> Sequence[Prediction]:
        """What is likely to be called after these messages, which are assumed to follow the turn's history: what its
        answer calls, and results as far as they are known."""
        ...


@dataclass(slots=True)
class ProbeRecord:
    """One probe, for the books: seconds since its turn began, tokens billed, and what it said.

    `wrote`: the text of a call, whole or not, that its turn may be about to write too; whether the call is run ahead or
    not, the text is a draft for the turn.
    """

    started_s: float
    duration_s: float = 0.0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    outcome: str = "running"
    wrote: str = ""


class ProbeLog(Protocol):
    """Where a probing speculator notes its probes and asks whether another one pays."""

    def worth_probing(self, turn: LiveTurn) -> bool:
        """The gate's verdict on one more probe of this turn."""
        ...

    def open_probe(self, turn: LiveTurn) -> ProbeRecord:
        """Begin a probe."""
        ...

    def close_probe(self, turn: LiveTurn, probe: ProbeRecord) -> None:
        """End a probe, however it went."""
        ...


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """A request on its way to the endpoint. `path` is relative to the endpoint's base URL, query included."""

    method: str
    path: str
    headers: Headers
    body: bytes


class UpstreamResponse(Protocol):
    """The endpoint's answer: status and headers are known, the body arrives."""

    status: int
    headers: Headers

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives, not decompressed.

        Raises:
            UpstreamError: the endpoint broke off.
        """
        ...

    async def pour(self, take: Callable[[bytes], bool]) -> bool:
        """The same without waiting for each chunk: call `take` with what comes, in the step in which it comes, until
        all has come; false: until `take` said so.

        Raises:
            UpstreamError: the endpoint broke off.
        """
        ...

    async def close(self) -> None:
        """Let go. Before the end this tells the endpoint to stop."""
        ...


class Upstream(Protocol):
    """The way to the model endpoint."""

    async def open(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request and return once status and headers are there.

        Raises:
            UpstreamError: the endpoint cannot be reached or broke off before it answered.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class Ledger(Protocol):
    """The books: rows written off the hot path, dropped and counted when it cannot keep up."""

    def record(self, table: str, row: Mapping[str, Any]) -> None:
        """Queue one row, whose values may be `Later`. Never blocks, never raises."""
        ...

    async def close(self) -> None:
        """Write what is queued."""
        ...
