"""Shut a freshly forked child in. The order matters: what a later step needs must not have been given up before.

Group and death signal -> descriptors -> limits -> no_new_privs -> Landlock -> capabilities -> seccomp.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import time
from dataclasses import dataclass

from agentspec.tools_sandbox.kernel import calls, landlock, seccomp

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_HARMLESS = (
    *("/proc/self", "/proc/thread-self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/uptime"),
    *("/proc/version", "/proc/filesystems", "/proc/loadavg", "/proc/sys/kernel/osrelease", "/proc/sys/vm"),
    *("/sys/devices/system", "/sys/fs/cgroup"),
)
_NOT_BELOW_ROOT = frozenset({"proc", "sys", "dev"})
_MAX_FILE_BYTES = 4 * 2**30
_MAX_OPEN_FILES = 1024
_FOR_EVER = resource.getrlimit(resource.RLIMIT_CPU)[1]


@dataclass(frozen=True, slots=True)
class Confinement:
    """How one child is shut in.

    Attributes:
        network, subprocesses, memory_bytes: as in `agentspec.Sandbox`.
        landlock: the version to act as.
        writable: folders that may be changed: those of which a namespace holds a copy of its own.
    """

    network: bool
    subprocesses: bool
    memory_bytes: int
    landlock: int
    writable: tuple[str, ...] = ()
    own_proc: bool = False
    """Whether /proc shows nothing but this run's own processes."""


def lead_a_group(parent: int) -> None:
    """A session of our own, and death with the parent."""
    os.setsid()
    die_with(parent)


def die_with(parent: int) -> None:
    """Be killed when the parent dies, even if that was a moment ago."""
    calls.prctl(calls.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def keep_only(descriptor: int) -> int:
    """Standard streams are /dev/null, one descriptor stays; returns its new number."""
    if descriptor < 3:
        descriptor = os.dup2(descriptor, os.open("/dev/null", os.O_RDWR))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    calls.close_all_but(0, 1, 2, descriptor)
    return descriptor


def limit(confinement: Confinement) -> None:
    """Resource limits, each for one process."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_MEMLOCK, 0)
    _lower(resource.RLIMIT_NOFILE, _MAX_OPEN_FILES)
    _lower(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES if confinement.writable else 0)
    with open("/proc/self/statm", "rb") as file:
        pages = int(file.read().split()[0])
    _lower(resource.RLIMIT_AS, pages * resource.getpagesize() + confinement.memory_bytes)


def limit_cpu(seconds: float) -> None:
    """Whatever it does, it ends after so much more computing."""
    used_s = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used_s + int(seconds) + 2, _FOR_EVER))


def _lower(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    if hard == resource.RLIM_INFINITY or value < hard:
        resource.setrlimit(kind, (value, value))


def give_up_rights(confinement: Confinement) -> None:
    """The rest, for good.

    Raises:
        OSError: a step failed; the child must end.
    """
    calls.prctl(calls.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict(
        readable=(*readable_paths(), *DEVICES, *_HARMLESS, *(["/proc"] if confinement.own_proc else [])),
        writable=confinement.writable,
        writable_files=("/dev/null", "/dev/full", "/dev/zero"),
        network=confinement.network,
        known=confinement.landlock,
    )
    calls.drop_capabilities()
    apart = bool(confinement.writable)
    scoped = confinement.landlock >= landlock.SIGNALS_SINCE
    seccomp.install(
        seccomp.Filter(
            network=confinement.network,
            subprocesses=confinement.subprocesses,
            attributes=apart,
            own_groups=apart,
            signals=apart or scoped,
        )
    )


def readable_paths() -> list[str]:
    """Everything but devices, other processes and the kernel's own files."""
    names = [name for name in os.listdir("/") if name not in _NOT_BELOW_ROOT]
    return [f"/{name}" for name in names]


def reset_signals() -> None:
    """What the zygote did with signals is not the tool's."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
