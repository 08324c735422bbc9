"""Wires model, text, grammar and engine, and starts jobs on them. The only module of the server that loads a model."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import torch

from agentspec.errors import RequestError
from agentspec.verifier.config import VerifierConfig
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import EngineOptions, Event, Limits, Sink, Submission
from agentspec.verifier.engine.worker import Engine
from agentspec.verifier.server.answer import Choice, Shape
from agentspec.verifier.server.assembler import Assembler
from agentspec.verifier.server.drafters import drafters_for
from agentspec.verifier.server.fields import Body
from agentspec.verifier.server.idle import Idler
from agentspec.verifier.server.inflight import InFlight
from agentspec.verifier.server.metrics import Metrics
from agentspec.verifier.server.options import Options
from agentspec.verifier.server.reasoning import ThinkSplitter
from agentspec.verifier.server.reply import ChatShape, TextShape
from agentspec.verifier.server.request import ChatJob, chat_job, text_job
from agentspec.verifier.server.responses_reply import ResponseShape
from agentspec.verifier.server.responses_request import response_job
from agentspec.verifier.server.runs import Run
from agentspec.verifier.server.toolcalls import ToolCallParser
from agentspec.verifier.server.turns import Turn, Turns
from agentspec.verifier.text import Text
from agentspec.verifier.verification.grammar import GrammarFactory
from agentspec.verifier.weights import Progress, resolve


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
        self.grammar = GrammarFactory(self.text, vocab_size=runner.vocab_size, eos_ids=sorted(runner.eos_ids))
        self.vocab_size = runner.vocab_size
        limits = Limits(config.max_batch, config.prefill_chunk, config.prefill_chunk_busy)
        self.external = ExternalDrafter(self.text)
        self._drafters = drafters_for(config, self.text, self.external, runner)
        options = EngineOptions(limits, config.cache_bytes, self.max_context, self._drafters)
        self.engine = Engine(runner, self.text, options)
        self.turns = Turns(self.text, self.grammar)
        self.in_flight = InFlight()
        self.idler = Idler(self.engine, self.text, self.max_context)
        self.metrics = Metrics(self.name, self.engine)

    def close(self) -> None:
        self.engine.close()
        for drafter in self._drafters:
            if isinstance(drafter, SuffixDrafter):
                drafter.close()

    def chat(self, body: Body) -> Run:
        """Start a chat completion.

        Raises:
            RequestError: the body is at fault.
        """
        self.check_model(body.get("model"))
        job = chat_job(body)
        return self._turn(job, ChatShape(self.name, self.text.spoken, job.options))

    def respond(self, body: Body) -> Run:
        """Start a response.

        Raises:
            RequestError: the body is at fault.
        """
        self.check_model(body.get("model"))
        job = response_job(body)
        return self._turn(job, ResponseShape(self.name, self.text.spoken, job.options, body))

    def complete(self, body: Body) -> Run:
        """Start plain completions.

        Raises:
            RequestError: the body is at fault.
        """
        self.check_model(body.get("model"))
        job = text_job(body)
        options = job.options
        run = self._run(options, TextShape(self.name, self.text.piece, options), len(job.prompts))
        prompts = [self.text.encode(prompt) if isinstance(prompt, str) else prompt for prompt in job.prompts]
        if any(token >= self.vocab_size for prompt in prompts for token in prompt):
            raise RequestError(f"`prompt` holds a token id beyond the vocabulary ({self.vocab_size})")
        run.choices += [
            Choice(index, Assembler(self.text.piece, options.stops)) for index in range(len(run.request_ids))
        ]
        submissions = [
            self._submission(run, index, prompts[index // options.choices]) for index in range(len(run.choices))
        ]
        return self._start(run, submissions)

    def offer(self, name: str, drafts: tuple[str, ...]) -> int:
        """Texts that a running request's answer may contain; how many requests have this name.

        Raises:
            RequestError: none has (404).
        """
        runs = self.in_flight.called(name)
        for request_id in [request_id for run in runs for request_id in run.request_ids]:
            self.external.offer(request_id, drafts)
        return len(runs)

    def left(self, run: Run) -> None:
        """A run's client has its answer, or has gone."""
        run.cancel()
        self.in_flight.remove(run)
        self.metrics.ended(run)
        if run.job is not None and run.finished and len(run.choices) == 1:
            self.idler.after(run.job, run.choices[0])

    def _turn(self, job: ChatJob, shape: Shape) -> Run:
        turn, options = self.turns.prepare(job), job.options
        run = self._run(options, shape, 1)
        run.job = job
        run.choices += [Choice(index, self._assembler(job, turn)) for index in range(options.choices)]
        submissions = [
            replace(
                self._submission(run, index, turn.prompt),
                continuation=turn.continuation,
                constraint=turn.constraint(),
            )
            for index in range(options.choices)
        ]
        self.idler.arrived(options.hints.session)
        return self._start(run, submissions)

    def _assembler(self, job: ChatJob, turn: Turn) -> Assembler:
        """A continued message comes back as raw text, anything else in its parts."""
        if job.continuation is not None:
            return Assembler(self.text.piece, job.options.stops)
        return Assembler(
            self.text.spoken,
            job.options.stops,
            splitter=ThinkSplitter(opened=turn.opened),
            parser=ToolCallParser(job.callable) if job.callable else None,
        )

    def _run(self, options: Options, shape: Shape, prompts: int) -> Run:
        names = (shape.id,) if options.hints.request_id is None else (shape.id, options.hints.request_id)
        request_ids = tuple(f"{shape.id}.{index}" for index in range(prompts * options.choices))
        return Run(shape, options, names, request_ids, shared=options.choices)

    def _submission(self, run: Run, index: int, prompt: list[int]) -> Submission:
        options, params = run.options, run.options.params
        if params.seed is not None and index:
            params = replace(params, seed=params.seed + index)
        return Submission(
            prompt=prompt,
            params=params,
            max_new=options.max_new or self.max_context,
            priority=options.priority,
            request_id=run.request_ids[index],
            session=options.hints.session,
            workspace=options.hints.workspace,
            expected=options.hints.expected,
            speculate=options.hints.speculate,
        )

    def check_model(self, model: object) -> None:
        """Whether a request's model is the one that is here; None is.

        Raises:
            RequestError: it is another one (404).
        """
        if model is not None and model != self.name:
            raise RequestError(
                f"model {model!r} is not served here; use {self.name!r}", code="model_not_found", status=404
            )

    def _start(self, run: Run, submissions: list[Submission]) -> Run:
        """Hand all of them to the engine, or none.

        Raises:
            RequestError: a prompt is too long, or a token does not exist.
        """
        for submission in submissions:
            length = len(submission.prompt) + len(self.text.encode(submission.continuation))
            if length >= self.max_context:
                message = f"the prompt has {length} tokens, this model takes {self.max_context - 1}"
                raise RequestError(message, code="context_length_exceeded")
        if any(token >= self.vocab_size for token in run.options.params.logit_bias):
            raise RequestError(f"`logit_bias` holds a token id beyond the vocabulary ({self.vocab_size})")
        loop = asyncio.get_running_loop()
        for index, submission in enumerate(submissions):
            run.tickets.append(self.engine.submit(submission, _deliver(run, index, loop)))
        self.in_flight.add(run)
        return run


def _deliver(run: Run, index: int, loop: asyncio.AbstractEventLoop) -> Sink:
    def deliver(event: Event) -> None:  # on the worker thread
        loop.call_soon_threadsafe(run.events.put_nowait, (index, event))

    return deliver
