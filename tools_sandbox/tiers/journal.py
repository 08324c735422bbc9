"""Commit what a run changed, so that after a crash at any moment the workspace is either the old one or the new one.

1. The changes are written to a journal beside the run's files, and the journal is renamed into place: from now on they
   will happen.
2. They are applied one after the other; each file arrives under a name of ours and is renamed.
3. The journal is removed.

Whoever finds a journal applies it again from its start (every step may be repeated) before anything else is done in
that workspace. One lock for each workspace keeps committers apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentspec.tools_sandbox.tiers.difference import Change, attributes

_JOURNAL = "journal"
_LOCK = "lock"
_FEW = 64


class Journal(msgspec.Struct, frozen=True):
    """Changes that will happen. `source` is the folder that holds the new files."""

    workspace: str
    source: str
    changes: list[Change]


_decoder = msgspec.msgpack.Decoder(Journal)


def home_of(workspace: str, state: Path) -> Path:
    """The folder that holds a workspace's lock and the rooms of its runs."""
    return state / hashlib.sha256(os.fsencode(workspace)).hexdigest()[:16]


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """One at a time in this workspace. Freed by the kernel when its holder dies."""
    with (home / _LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def commit(room: Path, journal: Journal) -> None:
    """Make the changes happen. The workspace's lock must be held.

    Raises:
        OSError: a change could not be made; the journal stays, and `recover` will try again.
    """
    if not journal.changes:
        return
    _write(room, journal)
    apply(journal)
    (room / _JOURNAL).unlink()
    _sync_folder(os.fsencode(room))


def _write(room: Path, journal: Journal) -> None:
    draft = room / f"{_JOURNAL}.draft"
    with draft.open("wb") as file:
        file.write(msgspec.msgpack.encode(journal))
        file.flush()
        os.fsync(file.fileno())
    draft.rename(room / _JOURNAL)
    _sync_folder(os.fsencode(room))


def pending(home: Path) -> list[Path]:
    """The rooms with a journal that was not brought to its end."""
    return sorted(room for room in home.glob("*/") if (room / _JOURNAL).exists())


def recover(home: Path) -> int:
    """Bring every journal of this workspace to its end. The lock must be held.

    Returns:
        how many there were.

    Raises:
        OSError: a change could not be made.
    """
    rooms = pending(home)
    for room in rooms:
        apply(_decoder.decode((room / _JOURNAL).read_bytes()))
        (room / _JOURNAL).unlink()
    return len(rooms)


def apply(journal: Journal) -> None:
    """Make each change; made again, they change nothing more."""
    workspace, source = os.fsencode(journal.workspace), os.fsencode(journal.source)
    for number, change in enumerate(journal.changes):
        at = os.path.join(workspace, change.path)
        if change.kind == "remove":
            _remove(at)
        elif change.kind == "dir":
            _make_folder(at, change)
        else:
            _make_file(at, change, number, source, workspace)
    folders = [change for change in journal.changes if change.kind == "dir"]
    for change in reversed(folders):  # their times change as they are filled
        at, model = os.path.join(workspace, change.path), os.path.join(source, change.path)
        _give(at, model, change)
    _sync(workspace, journal.changes)


def _remove(at: bytes) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISDIR(os.lstat(at).st_mode):
            shutil.rmtree(at)
        else:
            os.unlink(at)


def _make_folder(at: bytes, change: Change) -> None:
    try:
        is_folder = stat.S_ISDIR(os.lstat(at).st_mode)
    except FileNotFoundError:
        is_folder = False
    if change.opaque or not is_folder:
        _remove(at)
        os.mkdir(at, 0o700)
    else:
        with contextlib.suppress(PermissionError):
            os.chmod(at, change.mode | 0o700)  # until it is filled


def _make_file(at: bytes, change: Change, number: int, source: bytes, workspace: bytes) -> None:
    new = os.path.join(os.path.dirname(at), b".agentspec-%d" % number)
    _remove(new)
    model = os.path.join(source, change.path)
    if change.kind == "file":
        shutil.copyfile(model, new, follow_symlinks=False)
    elif change.kind == "link":
        os.link(os.path.join(workspace, change.target), new)
    elif change.kind == "symlink":
        os.symlink(change.target, new)
    else:
        os.mkfifo(new)
    if change.kind != "link":
        _give(new, model, change)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if stat.S_ISDIR(os.lstat(at).st_mode):
            _remove(at)
    os.replace(new, at)
    _remove(new)  # two names of one file: rename does nothing


def _give(at: bytes, model: bytes, change: Change) -> None:
    """Owner, mode, extended attributes and time of what the run made."""
    seen = os.lstat(at)
    if (seen.st_uid, seen.st_gid) != (change.uid, change.gid):
        os.chown(at, change.uid, change.gid, follow_symlinks=False)
    if change.kind != "symlink":
        os.chmod(at, change.mode)
    for name, value in attributes(model).items():
        with contextlib.suppress(OSError):
            os.setxattr(at, name, value, follow_symlinks=False)
    os.utime(at, ns=(change.mtime_ns, change.mtime_ns), follow_symlinks=False)


def _sync(workspace: bytes, changes: list[Change]) -> None:
    """To the disk, before the journal goes."""
    files = [change for change in changes if change.kind == "file"]
    if len(files) > _FEW:
        os.sync()
        return
    paths = {os.path.join(workspace, change.path) for change in files}
    paths |= {os.path.dirname(os.path.join(workspace, change.path)) for change in changes}
    for path in paths:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            _sync_folder(path)


def _sync_folder(path: bytes) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
