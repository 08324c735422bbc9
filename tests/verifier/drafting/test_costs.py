"""What drafting costs beside a forward, in processor time of its own thread, with 10^5 tokens indexed."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import pytest

from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Drafter, Opening
from agentspec.verifier.drafting.suffix import SuffixDrafter, SuffixLimits
from agentspec.verifier.text import Text


def text_like(rng: random.Random, size: int) -> list[int]:
    """Tokens of a skewed distribution, a third of them repeated from before."""
    tokens: list[int] = []
    while len(tokens) < size:
        if tokens and rng.random() < 0.3:
            start = rng.randrange(len(tokens))
            tokens += tokens[start : start + rng.randrange(4, 60)]
        else:
            tokens += [int(rng.paretovariate(0.6)) % 400 for _ in range(20)]
    return tokens[:size]


MAKERS: dict[str, Callable[[Text], Drafter]] = {
    "ngram": lambda _: NgramDrafter(),
    "suffix": lambda text: SuffixDrafter(text, SuffixLimits(copied_tokens=0)),
    "external": ExternalDrafter,
}


@pytest.mark.parametrize("name", MAKERS)
def test_proposing_and_extending_are_cheap(name: str, text: Text) -> None:
    rng = random.Random(1)
    prompt = text_like(rng, 100_000)
    known = "".join(text.piece(token).decode(errors="replace") for token in prompt[:50_000])
    session = MAKERS[name](text).open(Opening("r", tuple(prompt), expected=(known,)))
    asked, told = [], []
    at = 20_000
    for _ in range(200):
        started = time.thread_time()
        session.propose(16)
        asked.append(time.thread_time() - started)
        new = prompt[at : at + rng.randrange(1, 6)] if rng.random() < 0.8 else [rng.randrange(300)]
        at += len(new)
        started = time.thread_time()
        session.extend(new)
        told.append((time.thread_time() - started) / len(new))
    print(
        f"{name}: propose {statistics.median(asked) * 1e3:.3f} ms, extend {statistics.median(told) * 1e6:.1f} us/token"
    )
    assert statistics.median(asked) < 0.3e-3
    assert statistics.median(told) < 50e-6
