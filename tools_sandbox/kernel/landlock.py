"""Landlock: a process gives up files, sockets and signals for good (Linux documentation, userspace-api/landlock).

Rights that this kernel's Landlock does not know are not asked for; what that leaves open is closed by `seccomp`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable

from agentspec.tools_sandbox.kernel.calls import syscall

FLOOR = 3
"""Before this version (Linux 6.2) a file that may not be written can be truncated."""

SIGNALS_SINCE = 6
"""From this version (Linux 6.12) on, signals to other processes are held back as well."""

_READ = (1 << 0) | (1 << 2) | (1 << 3)  # execute, read file, read directory
_WRITE_FILE, _TRUNCATE = 1 << 1, 1 << 14
_ON_FILES = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 14) | (1 << 15)
_BY_VERSION = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NET_SINCE, _NET = 4, 3
_SCOPES = 3
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1


class _Ruleset(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "net", "scoped")]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def version() -> int:
    """The version of Landlock here; 0 where there is none."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError:
        return 0


def restrict(
    readable: Iterable[str], writable: Iterable[str], writable_files: Iterable[str], *, network: bool, known: int
) -> None:
    """From now on this process and its children reach nothing but these paths, and with `network` TCP.

    Args:
        readable: below these everything may be read and executed. Those that do not exist are left out.
        writable: below these everything may be done.
        writable_files: single files (devices) that may be written.
        known: the version to act as, at most `version()`.

    Raises:
        OSError: it could not be done.
    """
    files = sum(rights for since, rights in _BY_VERSION.items() if since <= known)
    net = 0 if network or known < _NET_SINCE else _NET
    scoped = _SCOPES if known >= SIGNALS_SINCE else 0
    ruleset = _Ruleset(files, net, scoped)
    size = 24 if known >= SIGNALS_SINCE else 16 if known >= _NET_SINCE else 8
    fd = syscall("landlock_create_ruleset", ctypes.byref(ruleset), size, 0)
    try:
        for path in readable:
            _allow(fd, path, _READ & files)
        for path in writable:
            _allow(fd, path, files)
        for path in writable_files:
            _allow(fd, path, (_READ | _WRITE_FILE | _TRUNCATE) & files)
        syscall("landlock_restrict_self", fd, 0)
    finally:
        os.close(fd)


def _allow(ruleset: int, path: str, rights: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(path):
                rights &= _ON_FILES
            rule = _PathBeneath(rights, beneath)
            syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(beneath)
