"""Who runs in the next step, how many tokens of each, and on which blocks: no tensor is touched here.

Turns go before probes, probes before idle work, lower priority numbers first, then older ones. Where memory is short,
what finished requests left goes first (that of sessions waiting for a tool last), then idle work and probes are
dropped, then less urgent turns lose their blocks and are computed again later. The most urgent sequence always finds
room: one that could not have it alone is refused on arrival.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from agentspec.verifier.engine.interface import Limits
from agentspec.verifier.engine.paging import Lease, Paging
from agentspec.verifier.engine.radix import common_prefix
from agentspec.verifier.engine.sequence import Sequence
from agentspec.verifier.engine.table import Copy

_WORTH_WAITING = 16  # tokens; a prefix that another sequence is about to compute is waited for when it saves this many


@dataclass(slots=True)
class Plan:
    """One step.

    Attributes:
        work: sequences and how many of their pending tokens to run; their blocks are ready once `copies` are done.
        admitted: sequences that got a lease in this step.
        dropped: probes and idle work that had to go; they hold nothing any more.
    """

    work: list[tuple[Sequence, int]] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    admitted: list[Sequence] = field(default_factory=list)
    dropped: list[Sequence] = field(default_factory=list)


class Scheduler:
    """Sequences and the memory that they share.

    Args:
        spare: from the rows of a forward to how many more would not make it much slower.
    """

    def __init__(self, paging: Paging, limits: Limits, spare: Callable[[int], int]) -> None:
        self.paging = paging
        self.active: list[Sequence] = []
        self._limits = limits
        self._spare = spare
        self.preemptions = 0
        self.dropped = 0

    @property
    def room(self) -> int:
        """Tokens that one sequence may have: all blocks but one, which copying a shared block may need."""
        return (self.paging.pool.total - 1) * self.paging.block_tokens

    def join(self, sequence: Sequence) -> None:
        """A sequence has arrived."""
        session = sequence.submission.session
        if session is not None:
            self.paging.tree.close_session(session)
        self.active.append(sequence)

    def leave(self, sequence: Sequence, *, open_session: bool = False) -> None:
        """A sequence is over; what it computed stays as long as nobody needs the room.

        Args:
            open_session: its session is expected to go on.
        """
        self.active.remove(sequence)
        self._yield_blocks(sequence, sequence.submission.session if open_session else None)

    def discard(self, sequence: Sequence) -> None:
        """A sequence failed in the middle of a step: what it computed is not to be trusted."""
        self.active.remove(sequence)
        if sequence.lease is not None:
            self.paging.drop(sequence.lease.table)
            sequence.lease = None

    def plan(self) -> Plan:
        """Decide the next step."""
        plan = Plan()
        ranked = sorted(self.active, key=lambda s: s.rank)
        if ranked and not ranked[0].submission.idle:
            for sequence in [s for s in ranked if s.submission.idle]:
                self._drop(sequence, plan)
        seated = [s for s in ranked if s in self.active][: self._limits.max_batch]
        self._admit(seated, plan)
        for sequence, count in shares([s for s in seated if s.lease is not None], self._limits, self._spare):
            if sequence.lease is not None and self._reserve(sequence, sequence.computed + count, plan):
                plan.work.append((sequence, count))
        running = {id(sequence) for sequence, _ in plan.work}
        for sequence in self.active:
            sequence.starved += id(sequence) not in running
        return plan

    # -- admission -------------------------------------------------------------------------------------------------

    def _admit(self, seated: list[Sequence], plan: Plan) -> None:
        """Give blocks to those without, the most urgent first; where one has to wait for room, so do all after it."""
        for sequence in seated:
            if sequence.lease is None and sequence in self.active:
                lease = self._lease(sequence)
                while not self._fits(sequence, lease):
                    victim = self._victim(sequence, plan, growing=False)
                    if victim is None:
                        self.paging.drop(lease.table)
                        return
                    self._yield_or_drop(victim, plan)
                if self._is_coming(sequence, lease):
                    self.paging.drop(lease.table)
                    continue
                sequence.lease = lease
                plan.admitted.append(sequence)

    def _lease(self, sequence: Sequence) -> Lease:
        running = [(s.lease, s.tokens) for s in self.active if s.lease is not None]
        return self.paging.open(sequence.tokens, running)

    def _fits(self, sequence: Sequence, lease: Lease) -> bool:
        """Whether all pending tokens find room, beside what those already admitted still have to run."""
        wanted = self.paging.needed(lease.table, len(sequence.tokens) + 1)
        for other in self.active:
            if other.lease is not None and other.rank < sequence.rank:
                wanted += self.paging.needed(other.lease.table, len(other.tokens) + 1)
        return wanted <= self.paging.available

    def _is_coming(self, sequence: Sequence, lease: Lease) -> bool:
        """Whether a more urgent sequence is about to compute much of this one's prompt."""
        usable = len(sequence.tokens) - 1
        for other in self.active:
            if other.lease is not None and other.prefilling and other.rank < sequence.rank:
                coming = min(common_prefix(sequence.tokens, other.tokens), usable)
                if coming > max(lease.table.filled + _WORTH_WAITING, other.computed):
                    return True
        return False

    # -- making room -----------------------------------------------------------------------------------------------

    def _reserve(self, sequence: Sequence, end: int, plan: Plan) -> bool:
        assert sequence.lease is not None
        while True:
            copies = self.paging.extend(sequence.lease.table, end)
            if copies is not None:
                plan.copies += copies
                return True
            victim = self._victim(sequence, plan, growing=True)
            if victim is None:
                return False
            self._yield_or_drop(victim, plan)

    def _victim(self, sequence: Sequence, plan: Plan, *, growing: bool) -> Sequence | None:
        """The least urgent sequence that has to make room: to admit one, only those of lower priority have to."""
        working = {id(s) for s, _ in plan.work}
        own = sequence.rank if growing else sequence.rank[:3]
        holders = [s for s in self.active if s.lease is not None and s is not sequence and id(s) not in working]
        worst = max(holders, key=lambda s: s.rank, default=None)
        if worst is None or (worst.rank if growing else worst.rank[:3]) <= own:
            return None
        return worst

    def _yield_or_drop(self, victim: Sequence, plan: Plan) -> None:
        if victim.is_turn:
            self.preemptions += 1
            self._yield_blocks(victim)
        else:
            self._drop(victim, plan)
        if victim in plan.admitted:
            plan.admitted.remove(victim)

    def _drop(self, sequence: Sequence, plan: Plan) -> None:
        self.dropped += 1
        plan.dropped.append(sequence)
        self.leave(sequence)

    def _yield_blocks(self, sequence: Sequence, session: str | None = None) -> None:
        if sequence.lease is not None:
            self.paging.close(sequence.lease, sequence.tokens, session)
            sequence.lease = None


def shares(seated: Seq[Sequence], limits: Limits, spare: Callable[[int], int]) -> list[tuple[Sequence, int]]:
    """How many tokens of each sequence to run, the most urgent first.

    Each decoding sequence runs one. Prompts share a budget: small while a sequence of the same or higher priority is
    decoding, so that a newcomer never holds it up for long. While a turn is decoding, probes get only the rows that
    hardly slow it down, but always one.
    """
    work: list[tuple[Sequence, int]] = []
    decoding = [s for s in seated if not s.prefilling]
    most_urgent = min((s.rank[:3] for s in decoding), default=None)
    turns = sum(s.is_turn for s in decoding)
    left = max(1, spare(turns)) if turns else None
    used = 0
    for sequence in seated:
        count = 1
        if sequence.prefilling:
            busy = most_urgent is not None and most_urgent <= sequence.rank[:3]
            budget = limits.prefill_chunk_busy if busy else limits.prefill_chunk
            count = min(sequence.pending, budget - used)
        if left is not None and not sequence.is_turn:
            count = min(count, left)
            left -= max(count, 0)
        if sequence.prefilling:
            used += max(count, 0)
        if count > 0:
            work.append((sequence, count))
    return work
