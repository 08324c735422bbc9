"""A zygote's child: shuts itself in, waits for one call, makes it, says how it went, and ends."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import inspect
import os
import socket
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentspec.errors import ConfigError, ToolRefused
from agentspec.keys import Form
from agentspec.signature import Signature
from agentspec.tools_sandbox.environment import ZYGOTES_OWN
from agentspec.tools_sandbox.kernel import calls
from agentspec.tools_sandbox.kernel.confine import (
    Confinement,
    die_with,
    give_up_rights,
    keep_only,
    lead_a_group,
    limit,
    limit_cpu,
    reset_signals,
)
from agentspec.tools_sandbox.tiers import frames, overlay
from agentspec.tools_sandbox.tiers.parcel import pack, pack_error
from agentspec.tools_sandbox.tool import ATTRIBUTE, DeclaredTool, code_seal


@dataclass(frozen=True, slots=True)
class Ready:
    """A function that was found, with what reads its arguments."""

    function: Callable[..., Any]
    signature: Signature

    def call(self, arguments: dict[str, Any], form: str) -> Any:
        """Call it with arguments as JSON; a coroutine runs on a loop of its own."""
        args, kwargs = self.signature.positional(self.signature.values(arguments, Form(form)))
        result = self.function(*args, **kwargs)
        if inspect.iscoroutinefunction(self.function):
            result = asyncio.run(result)
        if inspect.isgenerator(result) or inspect.isasyncgen(result) or inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise ToolRefused(f"it returned a {type(result).__name__}, which cannot be handed over")
        return result


def find(module: str, qualname: str, seal: str) -> Ready:
    """Import a function and make sure that it is the one that was meant.

    Raises:
        ToolRefused: it cannot be imported, or its code is another here.
    """
    try:
        found = functools.reduce(getattr, qualname.split("."), importlib.import_module(module))
    except BaseException as error:
        raise ToolRefused(f"{module}:{qualname} cannot be imported: {error!r}") from error
    tool = getattr(found, ATTRIBUTE, None)
    function: Any = tool.function if isinstance(tool, DeclaredTool) else found
    if code_seal(function) != seal:
        raise ToolRefused(f"{module}:{qualname} is not the same code there")
    try:
        return Ready(function, Signature(function))
    except ConfigError as error:
        raise ToolRefused(str(error)) from error


def live(sock: socket.socket, plan: frames.Plan, tools: dict[str, Ready], zygote: int) -> None:
    """The child's whole life. Does not return."""
    code = 1
    try:
        reset_signals()
        lead_a_group(zygote)
        sock = socket.socket(fileno=keep_only(sock.detach()))
        runs = plan.kind in ("process", "overlay")
        code = _shut_in(sock, plan, tools) if runs else overlay.housekeeping(sock, plan)
    except BaseException as error:
        _last_words(sock, f"{type(error).__name__}: {error}")
    finally:
        os._exit(code)


def _last_words(sock: socket.socket, text: str) -> None:
    try:
        frames.send(sock, frames.REFUSED, text[:2000].encode("utf-8", "replace"))
    except OSError:
        return


def _shut_in(sock: socket.socket, plan: frames.Plan, tools: dict[str, Ready]) -> int:
    writable: tuple[str, ...] = ()
    if plan.kind == "overlay":
        cwd = os.getcwd()
        overlay.snapshot_before(plan)
        overlay.enter_namespaces()
        if (init := os.fork()) != 0:
            sock.close()
            return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]) & 0xFF
        die_with(0)  # the parent is outside of our process namespace
        private = overlay.mount_all(plan)
        if (tool := os.fork()) != 0:
            sock.close()
            return overlay.be_init(tool, private)
        die_with(1)
        os.chdir(cwd)  # the same path in the view: the old one leads past it
        writable = (plan.workspace, *private)
    calls.prctl(calls.PR_SET_CHILD_SUBREAPER, 1)  # what the tool leaves running comes to us
    own_proc = bool(writable) and os.readlink("/proc/self") == str(os.getpid())
    confinement = Confinement(plan.network, plan.subprocesses, plan.memory_bytes, plan.landlock, writable, own_proc)
    limit(confinement)
    give_up_rights(confinement)
    for name in ZYGOTES_OWN:
        os.environ.pop(name, None)
    warnings.simplefilter("ignore", ResourceWarning)
    if plan.kind == "process":  # it may have to wait; an overlay's job is there already
        _warm_up(tools)
    frames.send(sock, frames.READY)
    return _work(sock, plan, tools)


def _nothing(text: str = "", number: int = 0) -> dict[str, object]:
    return {"text": text, "numbers": [number, 1.5, None, True]}


_NOTHING = Ready(_nothing, Signature(_nothing))


def _warm_up(tools: dict[str, Ready]) -> None:
    """Make a call, so that the pages which the next one touches are this process's own already."""
    job = frames.Job("", {"text": "x", "number": 1}, "typed", 3600.0)
    for tool in tools.values():
        with contextlib.suppress(ToolRefused):
            tool.signature.values({}, Form.TYPED)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for _ in range(3):
            frames.send(ours, frames.RESULT, frames.encode(job))
            _, payload = frames.receive(theirs)
            frames.send(theirs, *_attempt(frames.job_decoder.decode(payload), {"": _NOTHING}))
            frames.receive(ours)


def _work(sock: socket.socket, plan: frames.Plan, tools: dict[str, Ready]) -> int:
    """One job, or a warm child's one after the other."""
    myself = os.getpid()
    while True:
        try:
            _, payload = frames.receive(sock)
        except (EOFError, OSError):
            return 0
        kind, payload = _attempt(frames.job_decoder.decode(payload), tools)
        if os.getpid() != myself:  # the tool forked, and this is its child: it has no business here
            os._exit(0)
        if plan.subprocesses and kind != frames.REFUSED and (left := _left_behind()):
            kind, payload = frames.REFUSED, left.encode()
        frames.send(sock, kind, payload)
        if not plan.warm_for or kind != frames.RESULT:
            return 0


def _attempt(job: frames.Job, tools: dict[str, Ready]) -> tuple[bytes, bytes]:
    try:
        limit_cpu(job.timeout_s)
        if job.cwd is not None:
            os.chdir(job.cwd)
        if job.env is not None:
            os.environ.clear()
            os.environ.update(job.env)
        return frames.RESULT, pack(tools[job.tool].call(job.arguments, job.form))
    except ToolRefused as error:
        return frames.REFUSED, str(error).encode("utf-8", "replace")
    except Exception as error:
        return frames.ERROR, pack_error(error)
    except BaseException as error:
        return frames.REFUSED, f"it ended in {type(error).__name__}".encode()


def _left_behind() -> str | None:
    """What a real call would have left, and this run cannot: a reason not to hand its result over."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return "it left processes running"
        except ChildProcessError:
            break
    return None
