"""One forward over many sequences: their new tokens lie end to end, only attention looks at each alone.

Nothing is padded and no mask spans sequences, so a sequence's attention is computed the same way whoever shares the
batch. Linear layers see `[1, tokens, hidden]`. transformers' attention registry gives the hook: every model that uses
it (Llama, Qwen2, Qwen3, Mistral without a window, …) runs unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from agentspec.errors import ConfigError
from agentspec.verifier.engine.kv import KvBuffer, KvShape
from agentspec.verifier.engine.linears import pack_linears

_ATTENTION = "agentspec_ragged"


@dataclass(frozen=True, slots=True)
class Segment:
    """Some new tokens of one sequence.

    Attributes:
        tokens: ids to run, at positions `past`, `past + 1`, …
        past: positions already in `kv`, which has room for `past + len(tokens)`.
        logits: how many of the last tokens need their logits (0: a prompt's middle).
    """

    tokens: list[int]
    past: int
    kv: KvBuffer
    logits: int


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    length: int
    past: int
    kv: KvBuffer
    mask: torch.Tensor | None


def _ragged_attention(  # noqa: PLR0913 - transformers fixes the signature
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    spans: Seq[_Span] = (),
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """`query [1, heads, tokens, dim]`, `key`/`value [1, kv_heads, tokens, dim]` -> `[1, tokens, heads, dim]`."""
    kv_heads, dim = key.shape[1], key.shape[3]
    groups = query.shape[1] // kv_heads
    out = torch.empty_like(query)
    for span in spans:
        end = span.start + span.length
        total = span.past + span.length
        store = span.kv.data[module.layer_idx]
        store[0, :, span.past : total] = key[0, :, span.start : end]
        store[1, :, span.past : total] = value[0, :, span.start : end]
        # Heads that share a key are laid out as further query rows: no copy of keys, one kernel call.
        rows = query[0, :, span.start : end].reshape(1, kv_heads, groups * span.length, dim)
        got = functional.scaled_dot_product_attention(
            rows, store[0, :, :total].unsqueeze(0), store[1, :, :total].unsqueeze(0), attn_mask=span.mask, scale=scaling
        )
        out[0, :, span.start : end] = got.view(kv_heads * groups, span.length, dim)
    return out.transpose(1, 2), None


AttentionInterface.register(_ATTENTION, _ragged_attention)


class Runner:
    """A loaded model that runs segments.

    Args:
        folder: a Hugging Face folder, weights included.
        dtype: `auto`, `float32`, `bfloat16` or `float16`.
        device: `auto`, or a torch device.

    Raises:
        ConfigError: unknown dtype or device, or a model with windowed or non-standard attention.
    """

    def __init__(self, folder: str, *, dtype: str, device: str) -> None:
        self.device = _device(device)
        self.dtype = _dtype(dtype, self.device)
        config = AutoConfig.from_pretrained(folder)
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ConfigError(
                f"the bundled verifier runs full attention only, this model has {', '.join(sorted(kinds))}"
            )
        model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=self.dtype, attn_implementation=_ATTENTION)
        self._model: Any = model.to(self.device).eval()
        self.vocab_size: int = self._model.get_output_embeddings().weight.shape[0]
        if self.device.type == "cpu" and self.dtype is torch.float32:
            pack_linears(self._model)
        heads = config.num_attention_heads
        self.groups: int = heads // (getattr(config, "num_key_value_heads", None) or heads)
        self.kv_shape = KvShape(
            layers=config.num_hidden_layers,
            heads=heads // self.groups,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=self.dtype,
            device=self.device,
        )
        self.max_context: int = config.max_position_embeddings
        self.eos_ids: frozenset[int] = _eos_ids(self._model)

    @torch.inference_mode()
    def run(self, segments: Seq[Segment]) -> list[torch.Tensor]:
        """Run all segments at once, filling their buffers.

        Returns:
            Per segment its float32 logits, `[segment.logits, vocab]`.
        """
        ids = [token for s in segments for token in s.tokens]
        positions = [p for s in segments for p in range(s.past, s.past + len(s.tokens))]
        spans: list[_Span] = []
        wanted: list[int] = []
        start = 0
        for segment in segments:
            length = len(segment.tokens)
            spans.append(_Span(start, length, segment.past, segment.kv, self._mask(segment.past, length)))
            start += length
            wanted += range(start - segment.logits, start)
        output = self._model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=torch.tensor([positions], device=self.device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.long, device=self.device),
            spans=spans,
        )
        return list(output.logits[0].float().split([s.logits for s in segments]))

    def _mask(self, past: int, length: int) -> torch.Tensor | None:
        """Which positions each query row sees, `[groups * length, past + length]`; None: all of them."""
        if length == 1:
            return None
        causal = torch.ones((length, past + length), dtype=torch.bool, device=self.device).tril(past)
        bias = torch.zeros(causal.shape, dtype=self.dtype, device=self.device).masked_fill(~causal, float("-inf"))
        return bias.repeat(self.groups, 1)


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"unknown device {name!r}: use auto, cpu, cuda or cuda:N") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device cuda was asked for, but torch sees no GPU: use --device cpu")
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if name not in known:
        raise ConfigError(f"unknown dtype {name!r}: use auto, {', '.join(known)}")
    return known[name]


def _eos_ids(model: Any) -> frozenset[int]:
    found: set[int] = set()
    for source in (model.generation_config, model.config):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            found.update([ids] if isinstance(ids, int) else ids)
    return frozenset(found)
