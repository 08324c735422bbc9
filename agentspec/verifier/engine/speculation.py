"""Drafts in the loop: ask the drafters, choose what to verify, learn from what stood."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence as Seq

from agentspec.verifier.drafting.consensus import Ensemble
from agentspec.verifier.drafting.protocol import Drafter, Opening
from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.engine.branching import kept_nodes
from agentspec.verifier.engine.budget import Acceptance, allot
from agentspec.verifier.engine.cost_model import CostModel
from agentspec.verifier.engine.interface import DraftCount
from agentspec.verifier.engine.sequence import Sequence

_DEEPEST = 64  # drafted tokens ahead
_NODES = 96  # of a tree, before the budget chooses
_FORCED = "forced"
_DRAFT_SHARE = 0.5  # of a forward's time, for drafters that compute
_LOOKUP_SHARE = 0.02  # asking for drafts may cost this share of a forward whether it helps or not
_FOLLOW = 0.1
_RETRY_STEPS = 32


class Speculation:
    """All drafters, the measure of their worth, and the budget. `vocab_size`: ids beyond it are nobody's draft."""

    def __init__(self, drafters: Seq[Drafter], cost: CostModel, vocab_size: int | None = None) -> None:
        self._ensemble = Ensemble(drafters, vocab_size)
        self._cost = cost
        self._acceptance = Acceptance()
        self._drafted: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._asking_s = 0.0
        self._gained = 0.0
        self._resting = 0

    def open(self, sequence: Sequence) -> None:
        """Start drafting for a sequence (not for one that does not want it)."""
        submission = sequence.submission
        if not submission.speculate or not self._ensemble.drafters:
            return
        opening = Opening(
            request_id=submission.request_id,
            prompt=tuple(sequence.tokens),
            expected=submission.expected,
            session=submission.session,
            workspace=submission.workspace,
        )
        sequence.drafts = self._ensemble.open(opening, submission.constraint)

    def trees(self, decoding: Seq[Sequence], base_rows: int) -> list[TokenTree]:
        """For each decoding sequence what to verify; empty trees where drafts do not pay.

        Args:
            base_rows: rows of the forward without drafts.
        """
        start = time.perf_counter()
        offered = [self._offer(sequence, base_rows) for sequence in decoding]
        self._asking_s += _FOLLOW * (time.perf_counter() - start - self._asking_s)
        if not any(map(len, offered)):
            return offered
        chosen = allot([self._acceptance.chances(tree) for tree in offered], base_rows, self._cost)
        self._acceptance.rest()
        return [kept_nodes(tree, kept) for tree, kept in zip(offered, chosen, strict=True)]

    def learn(self, sequence: Sequence, tree: TokenTree, path: Seq[int]) -> None:
        """Of the verified `tree` the nodes of `path` stood."""
        sequence.drafted += len(tree)
        sequence.accepted += len(path)
        self._gained += _FOLLOW * (len(path) - self._gained)
        if not len(tree):
            return
        self._acceptance.learn(tree, path)
        for node, sources in enumerate(tree.sources):
            self._drafted.update(sources)
            if node in path:
                self._accepted.update(sources)

    def counts(self) -> dict[str, DraftCount]:
        """By drafter, since the start."""
        return {source: DraftCount(self._drafted[source], self._accepted[source]) for source in list(self._drafted)}

    def _offer(self, sequence: Sequence, base_rows: int) -> TokenTree:
        room = sequence.limit - len(sequence.tokens) - 1
        if room < 1:
            return TokenTree()
        forced = self._forced(sequence, min(room, _DEEPEST))
        if sequence.drafts is None or self._rests(base_rows):
            return forced
        budget_s = _DRAFT_SHARE * self._cost.seconds(base_rows)
        guessed = sequence.drafts.tree(min(room, _DEEPEST), _NODES, budget_s)
        return guessed if _covers(guessed, forced) else forced

    def _forced(self, sequence: Sequence, room: int) -> TokenTree:
        constraint = sequence.submission.constraint
        if constraint is None:
            return TokenTree()
        tokens = constraint.forced()[:room]
        return TokenTree.chain(tokens, [1.0] * len(tokens), _FORCED)

    def _rests(self, base_rows: int) -> bool:
        """Whether asking costs more than drafts bring; then it is tried again only now and then."""
        step_s = self._cost.seconds(base_rows)
        if self._asking_s <= max(_LOOKUP_SHARE, self._gained) * step_s:
            return False
        self._resting = (self._resting + 1) % _RETRY_STEPS
        return self._resting != 0


def _covers(tree: TokenTree, chain: TokenTree) -> bool:
    """Whether all of `chain` is a path of `tree`."""
    node: int | None = -1
    for token in chain.tokens:
        node = tree.child(node, token) if node is not None else None
    return node is not None
