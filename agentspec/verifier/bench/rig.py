"""A loaded model, engines on it, and the time that each of their answers took."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from agentspec.verifier.drafting.protocol import Drafter
from agentspec.verifier.engine.continuation import Codec
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import (
    EngineOptions,
    Event,
    Failed,
    Finished,
    Limits,
    Started,
    Submission,
    Ticket,
    Token,
)
from agentspec.verifier.engine.worker import Engine

LIMITS = Limits(max_batch=16, prefill_chunk=256, prefill_chunk_busy=48)
_PATIENCE_S = 600.0


@dataclass(slots=True)
class Answer:
    """What came of a submission. Times are seconds of the monotonic clock.

    Attributes:
        first_at, last_at: of the first token and of the end.
        cached: prompt tokens that did not have to run.
    """

    asked_at: float
    first_at: float = 0.0
    last_at: float = 0.0
    cached: int = 0
    tokens: list[int] = field(default_factory=list)
    end: Finished | Failed | None = None

    @property
    def wait_s(self) -> float:
        """Until the first token."""
        return self.first_at - self.asked_at

    @property
    def tokens_per_s(self) -> float:
        """After the first token."""
        return (len(self.tokens) - 1) / max(self.last_at - self.first_at, 1e-9)

    @property
    def whole_per_s(self) -> float:
        """Tokens a second from the question to the end."""
        return len(self.tokens) / max(self.last_at - self.asked_at, 1e-9)


class Asked:
    """A submission that is under way."""

    def __init__(self, engine: Engine, submission: Submission) -> None:
        self._events: queue.SimpleQueue[tuple[float, Event]] = queue.SimpleQueue()
        self._answer = Answer(time.monotonic())
        self.ticket: Ticket = engine.submit(submission, lambda event: self._events.put((time.monotonic(), event)))

    def until(self, tokens: int) -> Answer:
        """Wait until so many tokens are there, or the end."""
        answer = self._answer
        while answer.end is None and len(answer.tokens) < tokens:
            at, event = self._events.get(timeout=_PATIENCE_S)
            answer.last_at = at
            if isinstance(event, Started):
                answer.cached = event.cached_tokens
            elif isinstance(event, Token):
                answer.first_at = answer.first_at or at
                answer.tokens.append(event.id)
            else:
                answer.end = event
        return answer

    def whole(self) -> Answer:
        """Wait for the end.

        Raises:
            RuntimeError: the engine did not run it to its end.
        """
        answer = self.until(1 << 30)
        if isinstance(answer.end, Failed):
            raise RuntimeError(answer.end.message)
        return answer


class Rig:
    """One model on one device; engines share its weights and are used one at a time."""

    def __init__(self, runner: Runner, codec: Codec) -> None:
        self.runner = runner
        self.codec = codec

    @contextmanager
    def engine(self, *drafters: Drafter, tokens: int = 16_384, limits: Limits = LIMITS) -> Iterator[Engine]:
        """An engine of its own, with memory for so many tokens."""
        options = EngineOptions(
            limits, tokens * self.runner.kv_shape.bytes_per_token, self.runner.max_context, drafters
        )
        engine = Engine(self.runner, self.codec, options)
        try:
            yield engine
        finally:
            engine.close()


def ask(engine: Engine, submissions: Sequence[Submission]) -> list[Answer]:
    """Submit all of them at once and wait for the last."""
    return [asked.whole() for asked in [Asked(engine, submission) for submission in submissions]]


def in_turns(count: int, *arms: Callable[[int], None]) -> None:
    """Run the arms one after the other, `count` times, beginning with another one each time."""
    for nth in range(count):
        for at in range(len(arms)):
            arms[(nth + at) % len(arms)](nth)
