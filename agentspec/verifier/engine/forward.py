"""One forward over many sequences: their new tokens lie end to end, only attention looks at each alone.

Nothing is padded and no mask spans sequences, so a sequence's attention is computed the same way whoever shares the
batch. Linear layers see `[1, tokens, hidden]`. transformers' attention registry gives the hook: every model that uses
it (Llama, Qwen2, Qwen3, Mistral without a window, …) runs unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM

from agentspec.errors import ConfigError
from agentspec.verifier.engine.cost_model import CostModel, profiled
from agentspec.verifier.engine.kv import BLOCK_TOKENS, Attention, KvShape, KvStore, Layout, Span
from agentspec.verifier.engine.kv_compiled import CompiledStore
from agentspec.verifier.engine.kv_gathered import GatheredStore
from agentspec.verifier.engine.linears import pack_linears

_ATTENTION = "agentspec_paged"
_PROFILED_BLOCKS = 8


@dataclass(frozen=True, slots=True)
class Branch:
    """One chain of a segment's tokens.

    Attributes:
        table: block ids; blocks from the one that holds position `past` on are this branch's alone.
        path: indices of the segment's tokens, the first at position `past`.
    """

    table: Sequence[int]
    path: Sequence[int]


@dataclass(frozen=True, slots=True)
class Segment:
    """Some new tokens of one sequence.

    Attributes:
        tokens: ids to run. Those that a branch does not share with one before it lie side by side.
        past: positions whose keys and values are there already.
        branches: a chain is one branch; drafts that fork are several, together they hold all tokens.
        logits: how many of the last tokens need their logits (0: a prompt's middle).
    """

    tokens: Sequence[int]
    past: int
    branches: tuple[Branch, ...]
    logits: int


def chain(tokens: Sequence[int], past: int, table: Sequence[int], logits: int) -> Segment:
    """A segment whose tokens follow each other."""
    return Segment(tokens, past, (Branch(table, range(len(tokens))),), logits)


def _paged_attention(  # noqa: PLR0913 - transformers fixes the signature
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    paged: Attention,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """`query [1, heads, tokens, dim]`, `key`/`value [1, kv_heads, tokens, dim]` -> `[1, tokens, heads, dim]`."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rows, keys, values = (part[0].transpose(0, 1) for part in (query, key, value))
    return paged(module.layer_idx, rows, keys, values, scale).unsqueeze(0), None


AttentionInterface.register(_ATTENTION, _paged_attention)


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
        self.kv_shape = KvShape(
            layers=config.num_hidden_layers,
            heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            dtype=self.dtype,
            device=self.device,
        )
        self.max_context: int = config.max_position_embeddings
        self.eos_ids: frozenset[int] = _eos_ids(self._model)

    @property
    def model(self) -> Any:
        """The transformers model that runs, for who drafts with parts of it; not to be changed."""
        return self._model

    def store(self, blocks: int) -> KvStore:
        """Memory for keys and values of this model."""
        if self.device.type == "cpu" and self.dtype is torch.float32:
            return CompiledStore(self.kv_shape, blocks)
        return GatheredStore(self.kv_shape, blocks)

    @cached_property
    def cost(self) -> CostModel:
        """What a forward costs here, measured when it is first asked for (two seconds at most)."""
        store = self.store(_PROFILED_BLOCKS)
        table = range(_PROFILED_BLOCKS)
        return profiled(lambda rows: self.run([chain([0] * rows, 0, table, rows)], store))

    @torch.inference_mode()
    def run(self, segments: Sequence[Segment], store: KvStore) -> list[torch.Tensor]:
        """Run all segments at once, filling their blocks.

        Returns:
            Per segment its float32 logits, `[segment.logits, vocab]`.
        """
        ids: list[int] = []
        positions: list[int] = []
        wanted: list[int] = []
        layout = Layout()
        for segment in segments:
            start = len(ids)
            ids += segment.tokens
            positions += _place(segment, start, layout)
            wanted += range(len(ids) - segment.logits, len(ids))
        output = self._model(
            input_ids=torch.tensor([ids], device=self.device),
            position_ids=torch.tensor([positions], device=self.device),
            use_cache=False,
            logits_to_keep=torch.tensor(wanted, dtype=torch.long, device=self.device),
            paged=store.attention(layout),
        )
        return list(output.logits[0].float().split([s.logits for s in segments]))


def _place(segment: Segment, start: int, layout: Layout) -> list[int]:
    """Add a segment's rows, from row `start` on, to the layout; the position of each token."""
    positions = [-1] * len(segment.tokens)
    for branch in segment.branches:
        own = [index for index in branch.path if positions[index] < 0]
        for position, index in enumerate(branch.path, start=segment.past):
            positions[index] = position
            layout.rows.append(start + index)
            layout.blocks.append(branch.table[position // BLOCK_TOKENS])
            layout.offsets.append(position % BLOCK_TOKENS)
        if own:
            layout.spans.append(Span(start + own[0], len(own), positions[own[0]], branch.table))
    return positions


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
