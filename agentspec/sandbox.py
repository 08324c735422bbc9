"""Where a tool may run ahead, and what it may touch there: the owner's declaration, as frozen data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from agentspec.errors import ConfigError


class Isolation(StrEnum):
    """The isolation tiers."""

    THREAD = "thread"
    """T0: a thread of the agent's process. Nothing is isolated."""
    PROCESS = "process"
    """T1: a forked child that can read, compute and, if declared, reach the network. It can change nothing."""
    OVERLAY = "overlay"
    """T2: the same over a copy-on-write view of one folder, whose changes are committed on a hit."""
    REMOTE = "remote"
    """T3: a worker on another machine."""

    @property
    def tier(self) -> str:
        """The short name that traces show."""
        return _TIERS[self]


_TIERS = {Isolation.THREAD: "T0", Isolation.PROCESS: "T1", Isolation.OVERLAY: "T2", Isolation.REMOTE: "T3"}


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A tool's place. Anything but `thread` declares that the tool depends on its arguments, its files and its
    declared environment alone, not on the state of the agent's process.

    Attributes:
        isolation: which tier.
        workspace: `overlay` only: the folder that the tool works on; nothing else of the file system can be changed.
        network: whether it may open IPv4 and IPv6 sockets.
        subprocesses: whether it may start programs (always so in `overlay`).
        env: names of the environment variables that it may see, besides PATH, HOME, LANG, TZ and their like.
        memory_bytes: what it may allocate.
        warm: `process` only: the child is kept for the next call of the same tool, with whatever its modules' globals
            have become, instead of a fresh one for each call. For `pure` tools.
        address: `remote` only: the worker's `HOST:PORT`.
    """

    isolation: Isolation | Literal["thread", "process", "overlay", "remote"]
    workspace: str | None = None
    network: bool = False
    subprocesses: bool = False
    env: frozenset[str] = frozenset()
    memory_bytes: int = 2 * 2**30
    address: str | None = None
    warm: bool = False

    def __post_init__(self) -> None:
        try:
            isolation = Isolation(self.isolation)
        except ValueError:
            raise ConfigError(f"sandbox={self.isolation!r} is unknown; it is one of {', '.join(Isolation)}") from None
        if isinstance(self.env, str):
            raise ConfigError(f"env={self.env!r} is one string; write env={{{self.env!r}}}")
        object.__setattr__(self, "isolation", isolation)
        object.__setattr__(self, "env", frozenset(self.env))
        if (self.workspace is not None) != (isolation is Isolation.OVERLAY):
            raise ConfigError('workspace= goes with sandbox "overlay", and "overlay" needs one')
        if (self.address is not None) != (isolation is Isolation.REMOTE):
            raise ConfigError('address= goes with sandbox "remote", and "remote" needs one: "HOST:PORT"')
        if self.warm and isolation is not Isolation.PROCESS:
            raise ConfigError('warm=True goes with sandbox "process"')
        if self.memory_bytes <= 0:
            raise ConfigError(f"memory_bytes must be more than 0, not {self.memory_bytes}")
        if isolation is Isolation.OVERLAY:
            object.__setattr__(self, "workspace", os.path.realpath(self.workspace or "."))
            object.__setattr__(self, "subprocesses", True)

    @property
    def tier(self) -> str:
        """T0 to T3."""
        return Isolation(self.isolation).tier

    @property
    def isolated(self) -> bool:
        """Whether the tool leaves the agent's process to run ahead."""
        return self.isolation is not Isolation.THREAD

    @property
    def commits(self) -> bool:
        """Whether what a run changed is kept apart until its claim: a writing tool may run ahead there."""
        return self.isolation is Isolation.OVERLAY


IN_THREAD = Sandbox(Isolation.THREAD)


def sandbox_of(value: Sandbox | str) -> Sandbox:
    """A sandbox from what the owner wrote: `Sandbox(...)`, or the name of a tier that needs nothing else.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(value, Sandbox):
        return value
    if not isinstance(value, str):
        raise ConfigError(f"sandbox={value!r}: write a tier's name, or agentspec.Sandbox(...)")
    if value in (Isolation.OVERLAY, Isolation.REMOTE):
        needs = "workspace=FOLDER" if value == Isolation.OVERLAY else "address=HOST:PORT"
        raise ConfigError(f'sandbox="{value}" needs more: agentspec.Sandbox("{value}", {needs})')
    return Sandbox(value)  # type: ignore[arg-type]
