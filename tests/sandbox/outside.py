"""What runs could leave behind, seen from outside: processes, mounts, descriptors, threads, sockets, files."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

from tests.sandbox.support import gone, pids

_MARKS = ("lock", "workspace")


def below(pid: int) -> set[int]:
    """Every process that descends from this one and is not just waiting to be reaped."""
    parents = {child: parent for child in pids() if (parent := parent_of(child)) is not None}
    found, stack = set[int](), [pid]
    while stack:
        at = stack.pop()
        new = {child for child, parent in parents.items() if parent == at and child not in found}
        found |= new
        stack += new
    return {child for child in found if not gone(child)}


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def mounts() -> list[str]:
    """The mount table of this process's namespace."""
    return sorted(Path("/proc/self/mountinfo").read_text().splitlines())


def foreign_namespaces(mark: str) -> list[int]:
    """The processes, wherever, in whose mount table the mark appears."""
    found = []
    for pid in pids():
        try:
            if mark in Path(f"/proc/{pid}/mountinfo").read_text():
                found.append(pid)
        except OSError:
            continue
    return found


def descriptors(pid: int) -> int:
    """How many a process has open."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def files(folder: Path) -> list[str]:
    """All but what marks a workspace's home."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name not in _MARKS)


def surroundings(state: Path) -> dict[str, Any]:
    """All of it, for one agent: this process."""
    gc.collect()  # what earlier tests have left is closed now, not at some moment later
    family = sorted(below(os.getpid()))
    return {
        "processes": len(family),
        "mounts": mounts(),
        "descriptors": descriptors(os.getpid()),
        "threads": threading.active_count(),
        "state": files(state),
        "private folders": [entry for entry in os.listdir("/dev/shm") if "agentspec" in entry],
    }
