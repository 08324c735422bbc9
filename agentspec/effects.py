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
from agentspec.sandbox import IN_THREAD, Sandbox

EVERYTHING = "*"
"""The domain that overlaps with every other."""


class Effect(StrEnum):
    """What running a tool once too often would do."""

    PURE = "pure"
    READ = "read"
    WRITE = "write"
    IRREVERSIBLE = "irreversible"

    @property
    def changes_nothing(self) -> bool:
        """Whether a discarded run leaves nothing behind without a sandbox."""
        return self in (Effect.PURE, Effect.READ)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """What the owner of a tool declared, as both sides of the channel know it.

    `parameters` is the JSON Schema of the arguments (defaults included), `fingerprint` changes whenever
    the tool's code or declaration does. Domains that depend on the arguments are only known where the tool is
    held; here they are empty, which means everything.
    """

    name: str
    effect: Effect
    fingerprint: str = ""
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()
    stable_for_s: float | None = None
    egress: bool = False
    parameters: dict[str, Any] = field(default_factory=dict)
    needs_approval: bool = False
    """A human has a say in every call: never run ahead."""
    ahead: bool = True
    """The owner's switch."""
    timeout_s: float | None = None
    """A run ahead that takes longer is given up."""
    max_inflight: int | None = None
    """Runs ahead that may go on at once."""
    rate_per_s: float | None = None
    """Runs ahead that may start in a second."""
    sandbox: Sandbox = IN_THREAD

    def __post_init__(self) -> None:
        check_declaration(self)

    @property
    def may_run_ahead(self) -> bool:
        """Whether a discarded run of it leaves nothing behind, and nobody objects."""
        if self.needs_approval or not self.ahead:
            return False
        return self.effect.changes_nothing or (self.effect is Effect.WRITE and self.sandbox.commits)

    @property
    def touched(self) -> frozenset[str]:
        """The domains that a run of this tool changes."""
        if self.effect.changes_nothing:
            return frozenset()
        return self.writes or frozenset({EVERYTHING})

    @property
    def depends_on(self) -> frozenset[str]:
        """The domains whose change makes a result of this tool stale."""
        if self.effect is Effect.PURE:
            return frozenset()
        return self.reads | self.writes if self.reads else frozenset({EVERYTHING})


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
        ConfigError: one line that says which two things do not go together, and what to write instead.
    """
    where = f"tool {spec.name!r}"
    if spec.effect is Effect.PURE and (spec.reads or spec.writes):
        raise ConfigError(f'{where}: effect="pure" depends on nothing; drop reads/writes or declare it "read"')
    if spec.effect is Effect.READ and spec.writes:
        raise ConfigError(f'{where}: effect="read" cannot have writes; declare it "write"')
    _check_age(spec, where)
    _check_place(spec, where)
    for name in ("timeout_s", "max_inflight", "rate_per_s"):
        _check_number(where, name.removesuffix("_per_s"), getattr(spec, name))


def _check_age(spec: ToolSpec, where: str) -> None:
    needed = spec.effect is Effect.READ or (spec.effect is Effect.WRITE and spec.sandbox.commits)
    if needed and spec.stable_for_s is None:
        what = f'effect="{spec.effect}"' + ("" if spec.effect is Effect.READ else ' in sandbox "overlay"')
        raise ConfigError(f"{where}: {what} needs stable_for=SECONDS: how old may a result be?")
    _check_number(where, "stable_for", spec.stable_for_s, " seconds")


def _check_number(where: str, name: str, value: Any, unit: str = "") -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{where}: {name} must be a number, not {value!r}")
    if not value > 0:
        raise ConfigError(f"{where}: {name} must be more than 0{unit}, not {value}")


def _check_place(spec: ToolSpec, where: str) -> None:
    isolation = spec.sandbox.isolation
    if spec.effect is Effect.IRREVERSIBLE and spec.sandbox.isolated:
        raise ConfigError(f'{where}: effect="irreversible" never runs ahead; drop sandbox')
    if spec.effect is Effect.WRITE and spec.sandbox.isolated and not spec.sandbox.commits:
        raise ConfigError(f'{where}: effect="write" runs ahead in sandbox "overlay" only, not in "{isolation}"')
    if spec.effect is Effect.PURE and spec.sandbox.network:
        raise ConfigError(f'{where}: effect="pure" depends on its arguments alone; with network it is a "read"')
    if spec.sandbox.warm and spec.effect is not Effect.PURE:
        raise ConfigError(f'{where}: a warm sandbox is for effect="pure"; drop warm, each call gets a fresh child then')
    if spec.egress and spec.sandbox.isolated and not spec.sandbox.network:
        raise ConfigError(f"{where}: egress=True in a sandbox needs Sandbox(..., network=True)")
