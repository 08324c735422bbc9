"""One sequence's picks. Its state (penalties, grammar) moves only over tokens that are really in the answer.

The order of processors is vLLM's: grammar mask, logit bias, repetition penalty, frequency and presence penalties, then
(unless greedy) temperature, min-p, top-k, top-p. Log-probabilities are of the model itself, before all of them.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from agentspec.verifier.verification import noise
from agentspec.verifier.verification.constraint import Constraint
from agentspec.verifier.verification.penalties import Penalties
from agentspec.verifier.verification.sampling import Logprobs, SamplingParams, logprobs
from agentspec.verifier.verification.shaping import shaped

_LOWEST = float("-inf")


@dataclass(frozen=True, slots=True)
class Picked:
    """A token, and its log-probabilities where they were asked for."""

    token: int
    logprobs: Logprobs | None = None


class Sampler:
    """Picks one sequence's tokens.

    Args:
        params: the request's.
        constraint: its grammar, or None. From here on only the sampler advances it.
        prompt: the prompt's token ids (for the repetition penalty).
        vocab_size: rows of logits are this wide.
    """

    def __init__(
        self, params: SamplingParams, constraint: Constraint | None, prompt: Sequence[int], vocab_size: int
    ) -> None:
        self.params = params
        self.constraint = constraint
        self.vocab_size = vocab_size
        self.seed = (secrets.randbits(64) if params.seed is None else params.seed) & ((1 << 64) - 1)
        self._penalties = Penalties(params, prompt) if params.penalized else None
        self._bias_ids, self._bias = _bias(params, vocab_size)

    @property
    def path_free(self) -> bool:
        """Whether a pick depends on nothing but its row and its position (no grammar, no penalties)."""
        return self.constraint is None and self._penalties is None

    @property
    def plain(self) -> bool:
        """Whether a greedy pick is the largest logit of its row."""
        return self.path_free and not len(self._bias)

    def pick(self, logits: torch.Tensor, position: int) -> Picked:
        """The next token, given the state that `advance` built; changes nothing.

        Args:
            logits: `[vocab]`, float32; not changed.
            position: index that the token will have in the sequence, the prompt included. Together with the seed it
                fixes the randomness.

        Raises:
            RuntimeError: no token can be picked.
        """
        return self.told(self.pick_token(logits, position), logits)

    def pick_token(self, logits: torch.Tensor, position: int) -> int:
        """As `pick`, without log-probabilities."""
        scores = self.adjusted(logits)
        if self.params.greedy:
            return int(scores.argmax())
        scores = shaped(scores.unsqueeze(0), self.params)[0]
        if scores.is_cuda:
            return int((scores + noise.gumbel([self.key(position)], len(scores), scores.device)[0]).argmax())
        token = int(noise.race(scores.numpy(), np.uint64(self.key(position))))
        if token < 0:
            raise RuntimeError("no token can be picked: the model's scores are no numbers, or the grammar allows none")
        return token

    def told(self, token: int, logits: torch.Tensor) -> Picked:
        """The token with what the request wants to know about it."""
        top = self.params.top_logprobs
        return Picked(token, None if top is None else logprobs(logits, token, top))

    def key(self, position: int) -> int:
        """Of this position's randomness (see `noise`)."""
        return noise.key(self.seed, position)

    def adjusted(self, logits: torch.Tensor) -> torch.Tensor:
        """`[vocab]` with mask, bias and penalties; the input itself where there are none."""
        scores = logits
        allowed = None if self.constraint is None else self.constraint.allowed()
        if allowed is not None:
            scores = scores.masked_fill(~allowed.to(scores.device), _LOWEST)
        if len(self._bias):
            scores = scores.index_add(0, self._bias_ids.to(scores.device), self._bias.to(scores.device))
        return scores if self._penalties is None else self._penalties.applied(scores)

    def distribution(self, logits: torch.Tensor) -> torch.Tensor:
        """The probabilities that `pick` draws from, `[vocab]`."""
        scores = self.adjusted(logits)
        if self.params.greedy:
            return torch.zeros_like(scores).index_fill_(0, scores.argmax(), 1.0)
        return shaped(scores.unsqueeze(0), self.params)[0].softmax(0)

    def advance(self, token: int) -> None:
        """A token (never the end-of-sequence one) is now in the answer, picked or forced."""
        if self._penalties is not None:
            self._penalties.add(token)
        if self.constraint is not None:
            self.constraint.advance(token)

    def rollback(self, count: int) -> None:
        """Take back the last `count` calls of `advance`."""
        if self._penalties is not None:
            self._penalties.remove(count)
        if self.constraint is not None and count:
            self.constraint.rollback(count)


def _bias(params: SamplingParams, vocab_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    kept = {token: value for token, value in params.logit_bias.items() if 0 <= token < vocab_size}
    return torch.tensor(list(kept), dtype=torch.long), torch.tensor(list(kept.values()), dtype=torch.float32)
