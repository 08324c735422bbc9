"""Randomness that is a function of where it is used: of (seed, position, token), never of what was drawn before.

SplitMix64 (Steele, Lea, Flood 2014) as a counter-based generator: a key for each (seed, position), and from it a number
for each token. The token whose score + Gumbel noise is largest is picked: that follows softmax(scores). So a seed gives
the same tokens with and without drafts, alone and in company, and after a pause.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from agentspec.compiling import compiled

_MASK = (1 << 64) - 1
_GOLDEN, _MIX_A, _MIX_B = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_U_GOLDEN, _U_MIX_A, _U_MIX_B = np.uint64(_GOLDEN), np.uint64(_MIX_A), np.uint64(_MIX_B)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_CHUNK = 2.0**-32
_LIMITS = np.exp(-np.arange(24.0)) * 2.0**32  # the noise never exceeds -log(2^-33) = 22.9
_HIGHEST = 1.0 - 2.0**-24  # above it float32 would round to 1, whose logarithm is no number


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * _MIX_A) & _MASK
    value = ((value ^ (value >> 27)) * _MIX_B) & _MASK
    return value ^ (value >> 31)


def key(seed: int, position: int, stream: int = 0) -> int:
    """64 bits for one position of one sequence; `stream` tells uses at the same position apart."""
    start = _mix((seed + (stream + 1) * _GOLDEN) & _MASK)
    return _mix((start + (position + 1) * _GOLDEN) & _MASK)


def uniform(seed: int, position: int, stream: int) -> float:
    """A number in (0, 1)."""
    return ((key(seed, position, stream) >> 11) + 0.5) * 2.0**-53


@compiled("uint64(uint64, int64)")
def _bits(base: np.uint64, token: int) -> np.uint64:
    mixed = base + np.uint64(token + 1) * _U_GOLDEN
    mixed = (mixed ^ (mixed >> _S30)) * _U_MIX_A
    mixed = (mixed ^ (mixed >> _S27)) * _U_MIX_B
    return (mixed ^ (mixed >> _S31)) >> _S32


@compiled("int64(float32[::1], uint64)")
def race(scores: np.ndarray, base: np.uint64) -> int:
    """The token whose score + noise is largest, `scores [vocab]`; those at minus infinity never win, -1: all are.

    Most tokens are ruled out by their random bits alone: with v the share of 2^32 that they are, the noise
    -log(-log(1 - v)) is at most -log(v), so the token can only win if v < exp(score - best).
    """
    best, winner = -np.inf, -1
    for token in range(scores.shape[0]):
        score = scores[token]
        if score == -np.inf or best - score >= _LIMITS.shape[0]:
            continue
        bits = np.float64(_bits(base, token))
        if score < best and bits > _LIMITS[int(best - score)]:
            continue
        chance = min((bits + 0.5) * _CHUNK, _HIGHEST)
        noisy = score - math.log(-math.log1p(-chance))
        if noisy > best:
            best, winner = noisy, token
    return winner


def gumbel(keys: list[int], vocab_size: int, device: torch.device) -> torch.Tensor:
    """The same noise as `race` adds, `[len(keys), vocab]` float32 on a device (equal up to rounding)."""
    base = torch.tensor([_signed(k) for k in keys], device=device).unsqueeze(1)
    mixed = base + torch.arange(1, vocab_size + 1, device=device) * _signed(_GOLDEN)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(_MIX_A)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(_MIX_B)
    mixed = _shifted(mixed ^ _shifted(mixed, 31), 32)
    chance = ((mixed.to(torch.float32) + 0.5) * _CHUNK).clamp_(max=_HIGHEST)
    return chance.neg_().log1p_().neg_().log_().neg_()


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _shifted(value: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift to the right: torch's own keeps the sign."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)
