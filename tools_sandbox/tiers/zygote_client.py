"""The agent's end of a zygote: starts it, orders children, hears of their ends."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping

from agentspec.errors import ToolRefused
from agentspec.runs import Order
from agentspec.tools_sandbox.environment import basic_environment, zygotes_own
from agentspec.tools_sandbox.tiers import frames
from agentspec.tools_sandbox.tiers.child import Child

log = logging.getLogger("agentspec.zygote")

_START_LIMIT_S = 60.0
_SPAWN_LIMIT_S = 10.0
_TOOLS_AT_ONCE = 100

Tool = tuple[str, str, str]
"""Module, qualified name, seal of the code."""


_CLIENTS: weakref.WeakSet[ZygoteClient] = weakref.WeakSet()


class ZygoteClient:
    """One zygote with its children. Thread-safe; a zygote that died is started again on demand.

    Args:
        env: the declared variables that the tools' modules may see when they are imported.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._declared = dict(env)
        self._lock = threading.RLock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._children: dict[int, Child] = {}
        self._next = 0
        self._closed = False
        _CLIENTS.add(self)
        self._prepared: dict[Tool, str | None] = {}
        self._wanted: dict[Tool, None] = {}
        self._never: dict[Tool, str] = {}
        self.generation = 0
        """Counts up with the tools: a child knows those that were imported before it was forked."""
        self._answer: frames.Prepared | None = None
        self._answered = threading.Event()

    @property
    def pid(self) -> int | None:
        """The zygote's process, None while there is none."""
        return self._process.pid if self._process is not None else None

    def prepare(self, tools: list[Tool]) -> None:
        """Have these functions imported; takes as long as that takes.

        Raises:
            ToolRefused: the zygote cannot be started.
        """
        with self._lock:
            self._ensure()
            while new := [tool for tool in tools if tool not in self._prepared and tool not in self._never]:
                self.generation += 1
                self._import(new[:_TOOLS_AT_ONCE])
                tools = [*dict.fromkeys([*tools, *self._wanted])]  # a zygote that was given up takes the others along

    def _import(self, new: list[Tool]) -> None:
        """Have the zygote import these; one that starts threads or kills it is never asked for again."""
        self._wanted.update(dict.fromkeys(new))
        self._answered.clear()
        self._answer = None
        self._send(frames.Prepare(new, [path or os.getcwd() for path in sys.path]))
        answered = self._answered.wait(_START_LIMIT_S)
        answer: frames.Prepared | None = self._answer
        if answer is None:
            self._start_anew()
            if len(new) == 1:
                why = "the zygote died of its import" if answered else "its import takes too long"
                self._never[new[0]] = why
                return
            for tool in new:
                self._import([tool])
            return
        if answer.grew:
            grown = next(tool for tool in new if f"{tool[0]}:{tool[1]}" == answer.grew)
            self._never[grown] = "its import starts threads, and a process with threads cannot be forked from"
            self._start_anew()
            return
        self._prepared.update({tool: answer.refused.get(f"{tool[0]}:{tool[1]}") for tool in new})

    def _start_anew(self) -> None:
        self._hang_up()
        self._ensure()

    def check(self, tool: Tool) -> None:
        """Make sure that a function can run in a child.

        Raises:
            ToolRefused: it cannot, and why.
        """
        if (tool not in self._prepared and tool not in self._never) or self._control is None:
            self.prepare([tool])
        reason = self._never.get(tool) or self._prepared.get(tool)
        if reason is not None:
            raise ToolRefused(reason)

    def job(self, order: Order) -> frames.Job:
        """A call as a child of this zygote gets it: only what is otherwise now than when the zygote started."""
        env = {**order.place.basics, **order.place.declared}
        return frames.Job(
            f"{order.module}:{order.qualname}",
            dict(order.arguments),
            order.form,
            order.timeout_s,
            cwd=None if order.place.cwd == self._cwd else order.place.cwd,
            env=None if env == self._env else env,
        )

    def spawn(self, plan: frames.Plan) -> Child:
        """Fork a child; it shuts itself in and says READY on its socket. Returns when it was forked.

        Raises:
            ToolRefused: the zygote is not there.
        """
        child = self.order(plan)
        if not child.born.wait(_SPAWN_LIMIT_S) or child.sock is None:
            raise ToolRefused("the zygote has not forked")
        return child

    def order(self, plan: frames.Plan) -> Child:
        """The same without waiting: `born` is set when it lives."""
        with self._lock:
            self._ensure()
            self._next += 1
            child = self._children[self._next] = Child(self._next, self.generation, self._control)
            self._send(frames.Spawn(child.id, plan))
            return child

    def kill(self, child: Child) -> None:
        """End a child and all that came of it. Returns at once; `gone` is set when it is done."""
        with self._lock:
            if not child.gone.is_set() and self._control is not None:
                try:
                    self._send(frames.Kill(child.id))
                except ToolRefused:
                    child.gone.set()

    def _ensure(self) -> None:
        if self._control is not None:
            return
        if self._closed:
            raise ToolRefused("this tier is closed")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._env = {**basic_environment(), **self._declared}
        command = [sys.executable, "-m", "agentspec.tools_sandbox.tiers.zygote", str(theirs.fileno())]
        try:
            self._process = subprocess.Popen(
                command,
                env={**self._env, **zygotes_own()},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise ToolRefused(f"the zygote cannot be started: {error}") from error
        finally:
            theirs.close()
        self._control = ours
        self._cwd = os.getcwd()
        self._prepared = {}
        threading.Thread(target=self._hear, args=(ours, self._process), name="agentspec-zygote", daemon=True).start()

    def _send(self, message: frames.ToZygote) -> None:
        try:
            assert self._control is not None
            self._control.send(frames.encode(message))
        except (OSError, AssertionError) as error:
            raise ToolRefused(f"the zygote is gone: {error}") from error

    def _hear(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(control, 1 << 20, 4)
            except OSError:
                break
            if not data:
                break
            message = frames.from_zygote.decode(data)
            if isinstance(message, frames.Prepared):
                self._answer = message
                self._answered.set()
            elif isinstance(message, frames.Spawned):
                self._born(message, fds)
            else:
                self._gone(message.id, message.reason)
        self._lost(control, process)

    def _born(self, message: frames.Spawned, fds: list[int]) -> None:
        child = self._children.get(message.id)
        if child is None or not fds:
            for fd in fds:
                os.close(fd)
            return
        child.pid, child.sock = message.pid, socket.socket(fileno=fds[0])
        child.born.set()

    def _gone(self, number: int, reason: str) -> None:
        child = self._children.pop(number, None)
        if child is not None:
            child.reason = reason
            child.gone.set()

    def _lost(self, control: socket.socket, process: subprocess.Popen[bytes]) -> None:
        if self._control is control:  # whoever waits for its answer holds the lock
            self._answer = None
            self._answered.set()
        with self._lock:
            if self._control is control:
                self._control = None
            children = [child for child in self._children.values() if child.control is control]
            self._children = {child.id: child for child in self._children.values() if child.control is not control}
        process.wait()
        for child in children:
            child.reason = "the zygote died"
            child.born.set()
            child.gone.set()
        control.close()

    def abandon(self) -> None:
        """In a child process after a fork: the zygote is the parent's, and must not live on because of us."""
        sockets = [self._control, *(child.sock for child in self._children.values())]
        self._lock, self._closed, self._control, self._children = threading.RLock(), True, None, {}
        for sock in sockets:
            if sock is not None:
                sock.close()

    def _hang_up(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the zygote and all its children, for good."""
        with self._lock:
            self._closed = True
            self._hang_up()


def _after_fork_in_child() -> None:
    for client in list(_CLIENTS):
        client.abandon()


os.register_at_fork(after_in_child=_after_fork_in_child)
