"""Commit what a run changed, so that after a crash at any moment the workspace is either the old one or the new one.

1. What is new is copied into a folder of ours in the workspace, with owners, modes and times: whatever can fail for
   want of space or rights fails here, and nothing has happened.
2. The journal is written beside the run's files, and renamed into place: from now on the changes will happen.
3. One after the other, what was there is put aside and what is new is renamed to its place.
4. The journal is renamed once more, which says that it is done; then the folder with what was put aside goes.

Whoever finds a journal goes on with step 3, of which every part may be repeated. If that fails, all of it is undone by
renaming back, which needs neither space nor rights that step 3 did not have. One lock for each workspace keeps
committers apart.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from agentspec.tools_sandbox.tiers.difference import Change
from agentspec.tools_sandbox.tiers.files import remove_tree, sync
from agentspec.tools_sandbox.tiers.steps import Journal, carry_out, prepare, take_back

log = logging.getLogger("agentspec.journal")

_JOURNAL, _UNDO, _DONE = "journal", "undo", "done"
"""A commit that goes forward, one that goes back, one that is made. It is one file under three names."""
_LOCK = "lock"
_WORKSPACE = "workspace"


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


def aside_of(workspace: str, room: Path) -> Path:
    """Our folder in the workspace, for the run of this room."""
    return Path(workspace) / f".agentspec-{room.name}"


def commit(room: Path, workspace: str, upper: Path, changes: list[Change]) -> None:
    """Make the changes happen. The workspace's lock must be held.

    Raises:
        OSError: a change could not be made, and so none was.
    """
    if not changes:
        return
    aside = aside_of(workspace, room)
    try:
        journal = prepare(aside, workspace, upper, changes)
        _write(room, journal)
    except BaseException:
        (room / _JOURNAL).unlink(missing_ok=True)
        remove_tree(aside)
        raise
    _carry_out(room, journal)


def _write(room: Path, journal: Journal) -> None:
    draft = room / f"{_JOURNAL}.draft"
    with draft.open("wb") as file:
        file.write(msgspec.msgpack.encode(journal))
        file.flush()
        os.fsync(file.fileno())
    sync(os.fsencode(journal.aside))
    draft.rename(room / _JOURNAL)
    sync(os.fsencode(room))


def pending(home: Path) -> list[Path]:
    """The rooms with a commit that was not brought to its end."""
    return sorted(room for room in home.glob("*/") if any((room / name).exists() for name in (_JOURNAL, _UNDO, _DONE)))


def is_done(room: Path) -> bool:
    """Whether the changes of this room's run were made, all of them."""
    return (room / _DONE).exists()


def is_open(room: Path) -> bool:
    """Whether this room's commit has still to be brought to its end."""
    return (room / _JOURNAL).exists() or (room / _UNDO).exists()


def recover(home: Path) -> int:
    """Bring every commit of this workspace to its end, forward or back. The lock must be held.

    Returns:
        how many there were.

    Raises:
        OSError: neither was possible; the journal stays.
    """
    rooms = pending(home)
    for room in rooms:
        name = next(name for name in (_DONE, _UNDO, _JOURNAL) if (room / name).exists())
        journal = _decoder.decode((room / name).read_bytes())
        if name == _JOURNAL:
            _carry_out(room, journal)
        elif name == _UNDO:
            _back(room, journal)
        else:
            _tidy(journal)
    return len(rooms)


def _carry_out(room: Path, journal: Journal) -> None:
    _must_be_there(journal)
    try:
        carry_out(journal)
    except OSError:
        (room / _JOURNAL).rename(room / _UNDO)  # from here on there is no way but back
        sync(os.fsencode(room))
        _back(room, journal)
        raise
    (room / _JOURNAL).rename(room / _DONE)
    sync(os.fsencode(room))
    _tidy(journal)


def _must_be_there(journal: Journal) -> None:
    """A drive that is not mounted yet is no reason to go back."""
    if not os.path.isdir(journal.aside):
        raise FileNotFoundError(2, "the workspace is away, or what was put aside in it", journal.aside)


def _back(room: Path, journal: Journal) -> None:
    _must_be_there(journal)
    take_back(journal)
    (room / _UNDO).unlink()
    _tidy(journal)


def _tidy(journal: Journal) -> None:
    """What was put aside is wanted no more."""
    remove_tree(Path(journal.aside))
    root = next((step for step in journal.steps if not step.change.path), None)
    if root is not None and root.former is not None:  # its time has changed once more
        with contextlib.suppress(OSError):
            os.utime(journal.workspace, ns=(root.change.mtime_ns, root.change.mtime_ns))


def remember(home: Path, workspace: str) -> None:
    """Note whose home it is, so that leavings in the workspace can be found."""
    note = home / _WORKSPACE
    if not note.exists():
        note.write_text(workspace)


def forget(home: Path, room: Path) -> None:
    """A room is given up by its owner, or its owner is gone: nothing of its run stays, also not in the workspace."""
    with contextlib.suppress(OSError):
        remove_tree(aside_of((home / _WORKSPACE).read_text(), room))
    remove_tree(room)


def forget_the_gone(state: Path) -> None:
    """Remove the homes of workspaces that are there no longer, unless something in them waits."""
    for home in state.glob("*/"):
        note = home / _WORKSPACE
        with contextlib.suppress(OSError):
            if note.exists() and not Path(note.read_text()).exists() and not any(home.glob("*/")):
                remove_tree(home)
