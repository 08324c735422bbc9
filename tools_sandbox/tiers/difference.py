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
from agentspec.tools_sandbox.tiers.workspace import Snapshot, Stamp

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
    attributes: dict[str, bytes] = {}


def read_difference(upper: Path, workspace: Path, before: Snapshot) -> list[Change]:
    """The changes, parents before children; the workspace itself is the empty path.

    Args:
        before: the workspace before the run.

    Raises:
        ToolRefused: one of them cannot be carried over faithfully.
    """
    first_of: dict[int, bytes] = {}
    root = os.fsencode(upper)
    changes = [_change(root, path, seen, first_of) for path, seen in _walk(root)]
    _refuse_hard_links(changes, before)
    top = _change(root, b"", os.lstat(root), first_of)
    if changes or _differs(top, before[b""], attributes(os.fsencode(workspace))):
        changes.insert(0, top)
    return changes


def _differs(top: Change, before: Stamp, held: dict[str, bytes]) -> bool:
    return (top.mode, top.mtime_ns) != (stat.S_IMODE(before[0]), before[3]) or top.attributes != held


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
    about = looks(full, seen)
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


def looks(full: bytes, seen: os.stat_result) -> dict[str, Any]:
    """Mode, owner, time and extended attributes of a file, as a `Change` holds them."""
    return {
        "mode": stat.S_IMODE(seen.st_mode),
        "uid": seen.st_uid,
        "gid": seen.st_gid,
        "mtime_ns": seen.st_mtime_ns,
        "attributes": attributes(full),
    }


def _refuse_hard_links(changes: list[Change], before: Snapshot) -> None:
    """Another name of the same file would have changed, or moved, with it; a copy of ours would not."""
    several = {path for path, entry in before.items() if stat.S_ISREG(entry[0]) and entry[5] > 1}
    if not several:
        return
    made = [change.path for change in changes if change.kind in ("file", "link")]
    gone = tuple(change.path for change in changes if change.kind == "remove" or change.opaque)
    touched = several.intersection(made)
    if made:  # one that went may have come back under another name
        touched |= {path for path in several if path in gone or path.startswith(tuple(name + b"/" for name in gone))}
    if touched:
        name = os.fsdecode(min(touched))
        raise ToolRefused(f"{name} has several names (hard links); only a plain run changes all of them")


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
