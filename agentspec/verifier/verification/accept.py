"""How much of a draft stands: from the root, pick a token, follow the node that carries it, stop where none does.

Every token in the answer is picked from the model's own distribution by randomness that is fixed by (seed, position)
(`noise`). So a seed's answer is the same with any drafts, and a drafted token stands with probability p(token): no less
than with rejection sampling (`rejection`), which for a draft that is not itself random accepts with min(1, p/1) = p.
Only for drafts that were drawn from a known distribution q does rejection sampling accept more; it gives the same
distribution, but another answer than without drafts. So matched noise is the default.

Only picked tokens advance penalties and grammar: a rejected branch is never entered, nothing has to be undone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.verification.batch import pick_tokens
from agentspec.verifier.verification.lossy import tolerated
from agentspec.verifier.verification.sampler import Picked, Sampler


@dataclass(frozen=True, slots=True)
class Check:
    """One sequence's drafts after a forward.

    Attributes:
        logits: `[1 + len(tree), vocab]` float32: first the row after the sequence as it stands, then one a node.
        position: index in the sequence (prompt included) of the first token to pick.
        room: tokens that may still come, 1 or more.
        eos_ids: tokens that end the answer; they are not part of it.
    """

    sampler: Sampler
    tree: TokenTree
    logits: torch.Tensor
    position: int
    room: int
    eos_ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it.

    Attributes:
        picked: the new tokens; the sampler has advanced over them.
        path: the nodes that stand, in order; their keys and values are right. `picked[i]` is node `path[i]`'s token; at
            most one more token was picked than nodes stand.
        ending: `stop` (end of sequence, or the grammar is complete), `length` (no room left), or None.
        lossy: how many tokens of `path` were let pass by a `Tolerance` although another one was picked.
    """

    picked: tuple[Picked, ...]
    path: tuple[int, ...]
    ending: str | None
    lossy: int = 0

    @property
    def tokens(self) -> list[int]:
        """The new tokens' ids."""
        return [picked.token for picked in self.picked]


def verify(check: Check) -> Outcome:
    """Verify one sequence's drafts."""
    return verify_all([check])[0]


def verify_all(checks: Sequence[Check]) -> list[Outcome]:
    """Verify a batch, all sequences one depth at a time, so that their picks share kernels.

    Raises:
        RuntimeError: a grammar refused a token that it had allowed, or no token can be picked.
    """
    walks = [Walk(check) for check in checks]
    known = look_ahead([check for check in checks if check.logits.is_cuda and check.sampler.path_free])
    running = walks
    while running:
        unknown = [walk for walk in running if id(walk.check) not in known]
        picked = iter(pick_tokens([(w.check.sampler, w.row, w.position) for w in unknown]))
        for walk in running:
            tokens = known.get(id(walk.check))
            walk.step(next(picked) if tokens is None else tokens[walk.node + 1])
        running = [walk for walk in running if not walk.over]
    return [walk.outcome() for walk in walks]


def look_ahead(checks: Sequence[Check]) -> dict[int, list[int]]:
    """By check (its `id`) the pick after every row, whether the walk comes there or not.

    It saves a GPU one stop a depth; only for samplers whose picks do not depend on the path.
    """
    picks = []
    for check in checks:
        ahead = [0, *(depth + 1 for depth in check.tree.depths)]
        picks += [(check.sampler, row, check.position + n) for row, n in zip(check.logits, ahead, strict=True)]
    tokens = iter(pick_tokens(picks))
    return {id(check): [next(tokens) for _ in range(len(check.tree) + 1)] for check in checks}


class Walk:
    """The way of one sequence through its tree.

    Attributes:
        node: the last node that stands, or `ROOT`.
        over: nothing more can be picked from this tree.
    """

    def __init__(self, check: Check) -> None:
        self.check = check
        self.node = ROOT
        self.over = False
        self._picked: list[Picked] = []
        self._path: list[int] = []
        self._ending: str | None = None
        self._lossy = 0

    @property
    def row(self) -> torch.Tensor:
        return self.check.logits[self.node + 1]

    @property
    def position(self) -> int:
        return self.check.position + len(self._picked)

    def step(self, token: int) -> None:
        """`token` was picked here: follow it, or a draft that the request tolerates in its place."""
        child = self.check.tree.child(self.node, token)
        if child is None:
            child = tolerated(self.check.sampler, self.check.tree, self.node, self.row)
            if child is not None:
                token = self.check.tree.tokens[child]
                self._lossy += 1
        self.take(token, child)

    def take(self, token: int, child: int | None) -> None:
        """The next token, and the node that carries it."""
        check = self.check
        if token in check.eos_ids:
            self._end("stop")
            return
        self._picked.append(check.sampler.told(token, self.row))
        check.sampler.advance(token)
        if child is not None:
            self._path.append(child)
            self.node = child
        constraint = check.sampler.constraint
        if constraint is not None and constraint.finished():
            self._end("stop")
        elif len(self._picked) >= check.room:
            self._end("length")
        self.over = self.over or child is None

    def _end(self, reason: str) -> None:
        self._ending, self.over = reason, True

    def outcome(self) -> Outcome:
        return Outcome(tuple(self._picked), tuple(self._path), self._ending, self._lossy)
