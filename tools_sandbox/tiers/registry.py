"""The tiers by name, made when first asked for. A tier that this machine lacks means: do not speculate."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Iterable
from typing import Any, cast

from agentspec.errors import ToolRefused
from agentspec.runs import CommittingTier, Tier
from agentspec.sandbox import Isolation, Sandbox

log = logging.getLogger("agentspec.tiers")

_CLASSES = {
    Isolation.THREAD: ("thread", "ThreadTier"),
    Isolation.PROCESS: ("process", "ProcessTier"),
    Isolation.OVERLAY: ("overlay_tier", "OverlayTier"),
    Isolation.REMOTE: ("remote", "RemoteTier"),
}
"""Module and class of each tier; imported when the first tool asks for it."""


class Tiers:
    """The tiers of one runtime."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[Isolation, Any] = {}

    def of(self, sandbox: Sandbox) -> Tier:
        """The tier where a tool runs.

        Raises:
            ToolRefused: it cannot be had here.
        """
        isolation = Isolation(sandbox.isolation)
        with self._lock:
            if isolation not in self._made:
                module, name = _CLASSES[isolation]
                self._made[isolation] = getattr(importlib.import_module(f"{__package__}.{module}"), name)()
            tier: Tier = self._made[isolation]
            return tier

    def prepare(self, tools: Iterable[Any]) -> None:
        """Get ready for these tools, in a thread of its own: an import may take its time. Never raises."""
        isolated = [tool for tool in tools if tool.spec.sandbox.isolated and tool.spec.may_run_ahead]
        if isolated:
            threading.Thread(target=self._prepare, args=(isolated,), name="agentspec-prepare", daemon=True).start()

    def _prepare(self, tools: list[Any]) -> None:
        by_tier: dict[Isolation, list[Any]] = {}
        for tool in tools:
            by_tier.setdefault(Isolation(tool.spec.sandbox.isolation), []).append(tool)
        for group in by_tier.values():
            try:
                self.of(group[0].spec.sandbox).prepare(group)
            except ToolRefused as error:
                log.warning("%s: %s do not run ahead: %s", *_names(group), error)
            except Exception:
                log.exception("a tier could not be prepared")

    def recover(self, sandbox: Sandbox) -> None:
        """Before a real call of a tool that commits: bring to its end what a crash has left half done.

        Raises:
            ToolRefused: it could not be brought to its end.
        """
        cast(CommittingTier, self.of(sandbox)).recover(sandbox)

    def forget_everything(self) -> None:
        """After a fork: nothing of the parent's runs here."""
        self._lock = threading.Lock()
        for tier in self._made.values():
            tier.forget_everything()

    def close(self) -> None:
        """End what the tiers have started."""
        with self._lock:
            made, self._made = list(self._made.values()), {}
        for tier in made:
            tier.close()


def _names(tools: list[Any]) -> tuple[str, str]:
    return tools[0].spec.sandbox.tier, ", ".join(tool.name for tool in tools)
