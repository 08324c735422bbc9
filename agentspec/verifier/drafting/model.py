"""Drafts by a smaller model, greedily, with keys and values of its own (Leviathan et al., arXiv 2211.17192)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoModelForCausalLM, DynamicCache

from agentspec.verifier.drafting.mirror import UNSETTLED_TOKENS, Mirror, SameTokens
from agentspec.verifier.drafting.protocol import Draft, Opening

_SMOOTHING = 0.2  # weight of the last measurement of cost
_LEAST_REACH = 0.1  # a draft ends where it is this unlikely to be reached
_PREFILL_TOKENS = 256  # of a prompt, run in one call
_FIRST_COST_S = 0.005  # assumed until it is measured

Mirrors = Callable[[Sequence[int]], Mirror]


class ModelDrafter:
    """Asks a causal model of transformers.

    Args:
        model: called as transformers' models are; not changed.
        mirrors: starts a `Mirror` for a prompt; default: the model has the engine's vocabulary.
        name: how its drafts are labelled.
    """

    def __init__(self, model: Any, mirrors: Mirrors = SameTokens, name: str = "model") -> None:
        self.name = name
        self.cost_s_per_token = _FIRST_COST_S
        self.mirrors = mirrors
        self._model = model
        known = inspect.signature(type(model).forward).parameters
        self._cache_argument = "cache" if "cache" in known else "past_key_values"  # renamed in transformers 5

    @classmethod
    def load(cls, folder: str, mirrors: Mirrors = SameTokens, *, dtype: torch.dtype, device: str) -> ModelDrafter:
        """With the model of a Hugging Face folder."""
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
        return cls(model.to(device).eval(), mirrors)

    def open(self, opening: Opening) -> ModelSession:
        return ModelSession(self, self.mirrors(opening.prompt))

    @torch.inference_mode()
    def run(self, tokens: Sequence[int], cache: DynamicCache) -> torch.Tensor:
        """The logits `[vocab]` after `tokens`, which join `cache`."""
        rows = torch.tensor([list(tokens)], device=self._model.device)
        cached = {self._cache_argument: cache}
        output = self._model(input_ids=rows, use_cache=True, logits_to_keep=1, **cached)
        logits: torch.Tensor = output.logits[0, -1].float()
        return logits

    def took(self, seconds: float, tokens: int) -> None:
        """Learn what a drafted token costs."""
        self.cost_s_per_token += _SMOOTHING * (seconds / tokens - self.cost_s_per_token)


class ModelSession:
    """One request's drafts, and the draft model's keys and values for it."""

    def __init__(self, drafter: ModelDrafter, mirror: Mirror) -> None:
        self._drafter = drafter
        self._mirror = mirror
        self._cache = DynamicCache()
        self._cached: list[int] = []

    def extend(self, tokens: Sequence[int]) -> None:
        self._mirror.extend(tokens)

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        """A greedy continuation. Of a long prompt only a part is run in each call; until it is through: nothing."""
        self._rewind()
        missing = self._mirror.tokens[len(self._cached) :]
        if len(missing) > _PREFILL_TOKENS:
            self._run(missing[:_PREFILL_TOKENS])
            return ()
        if not missing:
            return ()
        started = time.perf_counter()
        drafted, chances = self._drafted(missing, limit_tokens)
        self._drafter.took(time.perf_counter() - started, max(1, len(drafted)))
        tokens = self._mirror.translated(drafted)[:limit_tokens]
        confidences = (chances + [chances[-1]] * len(tokens))[: len(tokens)]
        return (Draft(tuple(tokens), tuple(confidences), self._drafter.name),) if tokens else ()

    def close(self) -> None:
        """Free the keys and values."""
        self._cache = DynamicCache()
        self._cached = []

    def _drafted(self, missing: list[int], limit: int) -> tuple[list[int], list[float]]:
        drafted: list[int] = []
        chances: list[float] = []
        reach, feed = 1.0, missing
        while len(drafted) < limit and reach >= _LEAST_REACH:
            chance, token = self._run(feed).softmax(0).max(0)
            drafted.append(int(token))
            chances.append(float(chance))
            reach *= chances[-1]
            feed = [drafted[-1]]
        return drafted, chances

    def _run(self, tokens: list[int]) -> torch.Tensor:
        logits = self._drafter.run(tokens, self._cache)
        self._cached += tokens
        return logits

    def _rewind(self) -> None:
        """Forget what was run and did not come; the last token is run again, as its logits were not kept."""
        now = self._mirror.tokens
        same = max(0, min(len(self._cached), len(now)) - UNSETTLED_TOKENS)
        while same < min(len(self._cached), len(now) - 1) and self._cached[same] == now[same]:
            same += 1
        if same < len(self._cached):
            self._cache.crop(same - len(self._cached))
            del self._cached[same:]
