"""Settings of the bundled verifier, and the check that its extra is installed."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from agentspec.errors import ConfigError

_HEAVY = ("torch", "transformers", "llguidance", "safetensors", "prometheus_client", "regex")


@dataclass(frozen=True, slots=True)
class VerifierConfig:
    """How to run the server.

    Attributes:
        model: a folder, a Hugging Face id, or a short name (see `weights.MODELS`).
        served_model_name: the name that requests use; default: the last part of `model`.
        dtype: `auto` (float32 on CPU, bfloat16 on CUDA), `float32`, `bfloat16` or `float16`.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        max_batch: sequences that run in one forward; the others wait.
        threads: CPU threads for torch; None leaves torch's default.
        max_context: tokens per sequence; None takes the model's own limit.
        prefill_chunk: prompt tokens per step while nobody of equal or higher priority is decoding.
        prefill_chunk_busy: the same while somebody is, so that running turns are not stalled.
        speculate: who drafts tokens: `auto`, `off`, or some of external, ngram, suffix, draft_model,
            layer_skip (the model without every second of its middle layers), between commas.
        draft_model: as `model`, the smaller one that drafts.
        cache_bytes: key/value memory kept for finished sequences.
    """

    model: str
    host: str = "127.0.0.1"
    port: int = 8100
    served_model_name: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    max_batch: int = 16
    threads: int | None = None
    max_context: int | None = None
    prefill_chunk: int = 256
    prefill_chunk_busy: int = 48
    cache_bytes: int = 1 << 30
    speculate: str = "auto"
    draft_model: str | None = None
    cache_dir: Path | None = None
    log_level: str = "warning"

    @property
    def name(self) -> str:
        """The model's name in the API."""
        return self.served_model_name or self.model.rstrip("/").rsplit("/", 1)[-1]


def require_extra() -> None:
    """Check that the heavy dependencies are there, without importing them.

    Raises:
        ConfigError: one is missing; the message says what to install.
    """
    missing = [name for name in _HEAVY if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"the bundled verifier needs {', '.join(missing)}: install agentspec-proxy[verifier]")
