"""Models with random weights: of three families, small enough that thousands of answers take seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from agentspec.verifier.bench.rig import Rig
from agentspec.verifier.engine.forward import Runner

VOCABULARY = 256
FAMILIES: dict[str, type[Any]] = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
_SHARPNESS = 8.0
"""Of the output layer: with logits that lie apart, no two are equal but for rounding."""


class Bytes:
    """A vocabulary of bytes."""

    def encode(self, text: str) -> list[int]:
        """The text's bytes."""
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        """The byte."""
        return bytes([token])


def config_of(family: str) -> Any:
    """A small model of a family."""
    return FAMILIES[family](
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )


@contextmanager
def random_model(config: Any, *, dtype: str = "float32", device: str = "cpu", seed: int = 7) -> Iterator[Rig]:
    """A model of this shape with random weights, the same for the same seed."""
    with tempfile.TemporaryDirectory(prefix="agentspec-bench-") as folder:
        write(config, Path(folder), seed)
        yield Rig(Runner(folder, dtype=dtype, device=device), Bytes())


def write(config: Any, folder: Path, seed: int = 7) -> None:
    """Write such a model's folder."""
    torch.manual_seed(seed)
    auto: Any = AutoModelForCausalLM  # whose methods have no types
    model = auto.from_config(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.normal_(0.0, weight.shape[-1] ** -0.5)
            elif name.endswith("bias"):
                weight.normal_(0.0, 0.1)
        model.get_output_embeddings().weight.mul_(_SHARPNESS)
    model.save_pretrained(folder)
