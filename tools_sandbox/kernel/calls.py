"""System calls that Python has no function for, on Linux on x86-64 and arm64."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Any

_libc = ctypes.CDLL(None, use_errno=True)

MACHINE = platform.machine()

X86_64: dict[str, int] = {
    **{"ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "clone": 56, "fork": 57, "vfork": 58},
    **{"kill": 62, "semget": 64, "semop": 65, "semctl": 66, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71},
    **{"chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "syslog": 103},
    **{"setpgid": 109, "setsid": 112, "utime": 132, "mknod": 133, "setpriority": 141, "vhangup": 153},
    **{"modify_ldt": 154, "pivot_root": 155, "prctl": 157, "adjtimex": 159, "chroot": 161, "sync": 162, "acct": 163},
    **{"settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169},
    **{"sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175, "delete_module": 176},
    **{"quotactl": 179, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198},
    **{"fremovexattr": 199, "tkill": 200, "semtimedop": 220, "clock_settime": 227, "tgkill": 234, "utimes": 235},
    **{"mbind": 237, "mq_open": 240, "mq_unlink": 241, "kexec_load": 246, "add_key": 248, "request_key": 249},
    **{"keyctl": 250, "ioprio_set": 251, "migrate_pages": 256, "mknodat": 259, "fchownat": 260, "futimesat": 261},
    **{"fchmodat": 268, "unshare": 272, "move_pages": 279, "utimensat": 280, "rt_sigqueueinfo": 129},
    **{"rt_tgsigqueueinfo": 297, "perf_event_open": 298, "prlimit64": 302, "name_to_handle_at": 303},
    **{"open_by_handle_at": 304, "clock_adjtime": 305, "syncfs": 306, "setns": 308, "process_vm_readv": 310},
    **{"process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "seccomp": 317, "kexec_file_load": 320, "bpf": 321},
    **{
        "memfd_create": 319,
        "userfaultfd": 323,
        "socketpair": 53,
        "pidfd_send_signal": 424,
        "io_uring_setup": 425,
        "io_uring_enter": 426,
    },
    **{"io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432},
    **{"fspick": 433, "clone3": 435, "close_range": 436, "pidfd_getfd": 438, "process_madvise": 440},
    **{"mount_setattr": 442, "quotactl_fd": 443, "landlock_create_ruleset": 444, "landlock_add_rule": 445},
    **{
        "landlock_restrict_self": 446,
        "memfd_secret": 447,
        "process_mrelease": 448,
        "fchmodat2": 452,
        "setxattrat": 463,
        "sched_setattr": 314,
        "sched_setparam": 142,
        "sched_setscheduler": 144,
        "sched_setaffinity": 203,
    },
    **{"removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469},
}

_SAME_SINCE = 424
"""From this number on the two machines number alike."""

ARM64: dict[str, int] = {
    **{name: number for name, number in X86_64.items() if number >= _SAME_SINCE},
    **{"ioctl": 29, "shmget": 194, "shmat": 196, "shmctl": 195, "socket": 198, "clone": 220, "kill": 129},
    **{"semget": 190, "semop": 193, "semctl": 191, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187},
    **{"fchmod": 52, "fchown": 55, "ptrace": 117, "syslog": 116, "setpgid": 154, "setsid": 157, "setpriority": 140},
    **{"vhangup": 58, "pivot_root": 41, "prctl": 167, "adjtimex": 171, "chroot": 51, "sync": 81, "acct": 89},
    **{"settimeofday": 170, "mount": 40, "umount2": 39, "swapon": 224, "swapoff": 225, "reboot": 142},
    **{"sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106, "quotactl": 60},
    **{"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16},
    **{"tkill": 130, "semtimedop": 192, "clock_settime": 112, "tgkill": 131, "mbind": 235, "mq_open": 180},
    **{"mq_unlink": 181, "kexec_load": 104, "add_key": 217, "request_key": 218, "keyctl": 219, "ioprio_set": 30},
    **{"migrate_pages": 238, "mknodat": 33, "fchownat": 54, "fchmodat": 53, "unshare": 97, "move_pages": 239},
    **{"utimensat": 88, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240, "perf_event_open": 241, "prlimit64": 261},
    **{"name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "syncfs": 267, "setns": 268},
    **{"process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "seccomp": 277},
    **{"kexec_file_load": 294, "bpf": 280, "memfd_create": 279, "userfaultfd": 282, "socketpair": 199},
    **{"sched_setparam": 118, "sched_setscheduler": 119, "sched_setaffinity": 122, "sched_setattr": 274},
}

NUMBERS: dict[str, int] = {"x86_64": X86_64, "aarch64": ARM64}.get(MACHINE, {})
"""System call numbers of this machine; empty where we do not know them, and then nothing is isolated here."""

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_SECUREBITS, PR_CAP_AMBIENT = 24, 38, 28, 47

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
