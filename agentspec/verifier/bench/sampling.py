"""Sampled answers against the exact distribution: first tokens, and pairs of which the second was drafted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agentspec.verifier.bench.identity import Garbage, prompts
from agentspec.verifier.bench.measured import Measured, Progress
from agentspec.verifier.bench.rig import Rig, ask
from agentspec.verifier.bench.tiny import VOCABULARY, Bytes, config_of, random_model
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.forward import chain
from agentspec.verifier.engine.interface import Limits, Submission
from agentspec.verifier.verification.sampling import SamplingParams

Probabilities = NDArray[np.float64]

SETTINGS = {
    "plain": SamplingParams(),
    "temperature_top_p": SamplingParams(temperature=0.7, top_p=0.9),
    "top_k": SamplingParams(temperature=1.3, top_k=12),
    "min_p": SamplingParams(min_p=0.08),
    "penalties": SamplingParams(presence_penalty=0.6, frequency_penalty=0.4, repetition_penalty=1.2),
    "bias": SamplingParams(logit_bias={3: 4.0, 9: -100.0}),
}
_SHARE = 0.25
"""The model's own logits are flattened by this, so that many tokens have a chance."""
_FEWEST = 5.0
"""Draws that a cell of the test expects at least; rarer outcomes are counted together."""
_LIMITS = Limits(max_batch=64, prefill_chunk=1024, prefill_chunk_busy=1024)
_PAIRS_OF = 16
"""So many likeliest first tokens are told apart in pairs."""


def chi_square(draws: int, settings: int, progress: Progress) -> list[Measured]:
    """The smallest p over all settings and both tests, and each setting's."""
    config = config_of("qwen2")
    found: list[Measured] = []
    with random_model(config) as rig:
        prompt = prompts(2)[1]  # one that repeats itself: lookups draft for it
        for name, params in list(SETTINGS.items())[:settings]:
            p = _smallest_p(rig, prompt, _flattened(params), draws)
            progress(f"sampling {name}: p {p:.3f}")
            found.append(Measured(f"chi2_p.{name}", p, "p", n=draws))
    return [Measured("chi2_p", min(float(one.value or 0.0) for one in found), "p", n=draws), *found]


def _flattened(params: SamplingParams) -> SamplingParams:
    return replace(params, temperature=params.temperature / _SHARE)


def _smallest_p(rig: Rig, prompt: list[int], params: SamplingParams, draws: int) -> float:
    pairs = _drawn(rig, prompt, params, draws)
    first = distribution(_logits(rig, prompt), params, prompt, [])
    p_first = p_value(Counter(pair[0] for pair in pairs), dict(enumerate(first)), draws)
    joint: dict[tuple[int, int], float] = {}
    for token in np.argsort(-first)[:_PAIRS_OF].tolist():
        second = distribution(_logits(rig, [*prompt, token]), params, prompt, [token])
        joint |= {(token, other): float(first[token] * second[other]) for other in range(VOCABULARY)}
    seen = Counter(pair for pair in pairs if pair in joint)
    return min(p_first, p_value(seen, joint, draws))


def _drawn(rig: Rig, prompt: list[int], params: SamplingParams, draws: int) -> list[tuple[int, int]]:
    """Pairs of tokens, each with a seed of its own, drafted for by whoever may be wrong."""
    drafters = (NgramDrafter(), SuffixDrafter(Bytes()), Garbage())
    pairs: list[tuple[int, int]] = []
    with rig.engine(*drafters, tokens=32_768, limits=_LIMITS) as engine:
        while len(pairs) < draws:
            seeds = range(len(pairs), min(draws, len(pairs) + _LIMITS.max_batch))
            asked = [Submission(prompt, replace(params, seed=seed), 3) for seed in seeds]
            pairs += [(answer.tokens[0], answer.tokens[1]) for answer in ask(engine, asked)]
    return pairs


def _logits(rig: Rig, tokens: Sequence[int]) -> Probabilities:
    store = rig.runner.store(16)
    row: torch.Tensor = rig.runner.run([chain(tokens, 0, range(16), 1)], store)[0][-1]
    return row.double().numpy()


def distribution(
    logits: Probabilities, params: SamplingParams, prompt: Sequence[int], answer: Sequence[int]
) -> Probabilities:
    """What a request's parameters make of `logits [vocab]`, written down once more, step by step, in float64."""
    scores = logits.copy()
    for token, value in params.logit_bias.items():
        scores[token] += value
    for token in {*prompt, *answer}:
        scores[token] *= params.repetition_penalty if scores[token] < 0 else 1.0 / params.repetition_penalty
    for token, times in Counter(answer).items():
        scores[token] -= params.frequency_penalty * times + params.presence_penalty
    chances = _softmax(scores / params.temperature)
    if params.min_p:
        chances = np.where(chances < params.min_p * chances.max(), 0.0, chances)
    if params.top_k:
        chances = np.where(chances < np.sort(chances)[-params.top_k], 0.0, chances)
    chances /= chances.sum()
    order = np.argsort(-chances)
    before = np.cumsum(chances[order]) - chances[order]
    chances[order[before >= params.top_p]] = 0.0
    normal: Probabilities = chances / chances.sum()
    return normal


def _softmax(scores: Probabilities) -> Probabilities:
    raised = np.exp(scores - scores.max())
    normal: Probabilities = raised / raised.sum()
    return normal


def p_value(seen: Mapping[Any, int], expected: Mapping[Any, float], draws: int) -> float:
    """Pearson's chi-square test: how likely counts as odd as these are, if `expected` are the probabilities."""
    statistic, cells, rest_seen, rest_expected = 0.0, 0, float(draws), float(draws)
    for outcome, chance in expected.items():
        wanted = chance * draws
        if wanted < _FEWEST:
            continue
        statistic += (seen.get(outcome, 0) - wanted) ** 2 / wanted
        cells, rest_seen, rest_expected = cells + 1, rest_seen - seen.get(outcome, 0), rest_expected - wanted
    if rest_expected >= _FEWEST:
        statistic, cells = statistic + (rest_seen - rest_expected) ** 2 / rest_expected, cells + 1
    elif rest_seen > 0 and rest_expected < 1e-6 * draws:
        return 0.0  # what cannot happen happened
    return upper_tail(statistic, max(cells - 1, 1))


def upper_tail(statistic: float, freedom: int) -> float:
    """The chi-square distribution's upper tail, by the incomplete gamma function."""
    return float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), torch.tensor(statistic / 2).double()))
