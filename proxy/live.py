"""A turn while its answer arrives: what speculators read, fed by the relay's copy of the stream."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentspec import clock
from agentspec.calls import ToolCall
from agentspec.config import Engine
from agentspec.effects import ToolSpec
from agentspec.events import (
    FAILED,
    AnswerBegan,
    CallComplete,
    CallNamed,
    ItemBegan,
    ReasoningDelta,
    TextDelta,
    TurnEnd,
    TurnEvent,
    Usage,
)
from agentspec.gating.averages import Pace
from agentspec.gating.runway import Phase, Progress
from agentspec.protocols import Drafting, Headers, ProbeRecord, Upstream
from agentspec.proxy.origin import Origin, Quiet
from agentspec.trajectory import Said
from agentspec.wire.apis import WireApi
from agentspec.wire.request import Schemas, TurnRequest


@dataclass(slots=True, eq=False)
class Calling:
    """How many calls an answer has begun; all that is kept of a turn by those who wait for a claim."""

    named: int = 0


@dataclass(slots=True, eq=False)
class Live:
    """Implements `LiveTurn`. Times are seconds of the monotonic clock since `began_s`."""

    request: TurnRequest
    history: Sequence[Said]
    api: WireApi
    engine: Engine
    upstream: Upstream
    headers: Headers
    path: str
    body: bytes
    id: str
    trajectory: str
    scope: str
    tenant: str
    tools: Mapping[str, ToolSpec] = field(default_factory=dict)
    offered: Schemas = field(default_factory=dict)
    ambiguous: bool = False
    """Which trajectory it belongs to is not known."""
    held_out: bool = False
    """Its trajectory is one of the control group: nothing is guessed."""
    origin: Origin = field(default_factory=Origin)
    new: Sequence[Said] = ()
    """The messages that came since the turn before."""
    name_answer: Callable[[str], None] = lambda identity: None
    """Told the id under which the endpoint keeps the answer."""
    began_s: float = field(default_factory=clock.monotonic)
    began_at: float = field(default_factory=time.time)
    first_byte_s: float | None = None
    first_token_s: float | None = None
    finish: str | None = None
    """Why the answer ended, as the endpoint says."""
    quiet: list[Quiet] = field(default_factory=list)
    call_s: float | None = None
    status: int = 0
    usage: Usage | None = None
    calls: list[ToolCall] = field(default_factory=list)
    items: set[str] = field(default_factory=set)
    """Ids under which the endpoint keeps parts of the answer."""
    calling: Calling = field(default_factory=Calling)
    closed: int = 0
    unseen: bool = False
    """Its calls could not be read: any calls may be its."""
    ended: bool = False
    dropped: bool = False
    """A client that asked again does not act on this answer, whatever is still read of it."""
    broken: bool = False
    """The answer failed or was cut off: nobody continues it."""
    pace: Pace = field(default_factory=Pace)
    """How fast its text came."""
    probe: ProbeRecord | None = None
    """The probe that is under way."""
    probe_verdict: str | None = None
    """Why the last probe was begun, or was not."""
    drafting: Drafting | None = None
    """What its engine is offered as drafts; None where that takes none."""
    _said: list[str] = field(default_factory=list)
    _reasoned: list[str] = field(default_factory=list)
    _length: int = 0
    _said_chars: int = 0
    _grown_s: float | None = None
    """When the latest text or reasoning came."""
    _thought_s: tuple[float, float] | None = None
    """When the first and the latest of its reasoning came."""
    _called_s: float = 0.0
    """When the latest call began or closed."""
    _waiting: list[tuple[int, asyncio.Future[bool]]] = field(default_factory=list)
    _waiting_for_calls: list[tuple[int, asyncio.Future[bool]]] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "".join(self._said)

    @property
    def reasoned(self) -> str:
        return "".join(self._reasoned)

    @property
    def silent(self) -> bool:
        """Whether it has neither said nor thought anything."""
        return self._length == 0

    @property
    def named(self) -> int:
        """How many calls have begun."""
        return self.calling.named

    @property
    def call_began(self) -> bool:
        return self.named > 0

    @property
    def over(self) -> bool:
        return self.ended

    @property
    def all_calls_closed(self) -> bool:
        """Whether every call that began is complete, and there is one."""
        return self.named > 0 and self.closed == self.named

    @property
    def answered(self) -> bool:
        """Whether the agent has an answer that it can go on from."""
        return self.ended and self.status == 200 and not self.broken

    @property
    def reasoning_s(self) -> float | None:
        """How long its reasoning came; None where it showed none."""
        return None if self._thought_s is None else self._thought_s[1] - self._thought_s[0]

    def elapsed_s(self) -> float:
        return clock.monotonic() - self.began_s

    def expects_no_call(self, predictor: str, probability: float) -> None:
        self.quiet.append(Quiet(predictor, probability, self.elapsed_s(), len(self.calls)))

    def progress(self) -> Progress:
        """What it has produced so far."""
        now_s = self.elapsed_s()
        if self.named:
            return Progress(Phase.CALLING, now_s, since_call_s=now_s - self._called_s)
        if self._said_chars:
            return Progress(Phase.SPEAKING, now_s, self._said_chars, self.pace.s_per_char)
        phase = Phase.THINKING if self._length else Phase.WAITING
        return Progress(phase, now_s, self._length, self.pace.s_per_char)

    async def grown(self, chars: int) -> bool:
        if self._length >= chars:
            return not self._over()
        if self._over():
            return False
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((chars, waiter))
        return await waiter

    async def called(self, more_than: int) -> bool:
        if len(self.calls) > more_than or self.ended:
            return len(self.calls) > more_than
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting_for_calls.append((more_than, waiter))
        return await waiter

    def take(self, event: TurnEvent) -> None:
        """Note what the answer said."""
        if isinstance(event, (TextDelta, ReasoningDelta)):
            self._grow(event.text, spoken=isinstance(event, TextDelta))
        elif isinstance(event, CallNamed):
            self.calling.named += 1
            self._called_s = self.elapsed_s()
            self.first_token_s = self._called_s if self.first_token_s is None else self.first_token_s
        elif isinstance(event, CallComplete):
            if event.call is not None:
                self.calls.append(event.call)
            self.closed += not event.broken_off
            self.call_s = self._called_s = self.elapsed_s()
        elif isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, AnswerBegan):
            self.name_answer(event.id)
        elif isinstance(event, ItemBegan):
            self.items.add(event.id)
        elif isinstance(event, TurnEnd):
            self.ended, self.finish = True, event.reason
            self.broken = self.broken or event.reason == FAILED
        if self._waiting or self._waiting_for_calls:
            self._wake()

    def _grow(self, text: str, *, spoken: bool) -> None:
        (self._said if spoken else self._reasoned).append(text)
        self._length += len(text)
        self._said_chars += len(text) if spoken else 0
        now_s = self.elapsed_s()
        if self.first_token_s is None:
            self.first_token_s = now_s
        if not spoken:
            self._thought_s = (now_s if self._thought_s is None else self._thought_s[0], now_s)
        if self._grown_s is not None:
            self.pace.add(now_s - self._grown_s, len(text), probed=self.probe is not None)
        self._grown_s = now_s

    def end(self) -> None:
        """No more will come."""
        self.ended = True
        self._wake()

    def _over(self) -> bool:
        return self.ended or self.call_began

    def _wake(self) -> None:
        over = self._over()
        for entry in list(self._waiting):
            chars, waiter = entry
            if over or self._length >= chars:
                self._waiting.remove(entry)
                if not waiter.done():
                    waiter.set_result(not over)
        for entry in list(self._waiting_for_calls):
            count, waiter = entry
            if self.ended or len(self.calls) > count:
                self._waiting_for_calls.remove(entry)
                if not waiter.done():
                    waiter.set_result(len(self.calls) > count)
