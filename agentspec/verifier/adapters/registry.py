"""The adapters by name and by kind of endpoint; a module is imported when its engine is asked for."""

from __future__ import annotations

import importlib

from agentspec.config import Engine
from agentspec.errors import ConfigError
from agentspec.verifier.adapters.protocol import EngineAdapter

_CLASSES = {
    "bundled": (Engine.AGENTSPEC, "bundled", "BundledAdapter"),
    "vllm": (Engine.VLLM, "vllm", "VllmAdapter"),
    "sglang": (Engine.SGLANG, "sglang", "SglangAdapter"),
}
NAMES = tuple(_CLASSES)


def adapter(name: str) -> EngineAdapter:
    """The adapter of an engine.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in _CLASSES:
        raise ConfigError(f"there is no engine {name!r}; known: {', '.join(NAMES)}")
    _, module, class_name = _CLASSES[name]
    made: EngineAdapter = getattr(importlib.import_module(f"{__package__}.{module}"), class_name)()
    return made


def adapter_of(engine: Engine) -> EngineAdapter | None:
    """The adapter of a kind of endpoint; None for hosted ones, which only their own APIs are known of."""
    return next((adapter(name) for name, (kind, *_) in _CLASSES.items() if kind is engine), None)
