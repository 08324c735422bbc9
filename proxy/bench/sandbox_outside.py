"""What can be seen of discarded runs from outside: files, processes, mounts, sockets, descriptors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Outside:
    """One look. Each field is a set of lines; a line that comes or goes between two looks is one stray effect."""

    files: frozenset[str]
    processes: frozenset[str]
    mounts: frozenset[str]
    sockets: frozenset[str]
    descriptors: frozenset[str]


def look(folder: Path, state: Path, shared: Iterable[Path]) -> Outside:
    """The folder and all in it (with times of change), the names in the state, our litter in the shared folders."""
    return Outside(
        files=frozenset([*_tree(folder), *(str(path) for path in state.rglob("*")), *_names(shared)]),
        processes=frozenset(_processes().values()),
        mounts=frozenset(Path("/proc/self/mountinfo").read_text().splitlines()),
        sockets=frozenset(_sockets()),
        descriptors=frozenset(_descriptors()),
    )


def strays(before: Outside, after: Outside) -> list[str]:
    """What is otherwise, in words."""
    found = []
    for kind in ("files", "processes", "mounts", "sockets", "descriptors"):
        old, new = getattr(before, kind), getattr(after, kind)
        found += [f"{kind}: + {line}" for line in sorted(new - old)] + [
            f"{kind}: - {line}" for line in sorted(old - new)
        ]
    return found


def _tree(folder: Path) -> list[str]:
    lines = []
    for path in (folder, *sorted(folder.rglob("*"))):
        seen = path.lstat()
        lines.append(f"{path} {seen.st_mode:o} {seen.st_ino} {seen.st_size} {seen.st_nlink} {seen.st_ctime_ns}")
    return lines


def _names(folders: Iterable[Path]) -> list[str]:
    """Only what bears the mark of our litter: others use these folders as well."""
    return [str(path) for folder in folders for path in folder.glob("litter*")]


def _processes() -> dict[int, str]:
    """Everything that descends from us, and every `sleep 600` in the machine."""
    parents: dict[int, int] = {}
    lines: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                text = Path("/proc", name, "stat").read_text()
                command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                parents[int(name)] = int(text.rpartition(")")[2].split()[1])
                lines[int(name)] = f"{name} {command.strip()[:60]}"
    return {pid: line for pid, line in lines.items() if "sleep 600" in line or _descends(pid, parents)}


def _descends(pid: int, parents: dict[int, int]) -> bool:
    while pid := parents.get(pid, 0):
        if pid == os.getpid():
            return True
    return False


def _sockets() -> list[str]:
    """Of everything that descends from us, by process."""
    found = []
    for pid in _processes():
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                target = os.readlink(f"/proc/{pid}/fd/{name}")
                if target.startswith("socket:"):
                    found.append(f"{pid} {target}")
    return found


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            found.append(f"{name} {target}" if not target.startswith("/proc/") else name)
    return found
