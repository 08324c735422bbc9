"""What the engine knows about one request while it has it (worker thread only)."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field

from agentspec.verifier.drafting.consensus import EnsembleSession
from agentspec.verifier.engine.interface import Sink, Submission, Ticket
from agentspec.verifier.engine.paging import Lease
from agentspec.verifier.verification.sampler import Sampler

_PATIENCE_STEPS = 64  # a turn that gets nothing for so many steps counts as one priority more urgent

Rank = tuple[bool, bool, int, int]


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine.

    Attributes:
        order: number of its arrival.
        tokens: at first the prompt's, then also the generated ones.
        room: positions that a sequence may have.
        limit: tokens it may have, `room` and `max_new` considered.
        lease: its blocks; None while it waits.
        starved: steps in which it got nothing.
        announced: the client knows that it was admitted.
        decodes: forwards in which it generated.
    """

    submission: Submission
    ticket: Ticket
    sink: Sink
    order: int
    tokens: list[int]
    room: InitVar[int]
    sampler: Sampler | None = None
    drafts: EnsembleSession | None = None
    lease: Lease | None = None
    starved: int = 0
    announced: bool = False
    decodes: int = 0
    drafted: int = 0
    accepted: int = 0
    lossy: int = 0
    prompt_length: int = field(init=False)
    limit: int = field(init=False)

    def __post_init__(self, room: int) -> None:
        self.prompt_length = len(self.tokens)
        self.limit = min(self.prompt_length + self.submission.max_new, room)

    @property
    def computed(self) -> int:
        """Leading tokens whose keys and values are there."""
        return 0 if self.lease is None else self.lease.table.filled

    @property
    def pending(self) -> int:
        """Tokens that the next forwards have to run."""
        return len(self.tokens) - self.computed

    @property
    def prefilling(self) -> bool:
        """More than the last token is pending: a prompt, or what was lost by preemption."""
        return self.pending > 1

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_length

    @property
    def is_turn(self) -> bool:
        """Neither a probe nor idle work: it is never dropped."""
        return self.submission.priority <= 0 and not self.submission.idle

    @property
    def rank(self) -> Rank:
        """Sorts the more urgent first: turns, probes, idle work; by priority (turns age), then by arrival."""
        priority = self.submission.priority
        if self.is_turn:
            priority -= self.starved // _PATIENCE_STEPS
        return (self.submission.idle, not self.is_turn, priority, self.order)
