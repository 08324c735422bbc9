"""A model that is a table: its logits depend on the last three tokens, so exact answers cost nothing."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from agentspec.verifier.drafting.protocol import Draft
from agentspec.verifier.drafting.tree import TokenTree
from agentspec.verifier.verification.accept import Check, Outcome, verify_all
from agentspec.verifier.verification.constraint import Constraint
from agentspec.verifier.verification.sampler import Sampler
from agentspec.verifier.verification.sampling import SamplingParams

NO_END: frozenset[int] = frozenset()
Drafting = Callable[[list[int]], TokenTree]


class TableModel:
    """`rows [97, vocab]` of random logits, picked by the end of the text."""

    def __init__(self, vocab: int = 12, seed: int = 0, spread: float = 2.0) -> None:
        self.vocab = vocab
        self.rows = torch.randn(97, vocab, generator=torch.Generator().manual_seed(seed)) * spread
        self.chances = self.rows.softmax(-1).tolist()

    def place(self, tokens: Sequence[int]) -> int:
        """The row that belongs to a text."""
        place = 7
        for token in tokens[-3:]:
            place = (place * 31 + token + 1) % 97
        return place

    def row(self, tokens: Sequence[int]) -> torch.Tensor:
        return self.rows[self.place(tokens)]

    def logits(self, tokens: Sequence[int], tree: TokenTree) -> torch.Tensor:
        """As a forward over a tree gives them, `[1 + nodes, vocab]`."""
        paths = [[tree.tokens[node] for node in tree.path(end)] for end in range(len(tree))]
        return self.rows[[self.place([*tokens, *path]) for path in [[], *paths]]]

    def sampler(self, prompt: Sequence[int], params: SamplingParams, constraint: Constraint | None = None) -> Sampler:
        return Sampler(params, constraint, prompt, self.vocab)


@dataclass
class Talk:
    """One sequence that is generated step by step."""

    model: TableModel
    prompt: list[int]
    params: SamplingParams
    count: int
    constraint: Constraint | None = None
    eos_ids: frozenset[int] = NO_END

    def __post_init__(self) -> None:
        self.sampler = self.model.sampler(self.prompt, self.params, self.constraint)
        self.answer: list[int] = []
        self.ending: str | None = None
        self.steps = 0
        self.outcomes: list[Outcome] = []

    def check(self, tree: TokenTree) -> Check:
        text = [*self.prompt, *self.answer]
        room = self.count - len(self.answer)
        return Check(self.sampler, tree, self.model.logits(text, tree), len(text), room, self.eos_ids)

    def take(self, outcome: Outcome) -> None:
        self.answer += outcome.tokens
        self.ending = outcome.ending
        self.steps += 1
        self.outcomes.append(outcome)

    def plain(self) -> Talk:
        """To the end, one token at a time, by nothing but the sampler."""
        while self.ending is None:
            text = [*self.prompt, *self.answer]
            token = self.sampler.pick(self.model.row(text), len(text)).token
            if token in self.eos_ids:
                self.ending = "stop"
                break
            self.sampler.advance(token)
            self.answer.append(token)
            if self.constraint is not None and self.constraint.finished():
                self.ending = "stop"
            elif len(self.answer) >= self.count:
                self.ending = "length"
        return self


def together(talks: Sequence[Talk], drafting: Drafting) -> None:
    """All talks to their ends, in one batch, with drafts."""
    while running := [talk for talk in talks if talk.ending is None]:
        checks = [talk.check(drafting([*talk.prompt, *talk.answer])) for talk in running]
        for talk, outcome in zip(running, verify_all(checks), strict=True):
            talk.take(outcome)


class Turns:
    """A grammar: which tokens may come depends on all that came; a text of `length` is complete."""

    def __init__(self, vocab: int, length: int) -> None:
        self.vocab, self.length = vocab, length
        self.said: list[int] = []

    def allowed(self) -> torch.Tensor:
        return torch.tensor([self.allows(self.said, token) for token in range(self.vocab)])

    def advance(self, token: int) -> None:
        assert self.allows(self.said, token)
        self.said.append(token)

    def rollback(self, count: int) -> None:
        del self.said[len(self.said) - count :]

    def valid_prefix(self, tokens: Sequence[int]) -> int:
        said = list(self.said)
        for index, token in enumerate(tokens):
            if len(said) >= self.length or not self.allows(said, token):
                return index
            said.append(token)
        return len(tokens)

    def forced(self) -> list[int]:
        return []

    def finished(self) -> bool:
        return len(self.said) >= self.length

    def allows(self, said: Sequence[int], token: int) -> bool:
        return 0 <= token < self.vocab and (token + sum(said) + len(said)) % 3 != 0


def random_tree(rng: random.Random, vocab: int, most: int = 8) -> TokenTree:
    """Garbage, well-formed."""
    tokens: list[int] = []
    parents: list[int] = []
    confidences: list[float] = []
    for node in range(rng.randrange(most + 1)):
        parent = rng.randrange(-1, node)
        taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        free = [token for token in range(vocab) if token not in taken]
        if free:
            tokens.append(rng.choice(free))
            parents.append(parent)
            confidences.append(1.0)
        else:
            break
    return TokenTree(tuple(tokens), tuple(parents), tuple(confidences), (("garbage",),) * len(tokens))


def random_draft(rng: random.Random, vocab: int, source: str = "garbage") -> Draft:
    size = rng.randrange(6)
    return Draft(tuple(rng.randrange(vocab) for _ in range(size)), tuple(rng.random() for _ in range(size)), source)


def exact(model: TableModel, params: SamplingParams, prompt: Sequence[int], said: Sequence[int]) -> list[float]:
    """The distribution of the next token, written down as plainly as can be (no torch, nothing of ours)."""
    scores = [float(x) for x in model.row([*prompt, *said])]
    for token, bias in params.logit_bias.items():
        scores[token] += bias
    counts = Counter(said)
    for token in range(len(scores)):
        if token in counts or token in prompt:
            ratio = params.repetition_penalty
            scores[token] = scores[token] / ratio if scores[token] > 0 else scores[token] * ratio
        if token in counts:
            scores[token] -= params.frequency_penalty * counts[token] + params.presence_penalty
    if params.temperature == 0:
        best = max(range(len(scores)), key=lambda token: scores[token])
        return [float(token == best) for token in range(len(scores))]
    chances = _softmax([score / params.temperature for score in scores])
    chances = _softmax_of([c if c >= params.min_p * max(chances) else 0.0 for c in chances])
    if params.top_k:
        least = sorted(chances, reverse=True)[min(params.top_k, len(chances)) - 1]
        chances = _softmax_of([c if c >= least else 0.0 for c in chances])
    kept, mass = set[int](), 0.0
    for token in sorted(range(len(chances)), key=lambda token: -chances[token]):
        if mass < params.top_p or not kept:
            kept.add(token)
        mass += chances[token]
    return _softmax_of([c if token in kept else 0.0 for token, c in enumerate(chances)])


def _softmax(scores: Sequence[float]) -> list[float]:
    return _softmax_of([math.exp(score - max(scores)) for score in scores])


def _softmax_of(weights: Sequence[float]) -> list[float]:
    total = sum(weights)
    return [weight / total for weight in weights]


def p_value(seen: Counter[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> float:
    """Of Pearson's chi-square test; cells expected less than five times are taken together."""
    total = seen.total()
    assert set(seen) <= {cell for cell, chance in expected.items() if chance > 0}, "something impossible came"
    statistic, cells, rare_seen, rare_expected = 0.0, 0, 0, 0.0
    for cell, chance in expected.items():
        if chance * total < 5:
            rare_seen, rare_expected = rare_seen + seen[cell], rare_expected + chance * total
        else:
            statistic, cells = statistic + (seen[cell] - chance * total) ** 2 / (chance * total), cells + 1
    if rare_expected > 0:
        statistic, cells = statistic + (rare_seen - rare_expected) ** 2 / rare_expected, cells + 1
    if cells < 2:
        return 1.0
    half = torch.tensor([(cells - 1) / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
