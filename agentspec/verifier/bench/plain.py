"""Plain decoding, without drafts, beside transformers' own loop: one answer, and eight at once."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from agentspec.verifier.bench.identity import GREEDY, generated
from agentspec.verifier.bench.measured import Measured, Progress, spread
from agentspec.verifier.bench.rig import Rig, ask, in_turns
from agentspec.verifier.engine.interface import Submission

_BATCHES = (1, 8)


@dataclass(frozen=True, slots=True)
class Load:
    """What both answer: prompts whose answers have `new` tokens at least, in so many rounds."""

    texts: list[list[int]]
    rounds: int
    new: int


def against_transformers(rig: Rig, folder: str, load: Load, progress: Progress) -> list[Measured]:
    """Tokens a second, ours over transformers', prompts included."""
    auto: Any = AutoModelForCausalLM  # whose methods have no types
    model = auto.from_pretrained(folder, dtype=rig.runner.dtype).to(rig.runner.device).eval()
    figures: list[Measured] = []
    with torch.inference_mode():
        for batch in _BATCHES:
            theirs, ours = _rates(rig, model, load, batch)
            ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
            progress(f"plain decoding of {batch}: {median(ours):.1f} tokens/s, transformers {median(theirs):.1f}")
            figures += [spread(f"vs_hf.b{batch}", ratios), spread(f"tokens_per_s.b{batch}", ours, "tokens/s")]
    return [Measured("vs_hf", min(float(one.value or 0.0) for one in figures[::2]), "ratio"), *figures]


def _rates(rig: Rig, model: Any, load: Load, batch: int) -> tuple[list[float], list[float]]:
    texts = [load.texts[nth % len(load.texts)] for nth in range(batch)]
    theirs: list[float] = []
    ours: list[float] = []

    def transformers(_: int) -> None:
        began = time.perf_counter()
        generated(model, texts, load.new)
        theirs.append(len(texts) * load.new / (time.perf_counter() - began))

    def engine(_: int) -> None:
        with rig.engine() as fresh:
            began = time.perf_counter()
            answers = ask(fresh, [Submission(text, GREEDY, load.new) for text in texts])
            ours.append(sum(len(answer.tokens) for answer in answers) / (time.perf_counter() - began))

    in_turns(load.rounds, transformers, engine)
    return theirs, ours
