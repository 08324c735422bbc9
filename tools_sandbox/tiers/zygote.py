"""The zygote: a process with one thread and the tools imported, from which runs are forked.

    python -m agentspec.tools_sandbox.tiers.zygote DESCRIPTOR

It reads orders from one socket, forks, passes each child's socket back, kills and reaps, and ends with its parent. The
module globals of a run are what the imports left, since every run is a fresh fork.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.kernel import calls
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.inside import Ready, find, live
from agentspec.tools_sandbox.tiers.overlay import LEFT_FILES, PRIVATE

MAX_PROCESSES = 64
"""More than so many processes of one run are a bomb."""

_COUNT_EVERY_S = 0.05
_MAX_ORDER_BYTES = 4 * 2**20


@dataclass(slots=True)
class _Child:
    id: int
    plan: frames.Plan
    reason: str = ""


class Zygote:
    """The zygote's state and its loop."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._tools: dict[str, Ready] = {}
        self._children: dict[int, _Child] = {}
        self._wake, wakeup = socket.socketpair()
        self._wake.setblocking(False)
        wakeup.setblocking(False)
        self._wakeup = wakeup
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the agent's terminal is the agent's
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        calls.prctl(calls.PR_SET_CHILD_SUBREAPER, 1)

    def serve(self) -> None:
        """Until the parent is gone; nothing of what it had started stays."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._serve()
        for pid in list(self._children):
            self._kill(pid)

    def _serve(self) -> None:
        while True:
            crowded = any(child.plan.subprocesses for child in self._children.values())
            ready, _, _ = select.select([self._control, self._wake], [], [], _COUNT_EVERY_S if crowded else None)
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    self._wake.recv(4096)
            self._reap()
            if self._control in ready:
                order = self._control.recv(_MAX_ORDER_BYTES)
                if not order:
                    break
                self._obey(frames.to_zygote.decode(order))
            if crowded:
                self._stop_bombs()

    def _obey(self, order: frames.ToZygote) -> None:
        if isinstance(order, frames.Prepare):
            self._prepare(order)
        elif isinstance(order, frames.Spawn):
            self._spawn(order)
        else:
            for pid, child in list(self._children.items()):
                if child.id == order.id:
                    child.reason = child.reason or "killed"
                    self._kill(pid)

    def _prepare(self, order: frames.Prepare) -> None:
        sys.path[:] = order.path
        refused: dict[str, str] = {}
        grew = ""
        for module, qualname, seal in order.tools:
            name = f"{module}:{qualname}"
            try:
                self._tools[name] = find(module, qualname, seal)
            except ToolRefused as error:
                refused[name] = str(error)
            if len(os.listdir("/proc/self/task")) > 1:
                grew = name
                break
        gc.collect()
        gc.freeze()
        self._control.send(frames.encode(frames.Prepared(refused, grew)))

    def _spawn(self, order: frames.Spawn) -> None:
        ours, theirs = socket.socketpair()
        zygote = os.getpid()
        pid = os.fork()
        if pid == 0:
            ours.close()
            live(theirs, order.plan, self._tools, zygote)
        theirs.close()
        self._children[pid] = _Child(order.id, order.plan)
        socket.send_fds(self._control, [frames.encode(frames.Spawned(order.id, pid))], [ours.fileno()])
        ours.close()

    def _kill(self, pid: int) -> None:
        """A run in namespaces ends with its first process; any other with its group."""
        inner = _children_of(pid) if self._children[pid].plan.kind == "overlay" else []
        for target in inner:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, signal.SIGKILL)
        if not inner:
            self._kill_group(pid)

    def _kill_group(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)  # before it could lead a group

    def _reap(self) -> None:
        while True:
            try:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if found is None:
                return
            child = self._children.pop(found.si_pid, None)
            if child is not None:
                self._kill_group(found.si_pid)  # while its number cannot be anybody else's
            os.waitpid(found.si_pid, 0)
            if child is not None:
                reason = child.reason or _why(found)
                with contextlib.suppress(OSError):
                    self._control.send(frames.encode(frames.Gone(child.id, reason)))

    def _stop_bombs(self) -> None:
        parents = dict(_parents())
        for pid, child in self._children.items():
            if child.plan.subprocesses and sum(1 for _ in _below(pid, parents)) > MAX_PROCESSES:
                child.reason = f"it started more than {MAX_PROCESSES} processes"
                self._kill(pid)


def _why(found: os.waitid_result) -> str:
    """Why a child's end is no ordinary one; empty for one that is."""
    if found.si_code != os.CLD_EXITED:
        return f"signal {found.si_status}"
    if found.si_status == LEFT_FILES:
        return f"it left files in {' or '.join(PRIVATE)}"
    return ""


def _children_of(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(number) for number in file.read().split()]
    except OSError:
        return [child for child, parent in _parents() if parent == pid]


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent; members of a run's group count as its children."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                parent, group = int(fields[1]), int(fields[2])
                yield int(name), group if parent == os.getpid() and group != int(name) else parent


def _below(pid: int, parents: dict[int, int]) -> Iterator[int]:
    by_parent: dict[int, list[int]] = {}
    for child, parent in parents.items():
        by_parent.setdefault(parent, []).append(child)
    stack = [pid]
    while stack:
        for child in by_parent.get(stack.pop(), ()):
            yield child
            stack.append(child)


if __name__ == "__main__":
    Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
