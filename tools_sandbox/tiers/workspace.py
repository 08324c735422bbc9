"""What a folder looked like: a stamp for every file in it, so that any change since then is noticed.

The stamp holds the time of the last change of the inode (ctime), which no program can set back; a change within the
clock's grain of the snapshot would be missed, so a folder that was changed just now is looked at again a moment later.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import msgspec

from agentspec.errors import ToolRefused

MAX_ENTRIES = 50_000
"""A folder with more entries takes too long to look at before each run."""

_GRAIN_S = 0.02
_TRIES = 10

Stamp = tuple[int, int, int, int, int, int]
"""mode, inode, size, mtime in ns, ctime in ns, number of links"""

Snapshot = dict[bytes, Stamp]
"""By path relative to the folder; the folder itself is the empty path."""

_decoder = msgspec.msgpack.Decoder(dict[bytes, Stamp])


def snapshot(root: str | Path) -> Snapshot:
    """The folder as it is.

    Raises:
        ToolRefused: it has too many entries, another file system is mounted in it, or it does not come to rest.
    """
    for _ in range(_TRIES):
        began_ns = time.time_ns()
        found = _walk(os.fsencode(root))
        newest_ns = max(entry[4] for entry in found.values())
        if began_ns - newest_ns > _GRAIN_S * 1e9 or newest_ns - began_ns > 3600 * 1e9:  # or a clock that was set back
            return found
        time.sleep(_GRAIN_S)
    raise ToolRefused(f"{os.fsdecode(os.fsencode(root))} is being changed all the time")


def unchanged(root: str | Path, before: Snapshot) -> str | None:
    """What has changed since the snapshot: the first path found; None for nothing."""
    now = _walk(os.fsencode(root))
    if now == before:
        return None
    for path, entry in now.items():
        if before.get(path) != entry and not (stat.S_ISDIR(entry[0]) and path in before):
            return os.fsdecode(path) or "."
    gone = next((path for path in before if path not in now), b"")
    return os.fsdecode(gone) or "."


def changed_files(before: Snapshot, after: Snapshot) -> set[bytes]:
    """Paths of other things than folders that appeared, went or changed, and of folders that appeared or went."""
    found = set(before.keys() ^ after.keys())
    kept = before.keys() & after.keys()
    return found | {path for path in kept if before[path] != after[path] and not _both_dirs(before, after, path)}


def _both_dirs(before: Snapshot, after: Snapshot, path: bytes) -> bool:
    return stat.S_ISDIR(before[path][0]) and before[path][0] == after[path][0]


def _walk(root: bytes) -> Snapshot:
    top = os.stat(root)
    found: Snapshot = {b"": _stamp(top)}
    stack = [(root, b"")]
    while stack:
        folder, prefix = stack.pop()
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue  # gone since; its parent has changed
        for entry in entries:
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            path = prefix + entry.name
            found[path] = _stamp(seen)
            if stat.S_ISDIR(seen.st_mode):
                if seen.st_dev != top.st_dev:
                    raise ToolRefused(f"another file system is mounted at {os.fsdecode(entry.path)}")
                stack.append((entry.path, path + b"/"))
        if len(found) > MAX_ENTRIES:
            raise ToolRefused(f"{os.fsdecode(root)} has more than {MAX_ENTRIES} entries: too many to watch")
    return found


def _stamp(seen: os.stat_result) -> Stamp:
    return seen.st_mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_nlink


def save(found: Snapshot, file: Path) -> None:
    """Write a snapshot down."""
    file.write_bytes(msgspec.msgpack.encode(found))


def load(file: Path) -> Snapshot:
    """Read one again.

    Raises:
        OSError: it is not there.
    """
    return _decoder.decode(file.read_bytes())
