"""Wires model, text, grammar and engine, and runs jobs on them. The only module of the server that pulls in torch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

import torch

from agentspec.errors import ApiError, RequestError
from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.scheduler import Limits
from agentspec.verifier.engine.sequence import Event, Failed, Finished, Started, Submission, Ticket, Token
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.server.reply import Assembler, ChatShape, Json, Shape, TextShape, Usage
from agentspec.verifier.server.request import Body, ChatJob, Options, TextJob, chat_job, text_job
from agentspec.verifier.server.toolcalls import OPENING, Delta, ToolCallParser
from agentspec.verifier.text import Text
from agentspec.verifier.verification.grammar import CallRules, GrammarConstraint, GrammarFactory
from agentspec.verifier.weights import Progress, resolve

_OPEN = '{"name": "'


@dataclass(slots=True)
class Run:
    """One submitted request: how to leave it, and what comes out."""

    ticket: Ticket
    events: asyncio.Queue[Event]
    assembler: Assembler
    shape: Shape
    options: Options


class Service:
    """Everything that lives as long as the server."""

    def __init__(self, config: VerifierConfig, progress: Progress | None = None) -> None:
        if config.threads is not None:
            torch.set_num_threads(config.threads)
        folder = str(resolve(config.model, config.cache_dir, progress))
        self.name = config.name
        self.text = Text(folder)
        runner = Runner(folder, dtype=config.dtype, device=config.device)
        self.max_context = min(config.max_context or runner.max_context, runner.max_context)
        runner.eos_ids |= self.text.eos_ids
        eos_ids = sorted(runner.eos_ids)
        self.grammar = GrammarFactory(self.text, vocab_size=runner.vocab_size, eos_ids=eos_ids)
        self.vocab_size = runner.vocab_size
        limits = Limits(config.max_batch, config.prefill_chunk, config.prefill_chunk_busy)
        self.engine = Engine(
            runner, self.text, limits=limits, cache_bytes=config.cache_bytes, max_context=self.max_context
        )

    def close(self) -> None:
        self.engine.close()

    def chat(self, body: Body) -> Run:
        """Start a chat completion.

        Raises:
            RequestError: the body is at fault.
        """
        self._check_model(body)
        job = chat_job(body)
        options = job.options
        submission = Submission(
            prompt=self.text.render(job.messages, job.tools),
            continuation=job.continuation or "",
            constraint=self._constraint(job),
            params=options.params,
            max_new=options.max_new or self.max_context,
            priority=options.priority,
        )
        parser = ToolCallParser() if job.rules is not None and job.continuation is None else None
        shape = ChatShape(self.name, self.text.piece, options.params.top_logprobs is not None)
        return self._start(submission, options, parser, shape)

    def complete(self, body: Body) -> Run:
        """Start a plain completion.

        Raises:
            RequestError: the body is at fault.
        """
        self._check_model(body)
        job: TextJob = text_job(body)
        prompt = self.text.encode(job.prompt) if isinstance(job.prompt, str) else job.prompt
        if any(token >= self.vocab_size for token in prompt):
            raise RequestError(f"`prompt` holds a token id beyond the vocabulary ({self.vocab_size})")
        options = job.options
        submission = Submission(
            prompt=prompt,
            params=options.params,
            max_new=options.max_new or self.max_context,
            priority=options.priority,
        )
        shape = TextShape(self.name, self.text.piece, options.params.top_logprobs is not None)
        return self._start(submission, options, None, shape)

    def _check_model(self, body: Body) -> None:
        model = body.get("model")
        if model is not None and model != self.name:
            raise RequestError(
                f"model {model!r} is not served here; use {self.name!r}", code="model_not_found", status=404
            )

    def _constraint(self, job: ChatJob) -> GrammarConstraint | None:
        if job.rules is None:
            return None
        if job.continuation is None:
            closer = "</tool_call>" in self.text.template
            return self.grammar.constraint(replace(job.rules, closer=closer))
        return self._continued(job.rules, job.continuation)

    def _continued(self, rules: CallRules, written: str) -> GrammarConstraint | None:
        """A constraint that has read `written` and ends with the call that is open there (or the first one to come)."""
        openings = list(OPENING.finditer(written))
        single = replace(rules, text=not openings, parallel=False)
        constraint = self.grammar.constraint(single)
        tail = _OPEN + written[openings[-1].end() :] if openings else written
        if constraint.accept_text(self.text.encode(tail)):
            return constraint
        if rules.required:
            raise RequestError("the continued message cannot become a call of these tools", code="invalid_continuation")
        return None

    def _start(self, submission: Submission, options: Options, parser: ToolCallParser | None, shape: Shape) -> Run:
        length = len(submission.prompt) + len(self.text.encode(submission.continuation))
        if length >= self.max_context:
            message = f"the prompt has {length} tokens, this model takes {self.max_context - 1}"
            raise RequestError(message, code="context_length_exceeded")
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[Event] = asyncio.Queue()

        def deliver(event: Event) -> None:  # on the worker thread
            loop.call_soon_threadsafe(events.put_nowait, event)

        ticket = self.engine.submit(submission, deliver)
        return Run(ticket, events, Assembler(self.text.piece, options.stops, parser), shape, options)


@dataclass(slots=True)
class _Progress:
    deltas: list[Delta]
    tokens: list[Token]
    reason: str | None


async def _progress(run: Run, usage: Usage) -> AsyncIterator[_Progress]:
    """What each event adds; the last one carries the reason.

    Raises:
        ApiError: the engine failed.
    """
    while True:
        event = await run.events.get()
        match event:
            case Started():
                usage.prompt, usage.cached = event.prompt_tokens, event.cached_tokens
                yield _Progress([], [], None)
            case Token():
                usage.completion += 1
                deltas = run.assembler.feed(event.id)
                if run.assembler.stopped:
                    run.ticket.cancel()
                    yield _Progress(deltas + run.assembler.end(), [event], _reason(run, "stop"))
                    return
                yield _Progress(deltas, [event], None)
            case Finished():
                yield _Progress(run.assembler.end(), [], _reason(run, event.reason))
                return
            case Failed():
                raise ApiError(event.message, code="engine_failed", status=500)


def _reason(run: Run, reason: str) -> str:
    return "tool_calls" if reason == "stop" and run.assembler.calls else reason


async def stream(run: Run) -> AsyncIterator[Json]:
    """The chunks of a streamed answer, each as soon as its token is there.

    Raises:
        ApiError: the engine failed.
    """
    usage = Usage()
    waiting: list[Token] = []  # tokens whose text is still held back: their log-probabilities go with the next chunk
    async for step in _progress(run, usage):
        waiting += step.tokens
        if not step.tokens and step.reason is None:
            first = run.shape.first()
            if first is not None:
                yield first
        for chunk in run.shape.chunks(step.deltas, waiting):
            yield chunk
            waiting = []
        if step.reason is not None:
            yield run.shape.last(step.reason, waiting)
    if run.options.include_usage:
        yield run.shape.usage(usage)


async def whole(run: Run) -> Json:
    """The body of an answer that is not streamed.

    Raises:
        ApiError: the engine failed.
    """
    usage = Usage()
    deltas: list[Delta] = []
    tokens: list[Token] = []
    reason = "stop"
    async for step in _progress(run, usage):
        deltas += step.deltas
        tokens += step.tokens
        reason = step.reason or reason
    return run.shape.whole(deltas, tokens, reason, usage)
