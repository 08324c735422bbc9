"""What a caller of the engine hands in and gets back: submissions, events, figures. Nothing here runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agentspec.verifier.drafting.protocol import Drafter
from agentspec.verifier.verification.constraint import Constraint
from agentspec.verifier.verification.sampling import Logprobs, SamplingParams


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
    """The last event of a sequence that ended by itself.

    Attributes:
        reason: `stop` or `length`.
        drafted_tokens: draft tokens that were put to the test.
        accepted_tokens: those of them that stood.
        saved_steps: forwards that plain decoding would have needed more.
        lossy_tokens: tokens that a `Tolerance` let pass although another one was picked.
    """

    reason: str
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    saved_steps: int = 0
    lossy_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    """The last event of a sequence that the engine did not run to its end.

    Attributes:
        code: `engine_failed`; `dropped` (a probe or idle work that had to make room); `too_long` (it can never fit in
            the key/value memory).
    """

    message: str
    code: str = "engine_failed"


Event = Started | Token | Finished | Failed
Sink = Callable[[Event], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """See `VerifierConfig` for the meaning of each."""

    max_batch: int
    prefill_chunk: int
    prefill_chunk_busy: int


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine works.

    Attributes:
        cache_bytes: key/value memory in all, for running and for finished sequences.
        max_context: tokens per sequence.
        drafters: who guesses tokens ahead; none: plain decoding (what a grammar forces is still run at once).
    """

    limits: Limits
    cache_bytes: int
    max_context: int
    drafters: tuple[Drafter, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to the engine.

    Attributes:
        prompt: token ids, not empty.
        max_new: generated tokens at most.
        priority: lower runs sooner; above 0 is a probe, which may be dropped under load.
        continuation: text that the answer already begins with: the engine tokenizes it the way a live or finished
            sequence with the same prompt generated it, so that its keys and values can be reused.
        request_id: drafts from outside name it.
        session: requests of one agent's conversation share it; None: unknown.
        workspace: text is shared as drafts within it (a tenant), never across.
        expected: texts that the answer may contain (predicted output, a rejected probe's call).
        speculate: draft tokens for it.
        idle: a guess made while nothing else is to do: runs after all else, dropped when any work arrives.
    """

    prompt: list[int]
    params: SamplingParams
    max_new: int
    priority: int = 0
    continuation: str = ""
    constraint: Constraint | None = None
    request_id: str = ""
    session: str | None = None
    workspace: str = ""
    expected: tuple[str, ...] = ()
    speculate: bool = True
    idle: bool = False


@dataclass(slots=True)
class Ticket:
    """The submitter's handle; `cancel` may be called from any thread, more than once."""

    cancelled: bool = False

    def cancel(self) -> None:
        """Leave within one step; no further events follow."""
        self.cancelled = True


@dataclass(frozen=True, slots=True)
class DraftCount:
    """Draft tokens of one source: how many were put to the test, how many stood."""

    drafted: int = 0
    accepted: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine's figures at one moment; counters since its start.

    Attributes:
        running: sequences that hold blocks.
        waiting: sequences that hold none (arrived, or preempted).
        blocks_used: held by sequences (shared ones counted once).
        blocks_cached: held by the tree of prefixes alone: free when needed.
        blocks_free: held by nobody.
        block_tokens: positions of a block.
        steps: forwards.
        prefill_tokens: prompt tokens that were run.
        decode_tokens: generated tokens.
        cached_tokens: prompt tokens that did not have to run.
        drafts: by drafter (`forced` is the grammar).
        preemptions: sequences that lost their blocks and were computed again.
        dropped: probes and idle work that made room.
        evicted_blocks: cached blocks given to somebody else.
        step_s: a forward's time, decaying average.
    """

    running: int = 0
    waiting: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    blocks_free: int = 0
    block_tokens: int = 0
    steps: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    cached_tokens: int = 0
    drafts: Mapping[str, DraftCount] = field(default_factory=dict)
    preemptions: int = 0
    dropped: int = 0
    evicted_blocks: int = 0
    step_s: float = 0.0
