"""One sequence's part of a step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from agentspec.verifier.engine.branching import Planted
from agentspec.verifier.engine.forward import Segment, chain
from agentspec.verifier.engine.paging import Paging
from agentspec.verifier.engine.sequence import Sequence


@dataclass(slots=True)
class Job:
    """What of a sequence runs in one forward.

    Attributes:
        rows: pending tokens that run.
        planted: drafts that run with the last of them.
        generates: all pending tokens run, so that a token can be picked.
    """

    sequence: Sequence
    rows: int
    planted: Planted | None = None
    generates: bool = field(init=False)

    def __post_init__(self) -> None:
        self.generates = self.rows == self.sequence.pending

    def segment(self) -> Segment:
        """The rows to run."""
        sequence = self.sequence
        assert sequence.lease is not None
        if self.planted is not None:
            return self.planted.segment(sequence.tokens[-1])
        past = sequence.computed
        table = sequence.lease.table.blocks
        return chain(sequence.tokens[past : past + self.rows], past, table, 1 if self.generates else 0)

    def in_order(self, logits: torch.Tensor) -> torch.Tensor:
        """Rows in the order of the tree's nodes, the sequence's last token first; `[1 + nodes, vocab]`."""
        if self.planted is None or self.planted.rows == tuple(range(1, len(self.planted.rows) + 1)):
            return logits
        return logits[[0, *self.planted.rows]]

    def settle(self, path: Collection[int], paging: Paging) -> None:
        """The forward is done, and of the drafts the nodes of `path` stood."""
        lease = self.sequence.lease
        assert lease is not None
        if self.planted is not None:
            lease.table = self.planted.settle(path, paging)
        else:
            lease.table.filled += self.rows

    def abandon(self, paging: Paging) -> None:
        """The forward failed."""
        if self.planted is not None:
            self.planted.abandon(paging)
