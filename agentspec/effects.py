"""What a tool does to the world, and when two tools touch the same state.

Rules:

1. `pure` depends on its arguments alone; no write can make it stale.
2. `read` depends on named domains and is good for `stable_for_s` seconds from the start of its run.
3. `write` and `irreversible` change domains; without names they change everything.
4. A tool that nobody declared is a write of everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from agentspec.errors import ConfigError

EVERYTHING = "*"
"""The domain that overlaps with every other."""


class Effect(StrEnum):
    """What running a tool once too often would do."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"

    @property
    def may_run_ahead(self) -> bool:
        """Whether a discarded run leaves nothing behind without a sandbox."""
        return self in (Effect.PURE, Effect.READ)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the owner of a tool declared, as both sides of the channel know it.

    `parameters` is the JSON Schema of the arguments (defaults included), `fingerprint` changes whenever
    the tool's code or declaration does.
    """

    name: str
    effect: Effect
    fingerprint: str = ""
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    stable_for_s: float | None = None
    egress: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_declaration(self)

    @property
    def touched(self) -> frozenset[str]:
        """The domains that a run of this tool changes."""
        if self.effect.may_run_ahead:
            return frozenset()
        return self.writes or frozenset({EVERYTHING})

    @property
    def depends_on(self) -> frozenset[str]:
        """The domains whose change makes a result of this tool stale."""
        if self.effect is Effect.PURE:
            return frozenset()
        return self.reads or frozenset({EVERYTHING})


def overlap(some: frozenset[str], others: frozenset[str]) -> bool:
    """Whether two sets of domains share state.

    >>> overlap(frozenset({"orders"}), frozenset({"orders", "users"}))
    True
    >>> overlap(frozenset({"orders"}), frozenset({EVERYTHING}))
    True
    >>> overlap(frozenset(), frozenset({EVERYTHING}))
    False
    """
    if not some or not others:
        return False
    return EVERYTHING in some or EVERYTHING in others or not some.isdisjoint(others)


def check_declaration(spec: ToolSpec) -> None:
    """Refuse a declaration that contradicts itself.

    Raises:
        ConfigError: a `read` without `stable_for`, a `pure` with domains, a `read` with `writes`.
    """
    where = f"tool {spec.name!r}"
    if spec.effect is Effect.PURE and (spec.reads or spec.writes):
        raise ConfigError(f'{where}: effect="pure" depends on nothing; drop reads/writes or declare it "read"')
    if spec.effect is Effect.READ and spec.writes:
        raise ConfigError(f'{where}: effect="read" cannot have writes; declare it "write"')
    if spec.effect is Effect.READ and spec.stable_for_s is None:
        raise ConfigError(f'{where}: effect="read" needs stable_for=SECONDS: how old may a result be?')
    if spec.stable_for_s is not None and not spec.stable_for_s > 0:
        raise ConfigError(f"{where}: stable_for must be more than 0 seconds, not {spec.stable_for_s}")
