"""`agentspec bench verifier`: the bundled engine, with and without drafts, beside transformers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from agentspec.proxy.bench.environment import environment
from agentspec.proxy.bench.figures import Figure, Report
from agentspec.verifier.config import require_extra


def run(progress: Callable[[str], None], **options: Any) -> Report:
    """Measure; `options` are those of `agentspec.verifier.bench.run.Options`.

    Raises:
        ConfigError: the extra `verifier` is missing, or the model cannot be found or run.
    """
    require_extra()
    bench: Any = import_module("agentspec.verifier.bench.run")
    wanted = bench.Options(**options)
    found = bench.run(wanted, progress)
    figures = (Figure(one.name, one.value, one.unit, one.low, one.high, one.n) for one in found)
    return Report(f"bench verifier, {wanted.model}", tuple(figures), environment())
