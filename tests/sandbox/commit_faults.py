"""A tool whose committing child dies, or dawdles, before its n-th change; the zygote imports this with the tool."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.sandbox.crashing import watch_changes

VARIABLE = "AGENTSPEC_TEST_FAULT"
"""Declared for the tool: a file that says `kill N` or `wait N`; its absence says nothing. N counts from the lock."""


def append(path: str, text: str) -> None:
    """What must never happen twice, and its witness."""
    for name in (path, f"{path}.log"):
        with open(name, "a") as file:
            file.write(text)
    os.mkdir(f"{path}-{text}")
    os.unlink("removed")


def _misbehave(order: Path) -> None:
    counted = 0

    def count(event: str) -> None:
        nonlocal counted
        if not _committing() or not order.exists():
            return
        counted += 1
        act, number = order.read_text().split()
        if counted == int(number):
            os.kill(os.getpid(), signal.SIGKILL) if act == "kill" else time.sleep(0.6)

    watch_changes(count)


def _committing() -> bool:
    """Only the child that holds the workspace's lock has its descriptor open."""
    names = [f"/proc/self/fd/{number}" for number in range(3, 8)]
    return any(os.path.lexists(name) and os.readlink(name).endswith("/lock") for name in names)


if VARIABLE in os.environ:
    _misbehave(Path(os.environ[VARIABLE]))
