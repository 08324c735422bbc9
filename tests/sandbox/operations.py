"""Random file operations: what a tool may do to a tree, as data, and the tool that does it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.sandbox.trees import OLD_NS

Operation = tuple[str, str, str, int]
"""What to do, to which path, with which second path, with which number."""


def _write(path: str, _: str, number: int) -> None:
    with open(path, "w") as file:
        file.write(str(number) * number)


def _append(path: str, _: str, number: int) -> None:
    with open(path, "a") as file:
        file.write(str(number))


def _overwrite(path: str, _: str, number: int) -> None:
    with open(path, "r+") as file:
        file.write(str(number))


def _replace(path: str, _: str, number: int) -> None:
    """As editors save."""
    _write(path + "~", "", number)
    os.replace(path + "~", path)


ACTS: dict[str, Callable[[str, str, int], Any]] = {
    "write": _write,
    "append": _append,
    "overwrite": _overwrite,
    "replace": _replace,
    "truncate": lambda path, _, number: os.truncate(path, number),
    "make folder": lambda path, _, number: os.mkdir(path, 0o700 + number),
    "make folders": lambda path, other, _: os.makedirs(f"{path}/{other}"),
    "remove": lambda path, *_: os.unlink(path),
    "remove folder": lambda path, *_: os.rmdir(path),
    "remove tree": lambda path, *_: shutil.rmtree(path),
    "empty folder": lambda path, *_: (shutil.rmtree(path), os.mkdir(path)),
    "rename": lambda path, other, _: os.rename(path, other),
    "move": lambda path, other, _: shutil.move(path, other),
    "copy": lambda path, other, _: shutil.copy2(path, other),
    "copy tree": lambda path, other, _: shutil.copytree(path, other, symlinks=True),
    "link": lambda path, other, _: os.link(os.path.realpath(path), other),
    "symlink": lambda path, other, _: os.symlink(other, path),
    "mode": lambda path, _, number: os.chmod(path, 0o700 + number * 7),
    "time": lambda path, _, number: os.utime(path, ns=(OLD_NS + number, OLD_NS + number)),
    "attribute": lambda path, _, number: os.setxattr(path, "user.test", bytes(number)),
    "no attribute": lambda path, *_: os.removexattr(path, "user.test"),
}

RAW = "<ff>"
"""Stands for a byte that is no UTF-8, which JSON could not carry."""

BASE: list[Operation] = [
    ("make folders", "a", "b/a", 0),
    ("make folders", "b", "c", 0),
    *[("write", path, "", 5) for path in ("a/a", "a/b/a/a", "a/b/c", "b/a", "c", f"b/{RAW}", ".agentspec-0")],
    ("symlink", "b/b", "../a", 0),
    ("link", "a/a", "a/twin", 0),
    ("make folder", "ž\n", "", 0),
    ("attribute", "b", "", 3),
    ("attribute", "c", "", 3),
]
"""Where every tree starts from."""

_names = st.sampled_from(["a", "b", "c", "ž\n", RAW])
_known = ["a", "a/a", "a/b", "a/b/a", "a/b/a/a", "a/b/c", "b", "b/a", "b/b", "b/b/a", "b/c", "c", "ž\n", f"b/{RAW}"]
_paths = st.sampled_from(_known) | st.lists(_names, min_size=1, max_size=3).map("/".join)
_others = st.sampled_from([*_known, "new", "a/new", "b/c/new"]) | _paths
operations: st.SearchStrategy[Operation] = st.tuples(st.sampled_from([*ACTS]), _paths, _others, st.integers(0, 7))

NOT_HERE = {"EXDEV", "EACCES", "EPERM"}
"""What a plain call may do and an overlay, or a process without root's rights, may not: there the run has failed."""


def perform(steps: list[Any]) -> list[str]:
    """Do them one after the other; how each ended: "" or the name of the error."""
    return [_attempt(*step) for step in steps]


def _attempt(what: str, path: str, other: str, number: int) -> str:
    path, other = (name.replace(RAW, os.fsdecode(b"\xff")) for name in (path, other))
    if what in ("move", "copy tree") and _lies_in(other, path):
        return "into itself"
    try:
        ACTS[what](path, other, number)
    except shutil.Error as error:
        return "EXDEV" if "cross-device" in str(error) else "shutil"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "?")
    return ""


def _lies_in(inner: str, outer: str) -> bool:
    return os.path.realpath(inner).startswith(os.path.realpath(outer))


def build(folder: Path, steps: list[Operation]) -> None:
    """A tree, as these steps leave it."""
    here = os.getcwd()
    os.chdir(folder)
    try:
        perform(steps)
    finally:
        os.chdir(here)
