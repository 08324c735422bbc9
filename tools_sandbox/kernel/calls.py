"""System calls that Python has no function for, on Linux on x86-64 and arm64."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

MACHINE = platform.machine()


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (pair.split() for pair in text.split(","))}


X86_64 = _table(
    """
    ioctl 16, shmget 29, shmat 30, shmctl 31, socket 41, socketpair 53, clone 56, fork 57, vfork 58, kill 62,
    semget 64, semop 65, semctl 66, msgget 68, msgsnd 69, msgrcv 70, msgctl 71, chmod 90, fchmod 91, chown 92,
    fchown 93, lchown 94, ptrace 101, syslog 103, setpgid 109, setsid 112, rt_sigqueueinfo 129, utime 132,
    mknod 133, setpriority 141, sched_setparam 142, sched_setscheduler 144, vhangup 153, modify_ldt 154,
    pivot_root 155, prctl 157, adjtimex 159, chroot 161, sync 162, acct 163, settimeofday 164, mount 165,
    umount2 166, swapon 167, swapoff 168, reboot 169, sethostname 170, setdomainname 171, iopl 172, ioperm 173,
    init_module 175, delete_module 176, quotactl 179, setxattr 188, lsetxattr 189, fsetxattr 190, removexattr 197,
    lremovexattr 198, fremovexattr 199, tkill 200, sched_setaffinity 203, semtimedop 220, clock_settime 227,
    tgkill 234, utimes 235, mq_open 240, mq_unlink 241, kexec_load 246, add_key 248, request_key 249,
    keyctl 250, ioprio_set 251, migrate_pages 256, mknodat 259, fchownat 260, futimesat 261, fchmodat 268,
    unshare 272, move_pages 279, utimensat 280, rt_tgsigqueueinfo 297, perf_event_open 298, prlimit64 302,
    name_to_handle_at 303, open_by_handle_at 304, clock_adjtime 305, syncfs 306, setns 308, process_vm_readv 310,
    process_vm_writev 311, kcmp 312, finit_module 313, sched_setattr 314, seccomp 317, memfd_create 319,
    kexec_file_load 320, bpf 321, userfaultfd 323, pidfd_send_signal 424, io_uring_setup 425, io_uring_enter 426,
    io_uring_register 427, open_tree 428, move_mount 429, fsopen 430, fsconfig 431, fsmount 432, fspick 433,
    clone3 435, close_range 436, pidfd_getfd 438, process_madvise 440, mount_setattr 442, quotactl_fd 443,
    landlock_create_ruleset 444, landlock_add_rule 445, landlock_restrict_self 446, memfd_secret 447,
    process_mrelease 448, fchmodat2 452, setxattrat 463, removexattrat 466, open_tree_attr 467, file_setattr 469
    """
)

_SAME_SINCE = 424
"""From this number on the two machines number alike."""

ARM64 = {name: number for name, number in X86_64.items() if number >= _SAME_SINCE} | _table(
    """
    setxattr 5, lsetxattr 6, fsetxattr 7, removexattr 14, lremovexattr 15, fremovexattr 16, ioctl 29,
    ioprio_set 30, mknodat 33, umount2 39, mount 40, pivot_root 41, chroot 51, fchmod 52, fchmodat 53, fchownat 54,
    fchown 55, vhangup 58, quotactl 60, sync 81, utimensat 88, acct 89, unshare 97, kexec_load 104,
    init_module 105, delete_module 106, clock_settime 112, syslog 116, ptrace 117, sched_setparam 118,
    sched_setscheduler 119, sched_setaffinity 122, kill 129, tkill 130, tgkill 131, rt_sigqueueinfo 138,
    setpriority 140, reboot 142, setpgid 154, setsid 157, sethostname 161, setdomainname 162, prctl 167,
    settimeofday 170, adjtimex 171, mq_open 180, mq_unlink 181, msgget 186, msgctl 187, msgrcv 188, msgsnd 189,
    semget 190, semctl 191, semtimedop 192, semop 193, shmget 194, shmctl 195, shmat 196, socket 198,
    socketpair 199, add_key 217, request_key 218, keyctl 219, clone 220, swapon 224, swapoff 225,
    migrate_pages 238, move_pages 239, rt_tgsigqueueinfo 240, perf_event_open 241, prlimit64 261,
    name_to_handle_at 264, open_by_handle_at 265, clock_adjtime 266, syncfs 267, setns 268, process_vm_readv 270,
    process_vm_writev 271, kcmp 272, finit_module 273, sched_setattr 274, seccomp 277, memfd_create 279, bpf 280,
    userfaultfd 282, kexec_file_load 294
    """
)

NUMBERS: dict[str, int] = {"x86_64": X86_64, "aarch64": ARM64}.get(MACHINE, {})
"""System call numbers of this machine; empty where we do not know them, and then nothing is isolated here."""

PR_SET_PDEATHSIG, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 24, 36, 38

_AT_FDCWD = -100
_AT_RECURSIVE = 0x8000
_MOUNT_ATTR_RDONLY, _MOUNT_ATTR_NOSUID = 1, 2


def syscall(name: str, *args: Any) -> int:
    """A raw system call.

    Raises:
        OSError: it failed; ENOSYS also where the number is not known.
    """
    number = NUMBERS.get(name)
    if number is None:
        raise OSError(38, f"{name}: not known on {MACHINE}")
    result: int = _libc.syscall(ctypes.c_long(number), *(_word(arg) for arg in args))
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")
    return result


def _word(value: Any) -> Any:
    return ctypes.c_long(value) if isinstance(value, int) else value


def prctl(option: int, *args: int) -> None:
    """`prctl(2)`.

    Raises:
        OSError: it failed.
    """
    words = [ctypes.c_ulong(value) for value in (*args, 0, 0, 0, 0)[:4]]
    if _libc.prctl(option, *words) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"prctl {option}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    """`mount(2)`.

    Raises:
        OSError: it failed; the message names the target.
    """
    words = [os.fsencode(text) if text else None for text in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), os.fsencode(data) if data else None) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {kind or 'flags'} on {target}: {os.strerror(error)}")


class _MountAttr(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def make_read_only(path: str) -> None:
    """Make a mount and all below it read-only.

    Raises:
        OSError: it failed; ENOSYS before Linux 5.12.
    """
    attr = _MountAttr(_MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID, 0, 0, 0)
    size = ctypes.sizeof(attr)
    syscall("mount_setattr", _AT_FDCWD, os.fsencode(path), _AT_RECURSIVE, ctypes.byref(attr), size)


def make_writable(path: str) -> None:
    """Make one mount, and none below it, writable again.

    Raises:
        OSError: it failed.
    """
    attr = _MountAttr(0, _MOUNT_ATTR_RDONLY, 0, 0)
    syscall("mount_setattr", _AT_FDCWD, os.fsencode(path), 0, ctypes.byref(attr), ctypes.sizeof(attr))


def close_all_but(*kept: int) -> None:
    """Close every descriptor but these."""
    low = 0
    for number in sorted(kept):
        if number > low:
            syscall("close_range", low, number - 1, 0)
        low = number + 1
    syscall("close_range", low, 0x7FFFFFFF, 0)


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapData(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


_CAP_VERSION_3 = 0x20080522
_CAP_LAST = 63


def drop_capabilities() -> None:
    """All of them, for good: bounding and ambient sets too.

    Raises:
        OSError: they could not be dropped.
    """
    for capability in range(_CAP_LAST + 1):
        if _libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) == -1:
            break  # the last one is behind us, or we have none that would let us
    header, data = _CapHeader(_CAP_VERSION_3, 0), (_CapData * 2)()
    if _libc.capset(ctypes.byref(header), data) == -1:
        error = ctypes.get_errno()
        raise OSError(error, f"capset: {os.strerror(error)}")
