"""Greedy answers with and without speculation: the same tokens, whoever drafts and whoever shares the batch."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from agentspec.verifier.bench.measured import Measured, Progress
from agentspec.verifier.bench.rig import Rig, ask
from agentspec.verifier.bench.tiny import FAMILIES, VOCABULARY, Bytes, config_of, write
from agentspec.verifier.drafting.external import ExternalDrafter
from agentspec.verifier.drafting.ngram import NgramDrafter
from agentspec.verifier.drafting.protocol import Draft, Drafter, Opening
from agentspec.verifier.drafting.suffix import SuffixDrafter
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.engine.interface import Submission
from agentspec.verifier.verification.sampling import SamplingParams

GREEDY = SamplingParams(temperature=0.0)
_NEW = 16
_ROOMY, _TIGHT = 16_384, 320
"""Tokens of memory: enough for all, and so little that running sequences lose theirs and are computed again."""


class Garbage:
    """Drafts that have nothing to do with the answer, said with confidence; now and then the right first token."""

    name = "garbage"
    cost_s_per_token = 0.0

    def open(self, opening: Opening) -> GarbageSession:
        """Start for a request."""
        return GarbageSession(len(opening.prompt))


class GarbageSession:
    """One request's garbage."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def extend(self, tokens: Sequence[int]) -> None:
        """Nothing is learnt."""

    def propose(self, limit_tokens: int) -> Sequence[Draft]:
        """Several drafts that fork."""
        count = min(limit_tokens, 6)
        drafts = [tuple(self._random.randrange(VOCABULARY) for _ in range(count)) for _ in range(3)]
        return [Draft(tokens, (0.9,) * count, Garbage.name) for tokens in drafts if tokens]

    def close(self) -> None:
        """Nothing is kept."""


def _drafters() -> dict[str, Callable[[], tuple[Drafter, ...]]]:
    return {
        "none": lambda: (),
        "ngram": lambda: (NgramDrafter(),),
        "suffix": lambda: (SuffixDrafter(Bytes()),),
        "external": lambda: (ExternalDrafter(Bytes()),),
        "garbage": lambda: (Garbage(),),
        "all": lambda: (ExternalDrafter(Bytes()), NgramDrafter(), SuffixDrafter(Bytes()), Garbage()),
    }


@dataclass(frozen=True, slots=True)
class Mix:
    """How the answers of a cell share the machine: at once, with so much memory, beside probes of every third."""

    name: str
    at_once: int
    memory_tokens: int
    probes: bool


_MIXES = (Mix("alone", 1, _ROOMY, False), Mix("batch", 8, _ROOMY, True), Mix("preempted", 8, _TIGHT, False))


def prompts(count: int, seed: int = 1) -> list[list[int]]:
    """Texts of 8 to 64 tokens; some repeat themselves, some begin like the one before."""
    source = random.Random(seed)
    made: list[list[int]] = []
    for nth in range(count):
        fresh = [source.randrange(VOCABULARY) for _ in range(source.randint(8, 48))]
        if nth % 3 == 1:
            fresh = fresh[:8] * source.randint(2, 6)
        elif nth % 3 == 2:
            fresh = made[-1][: source.randint(4, 24)] + fresh[:16]
        made.append(fresh)
    return made


def identity(count: int, progress: Progress) -> list[Measured]:
    """Every family, drafter and mix, `count` prompts in each."""
    equal = total = 0
    worst: dict[str, float] = {}
    for family in FAMILIES:
        for cell, same in _family(family, prompts(count)):
            equal, total = equal + same, total + count
            worst[cell.split("/")[1]] = min(worst.get(cell.split("/")[1], 1.0), same / count)
            progress(f"identity {cell}: {same}/{count}")
    figures = [Measured("identical", equal / total, "share", n=total)]
    return figures + [Measured(f"identical.{drafter}", share, "share") for drafter, share in worst.items()]


def _family(family: str, texts: Sequence[list[int]]) -> Iterator[tuple[str, int]]:
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        write(config_of(family), Path(folder))
        plain = _generated(folder, texts)
        rig = Rig(Runner(folder, dtype="float32", device="cpu"), Bytes())
        for drafter, make in _drafters().items():
            for mix in _MIXES:
                got = _answers(rig, make(), mix, texts, plain)
                same = sum(one == other for one, other in zip(got, plain, strict=True))
                yield f"{family}/{drafter}/{mix.name}", same


def _answers(
    rig: Rig, drafters: tuple[Drafter, ...], mix: Mix, texts: Sequence[list[int]], plain: Sequence[list[int]]
) -> list[list[int]]:
    got: list[list[int]] = []
    with rig.engine(*drafters, tokens=mix.memory_tokens) as engine:
        for start in range(0, len(texts), mix.at_once):
            ours = texts[start : start + mix.at_once]
            asked = [_submission(text, plain[start + nth], start + nth) for nth, text in enumerate(ours)]
            beside = [Submission(text, GREEDY, 4, priority=1) for text in ours[::3]] if mix.probes else []
            got += [answer.tokens for answer in ask(engine, [*asked, *beside])[: len(ours)]]
    return got


def _submission(text: list[int], plain: Sequence[int], nth: int) -> Submission:
    """Every other one expects its own answer, with a fault in it."""
    half = len(plain) // 2
    expected = "".join(map(chr, [*plain[:half], 1, *plain[half:]])) if nth % 2 and max(plain) < 128 else "nothing"
    return Submission(text, GREEDY, _NEW, request_id=f"r{nth}", session=f"s{nth % 4}", expected=(expected,))


@torch.inference_mode()
def _generated(folder: str, texts: Sequence[list[int]]) -> list[list[int]]:
    """What transformers says, one prompt at a time."""
    auto: Any = AutoModelForCausalLM  # whose methods have no types
    model = auto.from_pretrained(folder, dtype=torch.float32).eval()
    return [generated(model, [text], _NEW)[0] for text in texts]


def generated(model: Any, texts: Sequence[list[int]], new: int) -> list[list[int]]:
    """Greedy answers of transformers' own loop, prompts padded on the left; exactly `new` tokens each."""
    longest = max(map(len, texts))
    ids = torch.tensor([[0] * (longest - len(text)) + list(text) for text in texts], device=model.device)
    mask = torch.tensor([[0] * (longest - len(text)) + [1] * len(text) for text in texts], device=model.device)
    out = model.generate(
        ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0
    )
    said: list[list[int]] = out[:, longest:].tolist()
    return said
