"""Tools of the conformance suite that try to change, or look into, what is none of their business on disk."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import stat
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sandbox.attempts import ESCAPED, attempt, call

VICTIM, FRESH = "victim", "fresh"
_SET_FLAGS, _GET_FLAGS = 0x40086602, 0x80086601
_NO_ATIME = 0x80


def _open(path: Path, flags: int) -> None:
    os.close(os.open(path, flags, 0o600))


def _unnamed(folder: Path) -> None:
    _open(folder, os.O_TMPFILE | os.O_WRONLY)


def _reopened(folder: Path) -> None:
    read_only = os.open(folder / VICTIM, os.O_RDONLY)
    os.write(os.open(f"/proc/self/fd/{read_only}", os.O_WRONLY), b"x")


def _from_the_root(folder: Path) -> None:
    Path(f"/proc/self/root{folder}", VICTIM).write_text("x")


def _flags(folder: Path) -> None:
    """Inode flags change through a descriptor that may only read."""
    read_only = os.open(folder / VICTIM, os.O_RDONLY)
    flags = struct.unpack("l", fcntl.ioctl(read_only, _GET_FLAGS, bytes(8)))[0]
    fcntl.ioctl(read_only, _SET_FLAGS, struct.pack("l", flags ^ _NO_ATIME))


def _on_read_only(change: Callable[[int], Any]) -> Callable[[Path], None]:
    """A change through a descriptor that may only read."""
    return lambda folder: change(os.open(folder / VICTIM, os.O_RDONLY))


def _mounted(folder: Path) -> None:
    call("mount", b"none", bytes(folder), b"tmpfs", 0, b"")


def _bound(folder: Path) -> None:
    call("mount", bytes(folder), bytes(folder), b"", 4096, b"")


CHANGES: dict[str, Callable[[Path], Any]] = {
    "create": lambda folder: (folder / FRESH).write_text("x"),
    "create by opening to read": lambda folder: _open(folder / FRESH, os.O_RDONLY | os.O_CREAT),
    "create without a name": _unnamed,
    "overwrite": lambda folder: (folder / VICTIM).write_text("x"),
    "open to write": lambda folder: _open(folder / VICTIM, os.O_RDWR),
    "append": lambda folder: _open(folder / VICTIM, os.O_WRONLY | os.O_APPEND),
    "truncate": lambda folder: os.truncate(folder / VICTIM, 1),
    "truncate by opening to read": lambda folder: _open(folder / VICTIM, os.O_RDONLY | os.O_TRUNC),
    "reopen what may be read": _reopened,
    "write from the root of /proc": _from_the_root,
    "delete": lambda folder: os.unlink(folder / VICTIM),
    "rename": lambda folder: os.rename(folder / VICTIM, folder / FRESH),
    "replace": lambda folder: os.replace(folder / "other", folder / VICTIM),
    "rename the folder": lambda folder: os.rename(folder, folder.with_name(folder.name + "-moved")),
    "make a folder": lambda folder: os.mkdir(folder / FRESH),
    "remove a folder": lambda folder: os.rmdir(folder / "empty"),
    "remove all": shutil.rmtree,
    "symbolic link": lambda folder: os.symlink("/", folder / FRESH),
    "hard link": lambda folder: os.link(folder / VICTIM, folder / FRESH),
    "pipe": lambda folder: os.mkfifo(folder / FRESH),
    "node": lambda folder: os.mknod(folder / FRESH, 0o600 | stat.S_IFREG),
    "device": lambda folder: os.mknod(folder / FRESH, 0o600 | stat.S_IFBLK, os.makedev(254, 0)),
    "whiteout": lambda folder: os.mknod(folder / FRESH, 0o600 | stat.S_IFCHR, 0),
    "mode": lambda folder: os.chmod(folder / VICTIM, 0o777),
    "setuid": lambda folder: os.chmod(folder / VICTIM, 0o4755),
    "mode through a descriptor": _on_read_only(lambda opened: os.fchmod(opened, 0o777)),
    "owner": lambda folder: os.chown(folder / VICTIM, os.getuid(), os.getgid()),
    "owner of a link": lambda folder: os.lchown(folder / VICTIM, os.getuid(), os.getgid()),
    "owner through a descriptor": _on_read_only(lambda opened: os.fchown(opened, os.getuid(), os.getgid())),
    "times": lambda folder: os.utime(folder / VICTIM, (1, 1)),
    "times through a descriptor": _on_read_only(lambda opened: os.utime(opened, (1, 1))),
    "attribute": lambda folder: os.setxattr(folder / VICTIM, "user.x", b"x"),
    "attribute through a descriptor": _on_read_only(lambda opened: os.setxattr(opened, "user.x", b"x")),
    "remove an attribute": lambda folder: os.removexattr(folder / VICTIM, "user.kept"),
    "inode flags": _flags,
    "mount": _mounted,
    "bind mount": _bound,
}
"""Each by what it does to a folder with the files `victim` and `other` and the folder `empty`."""


def change(how: str, folder: str) -> str:
    return attempt(lambda: CHANGES[how](Path(folder)))


def change_all(folder: str) -> dict[str, str]:
    """Every change, one after the other."""
    return {how: change(how, folder) for how in CHANGES}


def write_through(path: str) -> str:
    """Write to a path that leads somewhere else."""
    return attempt(lambda: Path(path).write_text("x"))


def read_through(path: str) -> str:
    return attempt(lambda: Path(path).read_bytes())


def opened_to_write(paths: list[str]) -> list[str]:
    """Those that could be opened to write; nothing is written."""
    return [path for path in paths if attempt(lambda p=path: _open(Path(p), os.O_WRONLY)) == ESCAPED]


def opened_to_read(paths: list[str]) -> list[str]:
    quietly = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    return [path for path in paths if attempt(lambda p=path: _open(Path(p), quietly)) == ESCAPED]


def move_in(source: str, target: str) -> str:
    return attempt(lambda: os.rename(source, target))


def link_in(source: str, target: str) -> str:
    return attempt(lambda: os.link(source, target))


def lock(path: str) -> str:
    """Lock a file that may be read, as programs do that only read."""

    def locked() -> None:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)

    return attempt(locked)


def by_handle(folder: str) -> str:
    """Open a file past its path, by the file system's own handle (a made-up one)."""
    handle = struct.pack("Ii8s", 8, 1, bytes(8))

    def opened() -> None:
        mount = os.open(folder, os.O_RDONLY)
        call("open_by_handle_at", mount, ctypes.create_string_buffer(handle), os.O_RDONLY)

    return attempt(opened)


