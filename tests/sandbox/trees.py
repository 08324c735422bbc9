"""File trees as the commit checks know them: what is in one, a rich one to start from, copies of one."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OLD_NS = 1_500_000_000_123_456_789
"""The time of every file that nobody has touched yet."""

ODD = ["ž中\nnew line", os.fsdecode(b"-rf not\xffutf8"), "x" * 255, ".wh.back\\slash,comma:colon"]


def tree_of(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All of a tree that a plain call would have left the same: kinds, modes, owners, contents, links, attributes,
    and the times of what is no folder."""
    paths = ["", *sorted(_below(folder, ""))]
    seen = {path: os.lstat(folder / path) for path in paths}
    names: dict[int, list[str]] = {}
    for path, found in seen.items():
        names.setdefault(found.st_ino, []).append(path)
    return {path: _entry(folder / path, found, names[found.st_ino]) for path, found in seen.items()}


def _below(folder: Path, prefix: str) -> list[str]:
    found = []
    with os.scandir(folder / prefix) as entries:
        for entry in entries:
            path = prefix + entry.name
            found.append(path)
            if entry.is_dir(follow_symlinks=False):
                found += _below(folder, path + "/")
    return found


def _entry(path: Path, seen: os.stat_result, names: list[str]) -> tuple[Any, ...]:
    owner, attributes = (seen.st_uid, seen.st_gid), _attributes(path)
    if stat.S_ISLNK(seen.st_mode):
        return "symlink", owner, os.readlink(path)
    if stat.S_ISDIR(seen.st_mode):
        return "folder", oct(seen.st_mode), owner, attributes
    content = path.read_bytes() if stat.S_ISREG(seen.st_mode) else None
    return oct(seen.st_mode), owner, attributes, tuple(names), seen.st_mtime_ns, content


def _attributes(path: Path) -> dict[str, bytes]:
    try:
        return {
            name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
        }
    except OSError:
        return {}


def timeless(tree: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    """The same without the times."""
    return {path: entry[:4] + entry[5:] for path, entry in tree.items()}


def copy_of(source: Path, target: Path) -> Path:
    """A copy down to links, times and attributes."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", str(target)], check=True)
    return target


def clear(folder: Path) -> None:
    """Empty a folder, whatever the modes and attributes in it."""
    folder.chmod(0o755)
    for name in _attributes(folder):
        os.removexattr(folder, name)
    for path in list(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            clear(path)
            path.rmdir()
        else:
            path.unlink()


@contextlib.contextmanager
def fast_folder(otherwise: Path) -> Iterator[Path]:
    """A folder where a sync costs nothing; the other one on a machine that has none that can hold attributes."""
    try:
        made = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="commits-"))
        os.setxattr(made, "user.test", b"1")
    except OSError:
        yield otherwise
        return
    try:
        yield made
    finally:
        clear(made)
        made.rmdir()


def age(folder: Path) -> None:
    """As if nobody had touched it for long."""
    for path in [folder / name for name in _below(folder, "")]:
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)


def lay_out(folder: Path) -> None:
    """A tree with one of everything; `commit_tools.rework` knows it."""
    folder.mkdir(exist_ok=True)
    for name in ("kept", "modified", "in-place", "removed", "to-folder", "moded", "read-only", "timed", "to-link"):
        (folder / name).write_text(f"this is {name}")
    for name in ("deep/a/b/c/d", "to-file/inner", "opaque/inner/most", "gone/inner", "emptied", "closed/inner"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text(f"this is in {name}")
    for name in ODD:
        (folder / "deep" / name).write_bytes(os.fsencode(name))
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("kept")
    (folder / "link-to-folder").symlink_to("deep/a")
    (folder / "twin").write_text("this is a twin")
    os.link(folder / "twin", folder / "deep/twin")
    os.mkfifo(folder / "pipe", 0o640)
    (folder / "large").write_bytes(bytes(range(256)) * 1000)
    (folder / "read-only").chmod(0o444)
    age(folder)
    (folder / "closed").chmod(0o555)
