"""seccomp: system calls that a sandboxed tool has no business making end in EPERM (Linux, seccomp(2)).

What Landlock does not cover is refused here: Unix sockets, which reach PostgreSQL or Docker through the file system;
modes, owners and times of files; signals, tracing, namespaces, mounts, keys, System V memory, clocks, io_uring.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from dataclasses import dataclass, field

from agentspec.tools_sandbox.kernel.calls import MACHINE, NUMBERS, syscall

_ALWAYS = (
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease"),
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "open_tree_attr", "setns", "unshare", "name_to_handle_at", "open_by_handle_at"),
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("add_key", "request_key", "keyctl", "shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink", "migrate_pages", "move_pages"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff"),
    *("acct", "quotactl", "quotactl_fd", "syslog", "vhangup", "iopl", "ioperm", "modify_ldt", "sync", "syncfs"),
    *("setpriority", "ioprio_set", "memfd_create", "memfd_secret"),
)
_ATTRIBUTES = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat", "file_setattr"),
    *("utime", "utimes", "futimesat", "utimensat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
)
_GROUPS = ("setsid", "setpgid")
_SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal")
_FORKS = ("fork", "vfork")

_AF_INET, _AF_INET6 = 2, 10
_CLONE_THREAD = 0x10000
_CLONE_NEW = 0x7E020080  # every namespace
_FILE_KINDS, _FILE_KIND_MASK = (0, 0x8000, 0x1000), 0xF000  # regular files and FIFOs, no devices
_SOCK_STREAM, _SOCK_TYPE_MASK = 1, 0xF
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x5452, 0x80086601)
"""TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FS_IOC_GETFLAGS; others change things."""

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_LAST_KNOWN = 475
"""System calls with higher numbers are newer than this list: they do not exist for a tool."""

_LD, _AND, _JEQ, _JGE, _JSET, _RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_SET_MODE_FILTER = 1


@dataclass(frozen=True, slots=True)
class Filter:
    """What a tool may do beyond the least.

    Attributes:
        network: IPv4 and IPv6 sockets.
        subprocesses: fork.
        attributes: modes, owners and times of files (where a namespace keeps the real ones away).
        own_groups: process groups and sessions of its own (where a namespace ends them all).
        signals: signals, where something else keeps them from other processes.
    """

    network: bool = False
    subprocesses: bool = False
    attributes: bool = False
    own_groups: bool = False
    signals: bool = False


@dataclass(slots=True)
class _Program:
    """A BPF program in the making. Jumps are relative and short: each check is complete in itself."""

    code: list[bytes] = field(default_factory=list)

    def add(self, code: int, k: int, yes: int = 0, no: int = 0) -> None:
        self.code.append(struct.pack("HBBI", code, yes, no, k & 0xFFFFFFFF))

    def load_number(self) -> None:
        self.add(_LD, 0)

    def load_argument(self, index: int) -> None:
        self.add(_LD, 16 + 8 * index)  # the low half: the machines we know are little-endian

    def refuse(self, error: int) -> None:
        self.add(_RET, _ERRNO | error)

    def refuse_call(self, name: str, error: int = errno.EPERM) -> None:
        if name in NUMBERS:
            self.add(_JEQ, NUMBERS[name], 0, 1)
            self.refuse(error)

    def checked_call(
        self, name: str, index: int, checks: list[tuple[int, int, bool]], otherwise: bool, mask: int = 0xFFFFFFFF
    ) -> None:
        """Look at one argument of a call: (test, value, allowed if it holds), in order, else `otherwise`."""
        if name not in NUMBERS:
            return
        self.add(_JEQ, NUMBERS[name], 0, 3 + 2 * len(checks))
        self.load_argument(index)
        self.add(_AND, mask)
        for test, value, allowed in checks:
            self.add(test, value, 0, 1)
            self.add(_RET, _ALLOW if allowed else _ERRNO | errno.EPERM)
        self.add(_RET, _ALLOW if otherwise else _ERRNO | errno.EPERM)


def _program(may: Filter) -> _Program:
    program = _Program()
    program.add(_LD, 4)
    program.add(_JEQ, _AUDIT_ARCH[MACHINE], 1, 0)
    program.add(_RET, _KILL)
    program.load_number()
    program.add(_JGE, _X32, 0, 1)
    program.refuse(errno.ENOSYS)
    program.add(_JGE, _LAST_KNOWN, 0, 1)
    program.refuse(errno.ENOSYS)
    refused = [*_ALWAYS, *([] if may.attributes else _ATTRIBUTES), *([] if may.own_groups else _GROUPS)]
    refused += [*([] if may.signals else _SIGNALS), *([] if may.subprocesses else _FORKS)]
    for name in refused:
        program.refuse_call(name)
    program.refuse_call("clone3", errno.ENOSYS)  # its flags lie in memory; libraries fall back to clone
    families = [(_JEQ, _AF_INET, True), (_JEQ, _AF_INET6, True)] if may.network else []
    program.checked_call("socket", 0, families, otherwise=False)
    clones = [(_JSET, _CLONE_NEW, False)]
    if not may.subprocesses:
        clones.append((_JSET, _CLONE_THREAD, True))
    program.checked_call("clone", 0, clones, otherwise=may.subprocesses)
    kinds = [(_JEQ, kind, True) for kind in _FILE_KINDS]
    for name, index in (("mknod", 1), ("mknodat", 2)):
        program.checked_call(name, index, kinds, otherwise=False, mask=_FILE_KIND_MASK)
    pairs = [(_JEQ, _SOCK_STREAM, True)]  # a pair of another kind can be turned to any Unix socket
    program.checked_call("socketpair", 1, pairs, otherwise=False, mask=_SOCK_TYPE_MASK)
    program.checked_call("ioctl", 1, [(_JEQ, number, True) for number in _IOCTLS], otherwise=False)
    for name in ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"):
        program.checked_call(name, 0, [(_JEQ, 0, True)], otherwise=False)  # its own, nobody else's
    program.add(_RET, _ALLOW)
    return program


class _Fprog(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def install(may: Filter) -> None:
    """Filter this process and its children from now on, for good. Needs no_new_privs.

    Raises:
        OSError: the kernel refused it, or this machine's calls are not known.
    """
    if MACHINE not in _AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"seccomp: the calls of {MACHINE} are not known")
    code = _program(may).code
    buffer = ctypes.create_string_buffer(b"".join(code))
    program = _Fprog(len(code), ctypes.addressof(buffer))
    syscall("seccomp", _SET_MODE_FILTER, 0, ctypes.byref(program))
