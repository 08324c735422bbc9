"""The worker: one thread that repeats receive -> schedule -> forward -> process."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

import torch

from agentspec.verifier.engine.forward import Runner, Segment
from agentspec.verifier.engine.kv import KvBuffer
from agentspec.verifier.engine.prefix import PrefixCache, Source, best_source, common_prefix
from agentspec.verifier.engine.scheduler import Limits, plan, seats
from agentspec.verifier.engine.sequence import Event, Failed, Finished, Sequence, Started, Submission, Ticket, Token
from agentspec.verifier.verification.sampling import logprobs, pick

_log = logging.getLogger(__name__)
_WORTH_WAITING = 16  # tokens; a prefix that another sequence is about to compute is waited for when it saves this many
_HEADROOM = 256  # positions allocated beyond the prompt, before the first growth

Sink = Callable[[Event], None]
_Arrival = tuple[Submission, Ticket, Sink]


class Codec(Protocol):
    """The little that the engine needs to know about text."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, no special tokens added."""
        ...

    def piece(self, token: int) -> bytes:
        """What a token adds to the text; empty for special tokens."""
        ...


class Engine:
    """Runs submissions on one model.

    `submit`, `close`, `running` and `Ticket.cancel` are safe from any thread; the rest is the worker's.
    """

    def __init__(self, runner: Runner, codec: Codec, *, limits: Limits, cache_bytes: int, max_context: int) -> None:
        self._runner = runner
        self._codec = codec
        self._limits = limits
        self._room = max_context
        self._inbox: queue.SimpleQueue[_Arrival | None] = queue.SimpleQueue()
        self._active: list[Sequence] = []
        self._cache = PrefixCache(cache_bytes)
        self._arrivals = 0
        self._stopping = False
        self.steps = 0
        self._thread = threading.Thread(target=self._loop, name="verifier-engine", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Sequences that are waiting or running."""
        return len(self._active)

    def submit(self, submission: Submission, sink: Sink) -> Ticket:
        """Queue a request. `sink` is called from the worker thread: `Started`, `Token`s, then `Finished` or `Failed`.

        A cancelled submission gets no last event.
        """
        ticket = Ticket()
        self._inbox.put((submission, ticket, sink))
        return ticket

    def close(self) -> None:
        """Stop after the current step and wait for the worker; unfinished sequences get no further events."""
        self._stopping = True
        self._inbox.put(None)
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopping:
            try:
                self._receive()
                self._step()
            except Exception as error:  # the worker's root: what was running fails, the server lives on
                _log.exception("an engine step failed")
                for sequence in list(self._active):
                    self._fail(sequence, error)

    def _step(self) -> None:
        steps = self._schedule()
        if not steps or self._stopping:
            return
        for (sequence, count), logits in zip(steps, self._forward(steps), strict=True):
            try:
                self._process(sequence, count, logits)
            except Exception as error:  # a grammar or a sampler fault belongs to one sequence
                _log.exception("a sequence failed")
                self._fail(sequence, error)

    # -- receive ---------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Take in arrivals (waiting for one when idle) and let cancelled sequences go."""
        while not self._stopping:
            try:
                arrival = self._inbox.get(block=not self._active)
            except queue.Empty:
                break
            if arrival is not None:
                self._join(*arrival)
        for sequence in [s for s in self._active if s.ticket.cancelled]:
            self._leave(sequence)

    def _join(self, submission: Submission, ticket: Ticket, sink: Sink) -> None:
        tokens = submission.prompt + self._tokenize_continuation(submission)
        self._arrivals += 1
        self._active.append(Sequence(submission, ticket, sink, self._arrivals, tokens, self._room))

    def _tokenize_continuation(self, submission: Submission) -> list[int]:
        """Prefer the tokens that a sequence with the same prompt generated for this text: their keys are there."""
        text = submission.continuation.encode()
        prompt = submission.prompt
        best: list[int] = []
        covered = 0
        for tokens in [s.tokens for s in self._active] + [s.tokens for s in self._cache.sources()]:
            if tokens[: len(prompt)] != prompt:
                continue
            taken, length = self._matching_tokens(tokens[len(prompt) :], text)
            if length > covered:
                best, covered = taken, length
        return best + self._codec.encode(text[covered:].decode())

    def _matching_tokens(self, tokens: list[int], text: bytes) -> tuple[list[int], int]:
        """The longest run of `tokens` that spells a beginning of `text`, cut between characters; its byte length."""
        end, best, best_end = 0, 0, 0
        for index, token in enumerate(tokens):
            piece = self._codec.piece(token)
            if not piece or not text.startswith(piece, end):
                break
            end += len(piece)
            if end == len(text) or text[end] & 0xC0 != 0x80:
                best, best_end = index + 1, end
        return tokens[:best], best_end

    # -- schedule --------------------------------------------------------------------------------------------------

    def _schedule(self) -> list[tuple[Sequence, int]]:
        seated = seats(self._active, self._limits)
        admitted = [s for s in seated if s.kv is not None]
        for sequence in seated:
            if sequence.kv is None and self._admit(sequence, admitted):
                admitted.append(sequence)
        return plan(seats(admitted, self._limits), self._limits)

    def _admit(self, sequence: Sequence, admitted: list[Sequence]) -> bool:
        """Give the sequence memory and every prefix that is already computed; False: wait, a longer one is coming."""
        tokens = sequence.tokens
        live = [Source(s.tokens[: s.computed], s.kv) for s in self._active if s.kv is not None]
        source, shared = best_source(tokens, [*live, *self._cache.sources()])
        shared = min(shared, len(tokens) - 1)  # the last token has to run: its logits are not kept
        for other in admitted:
            coming = min(common_prefix(tokens, other.tokens[: other.prompt_length]), len(tokens) - 1)
            if coming > max(shared + _WORTH_WAITING, other.computed):
                return False
        room = min(sequence.limit, len(tokens) + _HEADROOM)
        if source is None:
            sequence.kv = KvBuffer(self._runner.kv_shape, room)
        else:
            sequence.kv = source.kv.fork(shared, room)
            self._cache.touch(source)
        sequence.computed = shared
        self._send(sequence, Started(len(tokens), shared))
        return True

    # -- forward ---------------------------------------------------------------------------------------------------

    def _forward(self, steps: list[tuple[Sequence, int]]) -> list[torch.Tensor]:
        self.steps += 1
        segments: list[Segment] = []
        for sequence, count in steps:
            past, end = sequence.computed, sequence.computed + count
            assert sequence.kv is not None
            sequence.kv = sequence.kv.room_for(past, end)
            segments.append(Segment(sequence.tokens[past:end], past, sequence.kv, sequence.wanted_logits(count)))
        return self._runner.run(segments)

    # -- process ---------------------------------------------------------------------------------------------------

    def _process(self, sequence: Sequence, count: int, logits: torch.Tensor) -> None:
        """`logits [wanted, vocab]` belong to the last `wanted` of the `count` tokens that just ran."""
        sequence.computed += count
        first = sequence.computed - logits.shape[0]
        for position, row in enumerate(logits, start=first):
            if position + 1 < len(sequence.tokens):
                self._emit(sequence, row)  # a forced token: now its log-probability is known
            elif sequence.ending is None:
                self._extend(sequence, row)
        if sequence.ending is not None and sequence.emitted == len(sequence.tokens):
            self._send(sequence, Finished(sequence.ending))
            self._leave(sequence)

    def _extend(self, sequence: Sequence, row: torch.Tensor) -> None:
        """Pick the next token from `row [vocab]`, and append what it forces."""
        constraint, params = sequence.submission.constraint, sequence.submission.params
        if len(sequence.tokens) >= sequence.limit:
            sequence.ending = "length"
            return
        token = pick(row, constraint.allowed() if constraint else None, params, sequence.random)
        if token in self._runner.eos_ids:
            sequence.ending = "stop"
            return
        self._append(sequence, token)
        self._emit(sequence, row)
        if constraint is None or sequence.ending is not None:
            return
        for forced in constraint.forced():
            if sequence.ending is None:
                self._append(sequence, forced)
                if params.top_logprobs is None:
                    self._emit(sequence, None)

    def _append(self, sequence: Sequence, token: int) -> None:
        sequence.tokens.append(token)
        constraint = sequence.submission.constraint
        if constraint is not None:
            constraint.advance(token)
        if constraint is not None and constraint.finished():
            sequence.ending = "stop"
        elif len(sequence.tokens) >= sequence.limit:
            sequence.ending = "length"

    def _emit(self, sequence: Sequence, row: torch.Tensor | None) -> None:
        token = sequence.tokens[sequence.emitted]
        top = sequence.submission.params.top_logprobs
        sequence.emitted += 1
        self._send(sequence, Token(token, None if top is None or row is None else logprobs(row, token, top)))

    # -- leaving ---------------------------------------------------------------------------------------------------

    def _leave(self, sequence: Sequence) -> None:
        """Out of the batch; what it computed stays as a source for later prompts."""
        self._active.remove(sequence)
        if sequence.kv is not None:
            self._cache.add(Source(sequence.tokens[: sequence.computed], sequence.kv))
            sequence.kv = None

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._active.remove(sequence)
        sequence.kv = None
        self._send(sequence, Failed(f"the engine could not run this request: {error}"))

    def _send(self, sequence: Sequence, event: Event) -> None:
        if sequence.ticket.cancelled:
            return
        try:
            sequence.sink(event)
        except RuntimeError:  # the client's event loop is closed: nobody is left to read
            sequence.ticket.cancel()
