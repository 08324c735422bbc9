"""All of it, one after the other."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config

from agentspec.verifier.bench.forks import forks
from agentspec.verifier.bench.identity import identity
from agentspec.verifier.bench.measured import Measured, Progress
from agentspec.verifier.bench.plain import Load, against_transformers
from agentspec.verifier.bench.rig import Rig
from agentspec.verifier.bench.sampling import SETTINGS, chi_square
from agentspec.verifier.bench.soak import soak
from agentspec.verifier.bench.speed import Prompts, speedups
from agentspec.verifier.bench.tiny import Bytes, config_of, random_model, write
from agentspec.verifier.engine.forward import Runner
from agentspec.verifier.text import Text
from agentspec.verifier.weights import resolve


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        model: a folder, a hub's id or a short name, for all that real text is needed for.
        prompts: real ones of each kind, tool calls and chat; for each of them twenty on the tiny models.
        soak_s: how long requests come and go at the end; 0: not at all.
        threads: of torch; None leaves its default.
    """

    model: str = "coder05"
    quick: bool = False
    prompts: int = 15
    soak_s: float = 0.0
    threads: int | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is asked of the real model: lines of the files to be written, tokens of answers, rounds of pairs."""

    lines: int = 24
    call: int = 160
    chat: int = 64
    beside: int = 48
    plain: int = 32
    rounds: int = 3


FULL, QUICK = Sizes(), Sizes(lines=8, call=32, chat=12, beside=16, plain=8, rounds=1)


def run(options: Options, progress: Progress) -> list[Measured]:
    """Measure everything.

    Raises:
        ConfigError: the model cannot be found or run.
    """
    said: Any = import_module("transformers.utils.logging")
    said.set_verbosity_error()
    said.disable_progress_bar()
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    quick = options.quick
    figures = identity(2 if quick else 20 * options.prompts, progress)
    figures += chi_square(1_000 if quick else 10_000, 2 if quick else len(SETTINGS), progress)
    figures += _real(options, progress)
    if options.soak_s:
        with random_model(config_of("qwen2")) as rig:
            figures += soak(rig, options.soak_s, progress)
    return figures


def _real(options: Options, progress: Progress) -> list[Measured]:
    folder = str(resolve(options.model, None, progress))
    text = Text(folder)
    rig = Rig(Runner(folder, dtype="auto", device="auto"), text)
    prompts = Prompts(text, rig.runner.vocab_size, sorted(rig.runner.eos_ids | text.eos_ids))
    sizes, count = (QUICK, 1) if options.quick else (FULL, options.prompts)
    turns = [*prompts.calls(count, sizes.call, sizes.lines), *prompts.chat(count, sizes.chat)]
    figures = speedups(rig, text, turns, progress)
    figures += forks(rig, sizes.rounds, progress, sizes.beside)
    texts = [turn.prompt for turn in prompts.chat(6, sizes.plain)]
    return figures + against_transformers(rig, folder, Load(texts, sizes.rounds, sizes.plain), progress)


def on_device(device: str, folder: Path, progress: Progress) -> list[Measured]:
    """A short run on random weights of a small model's shape: forks and plain decoding, nothing fetched."""
    config = Qwen2Config(
        vocab_size=32_000,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        eos_token_id=None,
        bos_token_id=None,
        pad_token_id=0,
    )
    write(config, folder)
    rig = Rig(Runner(str(folder), dtype="auto", device=device), Bytes())
    figures = forks(rig, FULL.rounds, progress, FULL.beside)
    texts = [[(7 * nth + 31 * at) % 32_000 for at in range(64)] for nth in range(8)]
    return figures + against_transformers(rig, str(folder), Load(texts, FULL.rounds, FULL.plain), progress)
