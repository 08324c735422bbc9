"""A request that runs: the engine's events of all its choices, turned into the chunks or the body of its answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from agentspec.errors import ApiError
from agentspec.verifier.engine.interface import Event, Failed, Finished, Started, Ticket, Token
from agentspec.verifier.server.answer import Choice, Drafts, Json, Shape, Usage
from agentspec.verifier.server.deltas import Delta
from agentspec.verifier.server.options import Options
from agentspec.verifier.server.request import ChatJob

_STATUS = {"dropped": 503, "too_long": 400, "cancelled": 409}


@dataclass(slots=True)
class Run:
    """One request in flight.

    Attributes:
        names: what drafts and cancels may call it.
        request_ids: what the engine calls each choice.
        shared: choices that fork one prompt; the first of them tells its length.
        job: the turn that it is; None for plain completions.
    """

    shape: Shape
    options: Options
    names: tuple[str, ...]
    request_ids: tuple[str, ...]
    choices: list[Choice] = field(default_factory=list)
    shared: int = 1
    events: asyncio.Queue[tuple[int, Event]] = field(default_factory=asyncio.Queue)
    tickets: list[Ticket] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    job: ChatJob | None = None
    began_s: float = field(default_factory=time.monotonic)
    first_token_s: float | None = None

    def cancel(self) -> None:
        """Leave within one step; may be called more than once."""
        for ticket in self.tickets:
            ticket.cancel()

    @property
    def unfinished(self) -> int:
        """The first choice that has not ended; their number where all have."""
        return next((choice.index for choice in self.choices if choice.reason is None), len(self.choices))

    @property
    def finished(self) -> bool:
        """Every choice has ended by itself or by its limit."""
        return self.unfinished == len(self.choices)


@dataclass(frozen=True, slots=True)
class _Step:
    """What an event added to a choice; `ended`: it was the choice's last."""

    choice: Choice
    deltas: list[Delta]
    tokens: list[Token]
    ended: bool = False


async def _steps(run: Run) -> AsyncIterator[_Step]:
    """What each event adds, until all choices have ended.

    Raises:
        ApiError: the engine failed, or the request was cancelled by another one.
    """
    while not run.finished:
        index, event = await run.events.get()
        choice = run.choices[index]
        if choice.reason is not None:
            continue
        match event:
            case Started():
                if index % run.shared == 0:
                    run.usage.prompt += event.prompt_tokens
                    run.usage.cached += event.cached_tokens
                yield _Step(choice, [], [])
            case Token():
                yield _token(run, choice, event)
            case Finished():
                choice.drafts = Drafts(event.drafted_tokens, event.accepted_tokens, event.saved_steps)
                yield _end(run, choice, event.reason, [], [])
            case Failed():
                run.cancel()
                raise ApiError(event.message, code=event.code, status=_STATUS.get(event.code, 500))


def _token(run: Run, choice: Choice, event: Token) -> _Step:
    run.usage.completion += 1
    if run.first_token_s is None:
        run.first_token_s = time.monotonic()
    if event.id in run.options.stop_ids:
        run.tickets[choice.index].cancel()
        return _end(run, choice, "stop", [], [event])
    deltas = choice.assembler.feed(event.id)
    if choice.assembler.stopped:
        run.tickets[choice.index].cancel()
        return _end(run, choice, "stop", deltas, [event])
    choice.take(deltas)
    choice.tokens.append(event)
    return _Step(choice, deltas, [event])


def _end(run: Run, choice: Choice, reason: str, deltas: list[Delta], tokens: list[Token]) -> _Step:
    deltas = deltas + choice.assembler.end(whole=reason == "stop")
    choice.take(deltas)
    choice.tokens += tokens
    choice.reason = "tool_calls" if reason == "stop" and choice.calls else reason
    run.usage.reasoning += choice.assembler.reasoning_tokens
    run.usage.drafts.add(choice.drafts)
    return _Step(choice, deltas, tokens, ended=True)


async def stream(run: Run) -> AsyncIterator[Json]:
    """The chunks of a streamed answer, each as soon as its token is there.

    Raises:
        ApiError: the engine failed.
    """
    opened = False
    waiting: dict[int, list[Token]] = {}
    """By choice: tokens whose text is still held back; their log-probabilities go with the next chunk."""
    async for step in _steps(run):
        held = waiting.setdefault(step.choice.index, [])
        held += step.tokens
        if not opened:
            opened = True
            for chunk in run.shape.opening():
                yield chunk
        for chunk in run.shape.chunks(step.choice, step.deltas, list(held)):
            yield chunk
        if step.deltas:
            held.clear()
        if step.ended:
            for chunk in run.shape.closing(step.choice, held):
                yield chunk
    for chunk in run.shape.ending(run.choices, run.usage):
        yield chunk


async def whole(run: Run) -> Json:
    """The body of an answer that is not streamed.

    Raises:
        ApiError: the engine failed.
    """
    async for _ in _steps(run):
        pass
    return run.shape.whole(run.choices, run.usage)
