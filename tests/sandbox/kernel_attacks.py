"""Tools of the conformance suite that ask the kernel for what no run ahead needs."""

from __future__ import annotations

import _posixshmem
import ctypes
import errno
import os
import resource
import struct
import time
from collections.abc import Callable
from typing import Any

from tests.sandbox.attempts import attempt, call

_USER_KEYRING = -4
_CREATE = 0o1000
_NEW_USER, _NEW_NET, _NEW_MOUNTS, _NEW_PIDS = 0x10000000, 0x40000000, 0x20000, 0x20000000


def _now(parts_per_second: int) -> Any:
    """The present time: even where this attack works, it does no harm."""
    seconds, rest = divmod(time.time_ns(), 10**9)
    return ctypes.create_string_buffer(struct.pack("qq", seconds, rest * parts_per_second // 10**9))


def _own_namespace() -> None:
    call("setns", os.open("/proc/self/ns/net", os.O_RDONLY), 0)


def _raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
    except ValueError as error:  # how Python tells that the kernel refused
        raise PermissionError(errno.EPERM, str(error)) from error


CALLS: dict[str, Callable[[], Any]] = {
    "chroot": lambda: call("chroot", b"/"),
    "pivot_root": lambda: call("pivot_root", b"/", b"/"),
    "fsopen": lambda: call("fsopen", b"tmpfs", 0),
    "open_tree": lambda: call("open_tree", -100, b"/", 1),
    "user namespace": lambda: call("unshare", _NEW_USER),
    "network namespace": lambda: call("unshare", _NEW_NET),
    "mount namespace": lambda: call("unshare", _NEW_MOUNTS),
    "pid namespace": lambda: call("unshare", _NEW_PIDS),
    "user namespace of a child": lambda: call("clone", _NEW_USER | 17, 0, 0, 0, 0) or os._exit(0),
    "enter a namespace": _own_namespace,
    "bpf": lambda: call("bpf", 0, struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100), 120),
    "perf_event_open": lambda: call("perf_event_open", struct.pack("IIQ", 1, 112, 1) + bytes(100), 0, -1, -1, 0),
    "userfaultfd": lambda: call("userfaultfd", 1),
    "io_uring": lambda: call("io_uring_setup", 1, ctypes.create_string_buffer(120)),
    "fanotify": lambda: call("fanotify_init", 0, 0),
    "session": lambda: call("setsid"),
    "process group": lambda: call("setpgid", 0, 0),
    "kernel module": lambda: call("init_module", b"", 0, b""),
    "another kernel": lambda: call("kexec_load", 0, 0, 0, 0),
    "accounting": lambda: call("acct", 0),
    "swap": lambda: call("swapon", b"/nowhere", 0),
    "host name": lambda: call("sethostname", os.uname().nodename.encode(), len(os.uname().nodename)),
    "clock": lambda: call("clock_settime", 0, _now(10**9)),
    "time of day": lambda: call("settimeofday", _now(10**6), 0),
    "user id": lambda: os.setuid(os.getuid() + 1),
    "more open files": _raise_limit,
}
"""Each by its name; all are denied to root and to ordinary users alike."""


def ask(what: str) -> str:
    return attempt(CALLS[what])


def keep(what: str, key: int, name: str) -> str:
    """Put something where it outlives its process."""
    keeps: dict[str, Callable[[], Any]] = {
        "shared memory": lambda: call("shmget", key, 4096, _CREATE | 0o600),
        "semaphores": lambda: call("semget", key, 1, _CREATE | 0o600),
        "message queue": lambda: call("msgget", key, _CREATE | 0o600),
        "POSIX message queue": lambda: call("mq_open", name.encode(), os.O_CREAT | os.O_RDWR, 0o600, 0),
        "key": lambda: call("add_key", b"user", name.encode(), b"x", 1, _USER_KEYRING),
        "keyring": lambda: call("keyctl", 1, name.encode()),
        "POSIX shared memory": lambda: _posixshmem.shm_open(name, os.O_CREAT | os.O_RDWR, mode=0o600),
    }
    return attempt(keeps[what])
