"""Drafts by the main model itself with some of its layers left out (Draft & Verify, arXiv 2309.08168).

No memory for weights: the layers are the main model's own, only keys and values are kept twice.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from agentspec.errors import ConfigError
from agentspec.verifier.drafting.model import ModelDrafter


def layer_skip(model: Any, skipped: Sequence[int]) -> ModelDrafter:
    """A drafter over `model` without the layers `skipped`.

    Args:
        model: a causal model of transformers with `model.layers`; it is shared and not changed.

    Raises:
        ConfigError: the model has no such layers, or none would be left.
    """
    return ModelDrafter(without(model, skipped), name="layer_skip")


def without(model: Any, skipped: Sequence[int]) -> Any:
    """The same model without some layers, sharing every weight. Raises `ConfigError` as `layer_skip` does."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    if layers is None or any(not 0 <= index < len(layers) for index in skipped):
        raise ConfigError(f"layers {list(skipped)} cannot be skipped: the model has {len(layers or ())} of them")
    kept = [index for index in range(len(layers)) if index not in set(skipped)]
    if not kept:
        raise ConfigError("all layers of the model would be skipped: leave some")
    config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]
    with torch.device("meta"):  # the skeleton has no weights
        build: Any = AutoModelForCausalLM.from_config
        thin: Any = build(config, attn_implementation="sdpa")
    _share(thin, model, skip={"layers"})
    for layer, index in zip(thin.model.layers, kept, strict=True):
        _share(layer, layers[index])
    return thin.eval()


def _share(target: nn.Module, source: nn.Module, skip: frozenset[str] | set[str] = frozenset()) -> None:
    """Give `target` the innermost modules of `source`; those between keep their own configuration."""
    for name, child in source.named_children():
        if name in skip:
            continue
        if next(child.children(), None) is None:
            setattr(target, name, child)
        else:
            _share(getattr(target, name), child, skip)
