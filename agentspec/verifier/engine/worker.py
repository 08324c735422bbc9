"""The worker: one thread that repeats receive -> schedule -> forward -> process."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Sequence as Seq

import torch

from agentspec.verifier.drafting.protocol import Drafter
from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.engine.branching import plant
from agentspec.verifier.engine.continuation import Codec, continued, kept_answers
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import (
    EngineOptions,
    EngineStats,
    Event,
    Failed,
    Finished,
    Sink,
    Started,
    Submission,
    Ticket,
    Token,
)
from agentspec.verifier.engine.job import Job
from agentspec.verifier.engine.kv import BLOCK_TOKENS
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.scheduler import Plan, Scheduler
from agentspec.verifier.engine.sequence import Sequence
from agentspec.verifier.engine.speculation import Speculation
from agentspec.verifier.verification.accept import Check, Outcome, verify
from agentspec.verifier.verification.sampler import Sampler

_log = logging.getLogger(__name__)
_PROBE_SLOWDOWN = 1.15  # what probes may add to the time of a running turn's token
_PAUSE_S = 0.005
_FOLLOW = 0.1

_Arrival = tuple[Submission, Ticket, Sink]


class Engine:
    """Runs submissions on one model.

    `submit`, `close`, `running`, `stats` and `Ticket.cancel` are safe from any thread; the rest is the worker's.
    """

    def __init__(self, runner: Runner, codec: Codec, options: EngineOptions) -> None:
        self._runner = runner
        self._codec = codec
        self._max_context = options.max_context
        blocks = max(2, options.cache_bytes // (runner.kv_shape.bytes_per_token * BLOCK_TOKENS))
        self._store = runner.store(blocks)
        self._scheduler = Scheduler(
            Paging(blocks, BLOCK_TOKENS), options.limits, lambda rows: runner.cost.spare(rows, _PROBE_SLOWDOWN)
        )
        self.redraft(options.drafters)
        self._inbox: queue.SimpleQueue[_Arrival | None] = queue.SimpleQueue()
        self._arrivals = 0
        self._stopping = False
        self._stuck = False
        self._counts: Counter[str] = Counter()
        self._step_s = 0.0
        self._thread = threading.Thread(target=self._loop, name="verifier-engine", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Sequences that are waiting or running."""
        return len(self._scheduler.active)

    def submit(self, submission: Submission, sink: Sink) -> Ticket:
        """Queue a request. `sink` is called from the worker thread: `Started`, `Token`s, then `Finished` or `Failed`.

        A cancelled submission gets no last event.
        """
        ticket = Ticket()
        self._inbox.put((submission, ticket, sink))
        return ticket

    def stats(self) -> EngineStats:
        """The figures of this moment."""
        pool, tree = self._scheduler.paging.pool, self._scheduler.paging.tree
        active = list(self._scheduler.active)
        running = sum(s.lease is not None for s in active)
        counts = self._counts
        return EngineStats(
            running=running,
            waiting=len(active) - running,
            blocks_used=pool.used,
            blocks_cached=pool.idle,
            blocks_free=pool.free,
            block_tokens=BLOCK_TOKENS,
            steps=counts["steps"],
            prefill_tokens=counts["prefill"],
            decode_tokens=counts["decode"],
            cached_tokens=counts["cached"],
            drafts=self._speculation.counts(),
            preemptions=self._scheduler.preemptions,
            dropped=self._scheduler.dropped,
            evicted_blocks=tree.evicted,
            step_s=self._step_s,
        )

    def redraft(self, drafters: Seq[Drafter]) -> None:
        """Have others draft from now on, of whom nothing is known yet. Only while nothing runs."""
        self._speculation = Speculation(drafters, self._runner.cost, self._runner.vocab_size)

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
                for sequence in list(self._scheduler.active):
                    self._fail(sequence, error)

    # -- receive ---------------------------------------------------------------------------------------------------

    def _receive(self) -> None:
        """Take in arrivals (waiting for one when idle) and let cancelled sequences go."""
        while not self._stopping:
            idle = not self._scheduler.active
            try:
                arrival = self._inbox.get(block=idle or self._stuck, timeout=None if idle else _PAUSE_S)
            except queue.Empty:
                break
            if arrival is not None:
                self._join(*arrival)
        for sequence in [s for s in self._scheduler.active if s.ticket.cancelled]:
            self._leave(sequence)

    def _join(self, submission: Submission, ticket: Ticket, sink: Sink) -> None:
        self._arrivals += 1
        scheduler = self._scheduler
        tokens = submission.prompt + self._tokenize_continuation(submission)
        room = min(self._max_context, scheduler.room)
        sequence = Sequence(submission, ticket, sink, self._arrivals, tokens, room)
        if len(tokens) + 1 > scheduler.room:
            message = (
                f"{len(tokens)} prompt tokens, but the key/value memory holds {scheduler.room - 1} for one request"
            )
            self._send(sequence, Failed(message, "too_long"))
            return
        if len(tokens) >= sequence.limit:
            self._send(sequence, Started(len(tokens), 0))
            self._send(sequence, Finished("length"))
            return
        scheduler.join(sequence)
        try:
            sequence.sampler = Sampler(submission.params, submission.constraint, tokens, self._runner.vocab_size)
            self._speculation.open(sequence)
        except Exception as error:
            _log.exception("a sequence could not be set up")
            self._fail(sequence, error)

    def _tokenize_continuation(self, submission: Submission) -> list[int]:
        if not submission.continuation:
            return []
        prompt = submission.prompt
        live = [s.tokens[len(prompt) :] for s in self._scheduler.active if s.tokens[: len(prompt)] == prompt]
        kept = kept_answers(self._scheduler.paging.tree, prompt)
        return continued(self._codec, submission.continuation, [*live, *kept])

    # -- schedule --------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        plan = self._scheduler.plan()
        self._tell(plan)
        self._stuck = not plan.work
        if self._stopping or not plan.work:
            return
        jobs = [Job(sequence, rows) for sequence, rows in plan.work]
        self._draft(jobs, plan)
        for job, logits in zip(jobs, self._forward(jobs, plan), strict=True):
            try:
                self._process(job, logits)
            except Exception as error:  # a grammar or a sampler fault belongs to one sequence
                _log.exception("a sequence failed")
                self._fail(job.sequence, error)

    def _tell(self, plan: Plan) -> None:
        for sequence in plan.admitted:
            if not sequence.announced:
                sequence.announced = True
                self._counts["cached"] += sequence.computed
                self._send(sequence, Started(sequence.prompt_length, sequence.computed))
        for sequence in plan.dropped:
            self._close_drafts(sequence)
            self._send(sequence, Failed("dropped: the engine is busy with more urgent work", "dropped"))

    def _draft(self, jobs: list[Job], plan: Plan) -> None:
        """Add drafts to the sequences that decode, as far as they pay and there is room."""
        decoding = [job for job in jobs if job.generates and job.rows == 1]
        base_rows = sum(job.rows for job in jobs)
        trees = self._speculation.trees([job.sequence for job in decoding], base_rows) if decoding else []
        for job, tree in zip(decoding, trees, strict=True):
            if len(tree) and job.sequence.lease is not None:
                planting = plant(tree, job.sequence.lease.table, self._scheduler.paging)
                job.planted = planting.planted
                plan.copies += planting.copies

    # -- forward ---------------------------------------------------------------------------------------------------

    def _forward(self, jobs: list[Job], plan: Plan) -> list[torch.Tensor]:
        start = time.perf_counter()
        self._store.copy(plan.copies)
        segments = [job.segment() for job in jobs]
        try:
            logits = self._runner.run(segments, self._store)
        except Exception:
            for job in jobs:
                job.abandon(self._scheduler.paging)
            raise
        seconds = time.perf_counter() - start
        rows = sum(len(segment.tokens) for segment in segments)
        self._runner.cost.observe(rows, seconds)
        self._step_s += (_FOLLOW if self._step_s else 1.0) * (seconds - self._step_s)
        self._counts["steps"] += 1
        self._counts["prefill"] += sum(job.rows for job in jobs if job.rows > 1 or not job.generates)
        return logits

    # -- process ---------------------------------------------------------------------------------------------------

    def _process(self, job: Job, logits: torch.Tensor) -> None:
        """`logits [rows, vocab]` belong to the last pending token and to its drafts; none in a prompt's middle."""
        sequence, lease = job.sequence, job.sequence.lease
        assert lease is not None and sequence.sampler is not None
        tree = job.planted.tree if job.planted else TokenTree()
        outcome = Outcome((), (), None)
        try:
            if job.generates:
                outcome = verify(self._check(sequence, tree, job.in_order(logits)))
        finally:
            job.settle(outcome.path, self._scheduler.paging)
        sequence.tokens += outcome.tokens
        self._scheduler.paging.publish(lease, sequence.tokens)
        if job.generates:
            self._emit(sequence, tree, outcome)

    def _check(self, sequence: Sequence, tree: TokenTree, logits: torch.Tensor) -> Check:
        assert sequence.sampler is not None
        at = len(sequence.tokens)
        return Check(sequence.sampler, tree, logits, at, sequence.limit - at, self._runner.eos_ids)

    def _emit(self, sequence: Sequence, tree: TokenTree, outcome: Outcome) -> None:
        sequence.decodes += 1
        sequence.lossy += outcome.lossy
        self._counts["decode"] += len(outcome.picked)
        self._speculation.learn(sequence, tree, outcome.path)
        if sequence.drafts is not None:
            sequence.drafts.extend(outcome.tokens)
        for picked in outcome.picked:
            self._send(sequence, Token(picked.token, picked.logprobs))
        if outcome.ending is not None:
            saved = max(0, sequence.generated - sequence.decodes)
            counts = sequence.drafted, sequence.accepted, saved, sequence.lossy
            self._send(sequence, Finished(outcome.ending, *counts))
            self._leave(sequence, open_session=sequence.is_turn)

    # -- leaving ---------------------------------------------------------------------------------------------------

    def _leave(self, sequence: Sequence, *, open_session: bool = False) -> None:
        """Out of the batch; what it computed stays for later prompts."""
        self._scheduler.leave(sequence, open_session=open_session)
        self._close_drafts(sequence)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        self._scheduler.discard(sequence)
        self._close_drafts(sequence)
        self._send(sequence, Failed(f"the engine could not run this request: {error}"))

    def _close_drafts(self, sequence: Sequence) -> None:
        if sequence.drafts is not None:
            sequence.drafts.close()
            sequence.drafts = None

    def _send(self, sequence: Sequence, event: Event) -> None:
        if sequence.ticket.cancelled:
            return
        try:
            sequence.sink(event)
        except RuntimeError:  # the client's event loop is closed: nobody is left to read
            sequence.ticket.cancel()
        except Exception:
            _log.exception("a submitter could not take an event; its request is cancelled")
            sequence.ticket.cancel()
