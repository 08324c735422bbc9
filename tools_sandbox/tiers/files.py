"""Two things that are harder than they look: to remove a tree, and to have a file on the disk."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a file or a tree, also one whose folders may not be read or changed."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        for folder, names, _ in os.walk(path):
            for name in (".", *names):
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(folder, name), 0o700, follow_symlinks=True)
        shutil.rmtree(path, ignore_errors=True)


def sync(path: bytes) -> None:
    """Wait until a file or a folder is on the disk."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:  # its owner may not read it: then the sync of its folder must do
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
