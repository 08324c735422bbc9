"""Drafts of several drafters as one tree (SpecInfer, arXiv 2305.09781, section 3: merge-based construction).

Drafters that agree on a token make it likelier (one minus the product of their doubts; what that is worth is measured).
The tree is filled from the likeliest node down, whoever proposed it, so a weak drafter's first token can come before a
strong one's tenth.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from agentspec.verifier.drafting.calibration import Calibration
from agentspec.verifier.drafting.protocol import Draft, Drafter, DraftSession, Opening
from agentspec.verifier.drafting.tree import ROOT, TokenTree
from agentspec.verifier.verification.constraint import Constraint

T = TypeVar("T")
_log = logging.getLogger(__name__)
_SURE = 0.999  # no agreement of guesses is certainty
_LEAST_REACH = 0.005  # what is less likely never pays


def merge(
    drafts: Sequence[Draft], most_nodes: int, calibration: Calibration | None = None
) -> tuple[TokenTree, list[float]]:
    """One tree of the `most_nodes` likeliest tokens, and its nodes' confidences before `calibration` corrected them."""
    trie = _Trie(calibration or Calibration())
    for draft in drafts:
        trie.add(draft)
    return trie.likeliest(most_nodes)


class _Trie:
    """Drafts laid over each other; node 0 is the sequence as it stands."""

    def __init__(self, calibration: Calibration) -> None:
        self._calibration = calibration
        self._children: list[dict[int, int]] = [{}]
        self._doubts: list[dict[str, float]] = [{}]

    def add(self, draft: Draft) -> None:
        node = 0
        for token, confidence in zip(draft.tokens, draft.confidences, strict=True):
            child = self._children[node].setdefault(token, len(self._children))
            if child == len(self._children):
                self._children.append({})
                self._doubts.append({})
            doubts = self._doubts[child]
            doubts[draft.source] = min(doubts.get(draft.source, 1.0), 1.0 - confidence)
            node = child

    def likeliest(self, most_nodes: int) -> tuple[TokenTree, list[float]]:
        nodes: list[int] = []
        tokens: list[int] = []
        parents: list[int] = []
        confidences: list[float] = []
        waiting: list[tuple[float, int, int, float, int]] = []  # (-reach, node, token, confidence, parent's place)
        place, node, reach = ROOT, 0, 1.0
        while True:
            for token, child, confidence in self._after(node):
                heapq.heappush(waiting, (-reach * confidence, child, token, confidence, place))
            if not waiting or len(tokens) >= most_nodes or -waiting[0][0] < _LEAST_REACH:
                break
            missed, node, token, confidence, parent = heapq.heappop(waiting)
            place, reach = len(nodes), -missed
            nodes.append(node)
            tokens.append(token)
            parents.append(parent)
            confidences.append(confidence)
        sources = tuple(self._sources(n) for n in nodes)
        tree = TokenTree(tuple(tokens), tuple(parents), tuple(confidences), sources)
        return tree, [self._claimed(n) for n in nodes]

    def _after(self, node: int) -> list[tuple[int, int, float]]:
        """Token, node and chance of what may follow; the chances of siblings add up to 1 at most."""
        children = self._children[node]
        corrected = self._calibration.corrected
        chances = [corrected(self._sources(child), self._claimed(child)) for child in children.values()]
        total = max(1.0, sum(chances))
        return [(*pair, chance / total) for pair, chance in zip(children.items(), chances, strict=True)]

    def _claimed(self, node: int) -> float:
        return min(_SURE, 1.0 - math.prod(self._doubts[node].values()))

    def _sources(self, node: int) -> tuple[str, ...]:
        doubts = self._doubts[node]
        return tuple(sorted(doubts)) if len(doubts) > 1 else tuple(doubts)


class Ensemble:
    """All drafters of an engine. Lives as long as it does; used by its worker thread only.

    Args:
        vocab_size: drafts are cut before an id that the model does not have; None: none is.
    """

    def __init__(self, drafters: Sequence[Drafter], vocab_size: int | None = None) -> None:
        self.drafters = tuple(drafters)
        self.vocab_size = vocab_size
        self.calibration = Calibration()

    def open(self, opening: Opening, constraint: Constraint | None = None) -> EnsembleSession:
        """Start drafting for a request; `constraint` is the one that its sampler advances."""
        return EnsembleSession(self, opening, constraint)


class EnsembleSession:
    """The drafts of all drafters for one request. A drafter that fails is left out for the rest of it."""

    def __init__(self, ensemble: Ensemble, opening: Opening, constraint: Constraint | None) -> None:
        self._calibration = ensemble.calibration
        self._vocab_size = ensemble.vocab_size
        self._constraint = constraint
        self._tree = TokenTree()
        self._claimed: list[float] = []
        self._sessions: list[tuple[Drafter, DraftSession]] = []
        for drafter in ensemble.drafters:
            session = _guarded(drafter, lambda d=drafter: d.open(opening))  # type: ignore[misc]
            if session is not None:
                self._sessions.append((drafter, session))

    def extend(self, tokens: Sequence[int]) -> None:
        """These tokens were generated or forced. What was drafted last is held against them."""
        self._calibration.learn(self._tree, self._claimed, tokens)
        self._tree = TokenTree()
        self._each(lambda _, session: session.extend(tokens))

    def tree(self, limit_tokens: int, most_nodes: int, budget_s: float = math.inf) -> TokenTree:
        """What may come next, `limit_tokens` deep at most; branches that the grammar refuses are cut.

        Args:
            budget_s: seconds that a drafter which computes (`cost_s_per_token` above 0) may take.
        """
        drafts: list[Draft] = []

        def ask(drafter: Drafter, session: DraftSession) -> None:
            cost = drafter.cost_s_per_token
            limit = limit_tokens if cost <= 0 else int(min(limit_tokens, budget_s / cost))
            if limit > 0:
                drafts.extend(self._valid(draft) for draft in session.propose(limit))

        self._each(ask)
        self._tree, self._claimed = merge(drafts, most_nodes, self._calibration)
        return self._tree

    def close(self) -> None:
        """The request is over."""
        self._each(lambda _, session: session.close())
        self._sessions.clear()

    def _valid(self, draft: Draft) -> Draft:
        """The part that the vocabulary and the grammar allow."""
        tokens = draft.tokens
        if self._vocab_size is not None and tokens and not 0 <= min(tokens) <= max(tokens) < self._vocab_size:
            bad = next(i for i, token in enumerate(tokens) if not 0 <= token < self._vocab_size)
            tokens = tokens[:bad]
        if self._constraint is not None and tokens:
            tokens = tokens[: self._constraint.valid_prefix(tokens)]
        if len(tokens) == len(draft.tokens):
            return draft
        return Draft(tokens, draft.confidences[: len(tokens)], draft.source)

    def _each(self, act: Callable[[Drafter, DraftSession], object]) -> None:
        for pair in list(self._sessions):
            drafter, session = pair
            if _guarded(drafter, lambda d=drafter, s=session: (act(d, s),)) is None:  # type: ignore[misc]
                self._sessions.remove(pair)


def _guarded(drafter: Drafter, act: Callable[[], T]) -> T | None:
    """A drafter's fault costs its drafts, never the request."""
    try:
        return act()
    except Exception:
        _log.exception("drafter %s failed; it is left out for this request", drafter.name)
        return None
