"""Tools of the conformance suite that will not end, multiply, or reach for other processes and the kernel."""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.sandbox.attempts import ESCAPED, attempt, call

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_NAME, _SET_DEATH_SIGNAL = 15, 1
_PTRACE_SEIZE = 0x4206


def rename_process(name: str) -> None:
    """Show up under this name (15 letters) in /proc."""
    _LIBC.prctl(_SET_NAME, name.encode(), 0, 0, 0)


def stay(how: str, mark: str) -> None:
    """Never end, and resist."""
    rename_process(mark)
    _LIBC.prctl(_SET_DEATH_SIGNAL, 0, 0, 0, 0)
    if how == "asleep":
        time.sleep(3600)
    if how == "deaf":
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.pthread_sigmask(signal.SIG_BLOCK, [number])
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "in threads":
        for _ in range(3):
            threading.Thread(target=_spin).start()
    if how == "in C":
        _LIBC.pause()
    while True:
        try:
            _spin()
        except BaseException:  # the point: it swallows everything
            continue


def _spin() -> None:
    while True:
        pass


async def stay_async(mark: str) -> None:
    rename_process(mark)
    await asyncio.sleep(3600)


def end(how: str) -> str:
    """End without a result."""
    ends: dict[str, Callable[[], Any]] = {
        "sys.exit": lambda: sys.exit(0),
        "os._exit(0)": lambda: os._exit(0),
        "os._exit(3)": lambda: os._exit(3),
        "abort": os.abort,
        "segmentation fault": lambda: ctypes.string_at(8),
        "killed by itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "replaced by a program": lambda: os.execv("/bin/true", ["true"]),
        "exit in a thread": lambda: _in_a_thread(lambda: os._exit(0)),
    }
    ends[how]()
    time.sleep(3600)
    return "unreachable"


def _in_a_thread(act: Callable[[], Any]) -> None:
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()


def interrupt(kind: str) -> None:
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt, "GeneratorExit": GeneratorExit}[kind](
        "now"
    )


