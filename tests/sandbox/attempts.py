"""How an attack tries something inside a run, and raw system calls for what Python has no function for."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

ESCAPED = "escaped"

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_NUMBERS = {  # on x86_64, on aarch64
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_settime": (227, 112),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execveat": (322, 281),
    "fanotify_init": (300, 262),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "request_key": (249, 218),
    "rt_sigqueueinfo": (129, 138),
    "semget": (64, 190),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpgid": (109, 154),
    "setsid": (112, 157),
    "settimeofday": (164, 170),
    "shmget": (29, 194),
    "swapon": (167, 224),
    "tgkill": (234, 131),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
}
_COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]


def attempt(act: Callable[[], Any]) -> str:
    """ "escaped" if the act succeeds, otherwise the name of the errno it ended in."""
    try:
        act()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, repr(error))
    return ESCAPED


def call(name: str, *arguments: Any) -> int:
    """One system call, past every wrapper; buffers and text may be among the arguments.

    Raises:
        OSError: the kernel refused.
    """
    return raw_call(_NUMBERS[name][_COLUMN], *arguments)


def raw_call(number: int, *arguments: Any) -> int:
    """The same by number."""
    passed = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(number), *passed)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def number_of(name: str) -> int:
    """A system call's number on this machine."""
    return _NUMBERS[name][_COLUMN]
