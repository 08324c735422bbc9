"""What the conformance suite shares: which places a check applies to, and how the outside looks at a run."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

EVERYWHERE = pytest.mark.parametrize("place", ["T0", "T1", "T2", "T3"], indirect=True, scope="module")
ISOLATED = pytest.mark.parametrize("place", ["T1", "T2", "T3"], indirect=True, scope="module")
ON_THIS_MACHINE = pytest.mark.parametrize("place", ["T0", "T1", "T2"], indirect=True, scope="module")
READ_ONLY = pytest.mark.parametrize("place", ["T1", "T3"], indirect=True, scope="module")
"""The isolated places without an overlay: no file at all can be changed."""
OVERLAY = pytest.mark.parametrize("place", ["T2"], indirect=True, scope="module")

DENIED = frozenset({"EACCES", "EPERM", "EROFS", "ENOSYS"})
"""How a kernel says no."""
UNMAPPED = frozenset({"EINVAL", "EOVERFLOW"})
"""How it says no in a user namespace to owners that it does not know there."""
HIDDEN = DENIED | {"ENOENT", "ESRCH"}
"""The same where a place may also have nothing there at all (private folders, another pid namespace)."""

PATIENCE_S = 5.0


def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"did not come true within {PATIENCE_S} s: {what}"
        time.sleep(0.01)
    return value


def state_of(pid: int) -> str:
    """The process's one-letter state (R, S, T, Z …), or "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def gone(pid: int | None) -> bool:
    """Whether nothing runs under this pid (if there is one); what only waits to be reaped counts as gone."""
    return pid is None or state_of(pid) in ("", "Z", "X")


def processes_named(mark: str) -> list[int]:
    """The pids of everything alive, in any namespace, whose name or command line holds the mark."""
    return [pid for pid in pids() if not gone(pid) and (_holds(pid, "comm", mark) or _holds(pid, "cmdline", mark))]


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _holds(pid: int, file: str, mark: str) -> bool:
    try:
        return mark.encode() in Path(f"/proc/{pid}/{file}").read_bytes()
    except OSError:
        return False


def look_of(folder: Path) -> dict[str, Any]:
    """Everything about a folder that an escape could change: names, kinds, contents, modes, owners, times."""
    paths = [folder, *sorted(folder.rglob("*"))]
    return {str(path.relative_to(folder)): _look_of_file(path) for path in paths}


def _look_of_file(path: Path) -> tuple[Any, ...]:
    stat = path.lstat()
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    attributes = sorted(os.listxattr(path, follow_symlinks=False))
    return (
        stat.st_mode,
        stat.st_uid,
        stat.st_gid,
        stat.st_nlink,
        stat.st_mtime_ns,
        stat.st_ctime_ns,
        content,
        attributes,
    )


def assert_denied(verdict: Any, expected: Collection[str] = DENIED) -> None:
    """An attack reports the kernel's no, and nothing else."""
    assert verdict in expected