def eat(how: str, megabytes: int) -> int:
    """Take that much memory and touch it, in pieces, one of several ways."""
    kept: list[Any] = []
    takes: dict[str, Callable[[], Any]] = {
        "heap": lambda: bytearray(os.urandom(4096)) * 4096,
        "shared mapping": _shared_mapping,
        "unnamed files": _unnamed_file,
    }
    for _ in range(megabytes // 16):
        kept.append(takes[how]())
    return len(kept) * 16


def _shared_mapping() -> Any:
    mapped = mmap.mmap(-1, 16 << 20)
    mapped.write(bytes(16 << 20))
    return mapped


def _unnamed_file() -> int:
    made = os.memfd_create("eaten")
    for _ in range(16):
        os.write(made, bytes(1 << 20))
    return made


def fork(how: str, mark: str) -> str:
    """Become two, one of several ways; the child bears the mark."""
    ways: dict[str, Callable[[], int]] = {
        "fork": os.fork,
        "clone": lambda: call("clone", signal.SIGCHLD, 0, 0, 0, 0),
        "clone3": lambda: call("clone3", ctypes.create_string_buffer(struct.pack("8Q", 0, 0, 0, 0, 17, 0, 0, 0)), 64),
        "spawn": lambda: os.posix_spawn("/bin/sleep", [mark, "3600"], {}),
        "subprocess": lambda: subprocess.Popen([mark, "3600"], executable="/bin/sleep").pid,
    }

    def forked() -> None:
        if ways[how]() == 0:
            _linger(mark)

    return attempt(forked)


def _linger(mark: str) -> None:
    rename_process(mark)
    time.sleep(3600)
    os._exit(0)


def bomb(mark: str, size: int) -> int:
    """A chain of `size` deaf processes, each out of its parent's group and session if it can be."""
    rename_process(mark)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for _ in range(size):
        attempt(os.setsid)
        attempt(lambda: os.setpgid(0, 0))
        if attempt(lambda: os.fork() and _linger(mark)) != ESCAPED:
            break
    _linger(mark)
    return size


def return_twice() -> str:
    """The child comes back from the tool as well."""
    if (child := os.fork()) == 0:
        return "child"
    os.waitpid(child, 0)
    return "parent"


def leave_behind(mark: str) -> str:
    """A daemon, as programs start it: forked twice, its own session if it can, and the tool returns."""
    if (child := os.fork()) == 0:
        attempt(os.setsid)
        if os.fork():
            os._exit(0)
        _linger(mark)
    os.waitpid(child, 0)
    return "returned"


def run_program(arguments: list[str]) -> str:
    return subprocess.run(arguments, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL).stdout


def _owner_signal(pid: int) -> None:
    """The kernel sends SIGIO on our behalf."""
    readable, writable = os.pipe()
    fcntl.fcntl(readable, fcntl.F_SETOWN, pid)
    fcntl.fcntl(readable, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(writable, b"x")


def _queued(pid: int) -> None:
    info = ctypes.create_string_buffer(struct.pack("iii", signal.SIGUSR1, 0, -1) + bytes(116))
    call("rt_sigqueueinfo", pid, signal.SIGUSR1, info)


def _by_descriptor(pid: int) -> None:
    call("pidfd_send_signal", call("pidfd_open", pid, 0), signal.SIGUSR1, 0, 0)


def _memory(name: str) -> Callable[[int], Any]:
    buffer = ctypes.create_string_buffer(8)
    vector = struct.pack("QQ", ctypes.addressof(buffer), 8)
    return lambda pid: call(name, pid, vector, 1, vector, 1, 0)


REACHES: dict[str, Callable[[int], Any]] = {
    "signal 0": lambda pid: os.kill(pid, 0),
    "SIGUSR1": lambda pid: os.kill(pid, signal.SIGUSR1),
    "SIGSTOP": lambda pid: os.kill(pid, signal.SIGSTOP),
    "SIGKILL": lambda pid: os.kill(pid, signal.SIGKILL),
    "signal to its group": lambda pid: os.kill(-pid, signal.SIGUSR1),
    "signal to its thread": lambda pid: call("tgkill", pid, pid, signal.SIGUSR1),
    "queued signal": _queued,
    "signal by descriptor": _by_descriptor,
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0)),
    "priority": lambda pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
    "processors": lambda pid: os.sched_setaffinity(pid, {0}),
    "scheduler": lambda pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    "disk priority": lambda pid: call("ioprio_set", 1, pid, 3 << 13),
    "trace": lambda pid: call("ptrace", _PTRACE_SEIZE, pid, 0, 0),
    "read its memory": _memory("process_vm_readv"),
    "write its memory": _memory("process_vm_writev"),
    "take its descriptor": lambda pid: call("pidfd_getfd", call("pidfd_open", pid, 0), 0, 0),
    "memory file": lambda pid: os.close(os.open(f"/proc/{pid}/mem", os.O_RDWR)),
    "name file": lambda pid: Path(f"/proc/{pid}/comm").write_text("gotcha"),
    "memory killer's file": lambda pid: Path(f"/proc/{pid}/oom_score_adj").write_text("1000"),
}
"""Each by what it does to a process that is none of the run's."""


def reach(how: str, pid: int) -> str:
    return attempt(lambda: REACHES[how](pid))


def reach_by_owner_signal(pid: int) -> str:
    """Whether it arrived shows only outside: the kernel drops it silently."""
    return attempt(lambda: _owner_signal(pid))


def forge(how: str, marker: str) -> None:
    """Answer in the run's name, with rubbish or with code, on every open descriptor; then end."""

    class Trap:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {marker}",))

    trap = pickle.dumps(Trap(), protocol=2)
    lengths = [struct.pack(form, len(trap)) for form in ("<I", ">I", "<Q", ">Q")]
    words = {
        "code": b"".join(length + trap for length in lengths) + trap + b"\n",
        "endless length": b"\xff" * 64,
        "zeros": bytes(64),
        "half a message": b"\x00\x00\x00\x20half",
        "a flood": b"x" * (8 << 20),
        "a trickle": b"V" + struct.pack("<Q", 1000),
    }
    for number in range(3, 64):
        attempt(lambda n=number: _say(n, words[how]))
    while how == "a trickle":
        time.sleep(0.2)
        for number in range(3, 10):
            attempt(lambda n=number: _say(n, b"x"))
    os._exit(0)


def _say(number: int, words: bytes) -> None:
    try:
        with socket.socket(fileno=os.dup(number)) as sock:
            sock.settimeout(1)
            sock.sendall(words)
    except OSError:
        os.set_blocking(number, False)
        os.write(number, words)
