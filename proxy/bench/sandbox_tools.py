"""Tools for `agentspec bench sandbox`: one that does nothing much, and some that leave things about."""

from __future__ import annotations

import mmap
import os
import socket
import subprocess
import tempfile
import time
from pathlib import Path


def add(a: int, b: int) -> int:
    """The sum."""
    return a + b


def write(path: str, text: str) -> int:
    """Write a file."""
    return Path(path).write_text(text)


def litter(folder: str) -> int:
    """Leave whatever can be left: files, links, processes, sockets, shared memory. Returns how much of it worked."""
    ways = (
        lambda: Path(folder, "litter").write_text("x" * 1000),
        lambda: Path(folder, "kept").write_text("changed"),
        lambda: Path(folder, "kept").unlink(),
        lambda: os.link(Path(folder, "other"), Path(folder, "link")),
        lambda: os.symlink("/etc", Path(folder, "symlink")),
        lambda: os.chmod(folder, 0o777),
        lambda: os.utime(Path(folder, "other"), (0, 0)),
        lambda: Path(tempfile.gettempdir(), f"litter-{os.getpid()}").write_text("x"),
        lambda: Path("/dev/shm", f"litter-{os.getpid()}").write_text("x"),
        lambda: Path.home().joinpath("litter").write_text("x"),
        lambda: subprocess.Popen(["sleep", "600"], start_new_session=True),
        lambda: socket.create_server(("127.0.0.1", 0)),
        lambda: socket.socket(socket.AF_UNIX).bind(str(Path(folder, "socket"))),
        lambda: mmap.mmap(-1, 2**20),
    )
    worked = 0
    for way in ways:
        try:
            way()
            worked += 1
        except OSError:
            continue
    return worked


def dawdle(folder: str, seconds: float) -> int:
    """Litter, then take a while."""
    worked = litter(folder)
    time.sleep(seconds)
    return worked
