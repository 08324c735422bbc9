"""`agentspec bench verifier`: the bundled engine, with and without drafts, beside transformers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.verifier.config import require_extra


def run(model: str, quick: bool, soak_s: float, threads: int | None, progress: Callable[[str], None]) -> Report:
    """Measure.

    Raises:
        ConfigError: the extra `verifier` is missing, or the model cannot be found or run.
    """
    require_extra()
    bench: Any = import_module("agentspec.verifier.bench.run")
    found = bench.run(bench.Options(model, quick, soak_s, threads), progress)
    figures = (Figure(one.name, one.value, one.unit, one.low, one.high, one.n) for one in found)
    return Report(f"bench verifier, {model}", tuple(figures), environment())
