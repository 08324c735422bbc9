"""A zygote's child, as the agent's end sees it: wait until it is shut in, give it its job."""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass, field

from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.tiers import frames


@dataclass(slots=True, eq=False)
class Child:
    """A child that was forked for one run. `gone` is set when it and all its processes have ended."""

    id: int
    generation: int = 0
    """Of the tools that it knows."""
    control: socket.socket | None = None
    """The zygote's, whose end is its end."""
    pid: int = 0
    sock: socket.socket | None = None
    ready: bool = False
    """Whether it has said that it is shut in."""
    born: threading.Event = field(default_factory=threading.Event)
    gone: threading.Event = field(default_factory=threading.Event)
    reason: str = ""
    """Why it is gone; empty for an ordinary end."""


def wait_ready(child: Child, limit_s: float) -> None:
    """Wait until a child has shut itself in.

    Raises:
        ToolRefused: it could not, and why.
    """
    sock = child.sock
    if child.ready:
        return
    if sock is None:
        raise ToolRefused(f"the sandbox could not be set up: {child.reason}")
    try:
        kind, payload = frames.receive(sock, limit_s)
    except (EOFError, OSError, ValueError) as error:
        raise ToolRefused(f"the sandbox could not be set up: {error or 'it died'}") from error
    if kind != frames.READY:
        raise ToolRefused(f"the sandbox could not be set up: {payload.decode('utf-8', 'replace')}")
    child.ready = True


def ask(child: Child, job: frames.Job, limit_s: float) -> tuple[bytes, bytes]:
    """Give a child its job and wait for what comes of it.

    Raises:
        ToolRefused: it died, took too long, or answered too much.
    """
    sock = child.sock
    assert sock is not None
    deadline_s = time.monotonic() + limit_s
    try:
        sock.settimeout(limit_s)
        frames.send(sock, frames.RESULT, frames.encode(job))
        return frames.receive(sock, max(0.001, deadline_s - time.monotonic()))
    except TimeoutError as error:
        raise ToolRefused(f"it took longer than {limit_s:g} s") from error
    except (EOFError, OSError) as error:
        child.gone.wait(1.0)
        raise ToolRefused(f"it died: {child.reason or error}") from error
    except ValueError as error:
        raise ToolRefused(str(error)) from error
