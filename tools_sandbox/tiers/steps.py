"""The steps of a commit, forward and back: what was there is put aside, what is new is renamed to its place."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path

import msgspec

from agentspec.tools_sandbox.tiers.difference import Change, attributes, looks
from agentspec.tools_sandbox.tiers.files import remove_tree, sync

_FEW = 64
"""More folders than these are brought to the disk all at once."""


class Step(msgspec.Struct, frozen=True):
    """One change, and what stands in its place: nothing, something to put aside, or a folder that stays where it is
    (`former` changes it back)."""

    change: Change
    existed: bool
    former: Change | None = None


class Journal(msgspec.Struct, frozen=True):
    """Changes that will happen. `aside` is our folder in the workspace: `new-N` and `old-N` for the N-th step."""

    workspace: str
    aside: str
    steps: list[Step]


def prepare(aside: Path, workspace: str, upper: Path, changes: list[Change]) -> Journal:
    """Copy what is new into our folder, and note what stands in its place.

    Raises:
        OSError: it could not be copied.
    """
    aside.mkdir(mode=0o700)
    made: dict[bytes, bytes] = {}
    steps = []
    fresh: tuple[bytes, ...] = ()
    for number, change in enumerate(changes):
        at = os.path.join(os.fsencode(workspace), change.path)
        in_fresh = change.path.startswith(fresh)  # what was there goes aside with its folder
        former = None if in_fresh else _former(at, change)
        steps.append(Step(change, not in_fresh and os.path.lexists(at), former))
        if change.kind == "dir" and former is None:
            fresh += (change.path + b"/",)
        new = os.path.join(os.fsencode(aside), b"new-%d" % number)
        if steps[-1].former is None and change.kind != "remove":
            _make(new, change, os.path.join(os.fsencode(upper), change.path), made)
            made[change.path] = new
    return Journal(workspace, str(aside), steps)


def _former(at: bytes, change: Change) -> Change | None:
    """A folder that stays a folder stays where it is."""
    if change.kind != "dir" or change.opaque or not os.path.isdir(at) or os.path.islink(at):
        return None
    return Change("dir", change.path, **looks(at, os.lstat(at)))


def _make(new: bytes, change: Change, model: bytes, made: dict[bytes, bytes]) -> None:
    if change.kind == "dir":
        os.mkdir(new, 0o700)
        return  # its attributes when it is filled
    if change.kind == "link":
        os.link(made[change.target], new)
        return
    if change.kind == "file":
        shutil.copyfile(model, new, follow_symlinks=False)
    elif change.kind == "symlink":
        os.symlink(change.target, new)
    else:
        os.mkfifo(new)
    _give(new, change)
    if change.kind == "file":
        sync(new)


def carry_out(journal: Journal) -> None:
    """Make each step; made again, none changes anything more.

    Raises:
        OSError: one could not be made.
    """
    workspace, aside = os.fsencode(journal.workspace), os.fsencode(journal.aside)
    for number, step in enumerate(journal.steps):
        at = os.path.join(workspace, step.change.path)
        new, old = (os.path.join(aside, b"%s-%d" % (kind, number)) for kind in (b"new", b"old"))
        if step.former is not None:
            with contextlib.suppress(PermissionError):
                os.chmod(at, step.change.mode | 0o700)  # until it is filled
        elif step.change.kind == "remove":
            if step.existed and not os.path.lexists(old):
                os.rename(at, old)
        elif os.path.lexists(new):
            _swap(at, new, old, step.existed)
    for step in reversed(journal.steps):  # folders, when they are filled
        if step.change.kind == "dir":
            at = os.path.join(workspace, step.change.path)
            _give(at, step.change)
    _sync_folders(workspace, journal.steps)


def _swap(at: bytes, new: bytes, old: bytes, existed: bool) -> None:
    """Put aside what is there, and what is new in its place; for files in one stroke."""
    if existed and not os.path.lexists(old):
        is_folder = stat.S_ISDIR(os.lstat(at).st_mode) or stat.S_ISDIR(os.lstat(new).st_mode)
        try:
            if is_folder:
                raise PermissionError
            os.link(at, old, follow_symlinks=False)
        except PermissionError:  # a folder, or a file of somebody else's
            os.rename(at, old)
    os.replace(new, at)


def take_back(journal: Journal) -> None:
    """Everything back, the last step first; may be repeated.

    Raises:
        OSError: something could not be put back.
    """
    workspace, aside = os.fsencode(journal.workspace), os.fsencode(journal.aside)
    for number, step in reversed(list(enumerate(journal.steps))):
        at = os.path.join(workspace, step.change.path)
        new, old, out = (os.path.join(aside, b"%s-%d" % (kind, number)) for kind in (b"new", b"old", b"out"))
        if step.former is not None:
            continue
        made = step.change.kind != "remove" and not os.path.lexists(new)
        if made and os.path.lexists(at) and not os.path.lexists(out):
            os.rename(at, out)
        if os.path.lexists(old):
            os.replace(old, at) if not os.path.lexists(at) else remove_tree(Path(os.fsdecode(old)))
    for step in reversed(journal.steps):
        if step.former is not None:
            _give(os.path.join(workspace, step.change.path), step.former)


def _give(at: bytes, change: Change) -> None:
    """Owner, mode, extended attributes and time of what the run made."""
    seen = os.lstat(at)
    if (seen.st_uid, seen.st_gid) != (change.uid, change.gid):
        os.chown(at, change.uid, change.gid, follow_symlinks=False)
    if change.kind != "symlink":
        os.chmod(at, change.mode)
    there, wanted = attributes(at), change.attributes
    with contextlib.suppress(OSError):
        for name, value in wanted.items():
            if there.get(name) != value:
                os.setxattr(at, name, value, follow_symlinks=False)
        for name in there.keys() - wanted.keys():
            os.removexattr(at, name, follow_symlinks=False)
    os.utime(at, ns=(change.mtime_ns, change.mtime_ns), follow_symlinks=False)


def _sync_folders(workspace: bytes, steps: list[Step]) -> None:
    """To the disk, before the journal goes."""
    folders = {os.path.dirname(os.path.join(workspace, step.change.path)) for step in steps}
    if len(folders) > _FEW:
        os.sync()
        return
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            sync(folder)
