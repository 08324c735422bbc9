"""What a run changed in its workspace, read from the upper layer of its overlay (Linux, filesystems/overlayfs).

A deleted path is a character device 0:0 (a whiteout); a folder that hides what was below it is marked opaque.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agentspec.errors import ToolRefused

_OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
_OVERLAY = ("user.overlay.", "trusted.overlay.")


class Change(msgspec.Struct, frozen=True):
    """One path that the run made, changed or removed.

    `kind`: `remove`, `dir` (`opaque`: nothing of the old one stays), `file`, `link` (to the path in `target`),
    `symlink` or `fifo`. Paths are relative to the workspace.
    """

    kind: str
    path: bytes
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    target: bytes = b""
    opaque: bool = False


def read_difference(upper: Path, workspace: Path) -> list[Change]:
    """The changes, parents before children.

    Raises:
        ToolRefused: one of them cannot be carried over faithfully.
    """
    changes: list[Change] = []
    first_of: dict[int, bytes] = {}
    root = os.fsencode(upper)
    for path, seen in _walk(root):
        change = _change(root, path, seen, first_of)
        if change.kind in ("file", "link"):
            _refuse_hard_links(os.path.join(os.fsencode(workspace), path))
        changes.append(change)
    return changes


def _walk(root: bytes) -> Iterator[tuple[bytes, os.stat_result]]:
    stack = [b""]
    while stack:
        folder = stack.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            names = sorted(entry.name for entry in entries)
        for name in names:
            path = os.path.join(folder, name)
            seen = os.lstat(os.path.join(root, path))
            yield path, seen
            if stat.S_ISDIR(seen.st_mode):
                stack.append(path)


def _change(root: bytes, path: bytes, seen: os.stat_result, first_of: dict[int, bytes]) -> Change:
    full, mode = os.path.join(root, path), seen.st_mode
    if stat.S_ISCHR(mode) and seen.st_rdev == 0:
        return Change("remove", path)
    about: dict[str, Any] = {
        "mode": stat.S_IMODE(mode),
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
    }
    if stat.S_ISDIR(mode):
        return Change("dir", path, opaque=_is_opaque(full), **about)
    if stat.S_ISLNK(mode):
        return Change("symlink", path, target=os.readlink(full), **about)
    if stat.S_ISFIFO(mode):
        return Change("fifo", path, **about)
    if not stat.S_ISREG(mode):
        raise ToolRefused(f"{os.fsdecode(path)} is a socket or a device, which cannot be carried over")
    first = first_of.setdefault(seen.st_ino, path)
    return Change("link", path, target=first) if first != path else Change("file", path, **about)


def _refuse_hard_links(real: bytes) -> None:
    """Another name of the same file would have changed with it; a copy of ours would not."""
    try:
        seen = os.lstat(real)
    except OSError:
        return
    if stat.S_ISREG(seen.st_mode) and seen.st_nlink > 1:
        raise ToolRefused(f"{os.fsdecode(real)} has several names (hard links); only a plain run changes all of them")


def _is_opaque(folder: bytes) -> bool:
    return any(attributes(folder, keep_overlay=True).get(name) == b"y" for name in _OPAQUE)


def attributes(path: bytes, keep_overlay: bool = False) -> dict[str, bytes]:
    """The extended attributes of a file that are the user's."""
    found = {}
    try:
        for name in os.listxattr(path, follow_symlinks=False):
            if keep_overlay or not name.startswith(_OVERLAY):
                found[name] = os.getxattr(path, name, follow_symlinks=False)
    except OSError:  # a file system without them
        return found
    return found