def touch_up(path: str) -> list[str]:
    """Set a file's mode, owner and times to what they are: even where this works, it does no harm."""
    found = os.stat(path)
    return [
        attempt(lambda: os.chmod(path, stat.S_IMODE(found.st_mode))),
        attempt(lambda: os.chown(path, found.st_uid, found.st_gid)),
        attempt(lambda: os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))),
    ]


def usual_devices() -> list[Any]:
    with open("/dev/null", "wb") as null, open("/dev/full", "wb", buffering=0) as full:
        null.write(b"x")
        drawn = [_first_bytes(f"/dev/{name}") for name in ("zero", "random", "urandom")]
        return [drawn[0] == bytes(3), sum(map(len, drawn)), attempt(lambda: full.write(b"x"))]


def _first_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(3)


def ordinary_files() -> list[bool]:
    """What programs read without thinking of it."""
    paths = ["/etc/passwd", "/proc/cpuinfo", "/proc/meminfo", "/proc/self/status", "/usr/lib/os-release", __file__]
    return [bool(Path(path).read_bytes()) for path in paths] + [bool(os.listdir("/usr/bin"))]


def scribble(folder: str) -> str:
    """Write on and on."""
    Path(folder, "began").write_text("x")
    number = 0
    while True:
        Path(folder, f"file{number % 50}").write_bytes(os.urandom(10_000))
        number += 1
