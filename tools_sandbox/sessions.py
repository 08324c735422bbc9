"""What each session's real calls looked like, so that its next ones can run ahead in the same surroundings."""

from __future__ import annotations

import contextvars
import threading
from collections import OrderedDict
from dataclasses import dataclass

from agentspec import channel
from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.surroundings import Surroundings
from agentspec.tools_sandbox.tool import DeclaredTool

_MAX_RECENT = 256
_MAX_SESSIONS = 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """A real call's tool and surroundings, kept until the proxy says whose it was."""

    tool: DeclaredTool
    surroundings: Surroundings


class Sessions:
    """One runtime's. Bounded, thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: OrderedDict[int, Seen] = OrderedDict()
        self._known: OrderedDict[tuple[str, DeclaredTool], Surroundings] = OrderedDict()

    def seen(self, claim: int, call: Seen) -> None:
        """A real call is over; the proxy will say whose it was."""
        with self._lock:
            self._recent[claim] = call
            while len(self._recent) > _MAX_RECENT:
                self._recent.popitem(last=False)

    def learn(self, message: channel.Session) -> None:
        """The proxy says whose it was."""
        with self._lock:
            seen = self._recent.pop(message.claim, None)
            if seen is None:
                return
            self._known[message.trajectory, seen.tool] = seen.surroundings
            self._known.move_to_end((message.trajectory, seen.tool))
            while len(self._known) > _MAX_SESSIONS:
                self._known.popitem(last=False)

    def surroundings(self, tool: DeclaredTool, trajectory: str, base: contextvars.Context) -> Surroundings:
        """What a run ahead of this trajectory should see. `base`: for tools that take nothing but their arguments.

        Raises:
            ToolRefused: that is not known yet.
        """
        if tool.spec.sandbox.isolated:
            return Surroundings({}, contextvars.Context(), tool.place())
        seen = self._known.get((trajectory, tool))
        if seen is not None:
            return seen
        if tool.parameters.hidden:
            wanted = ", ".join(sorted(tool.parameters.hidden))
            raise ToolRefused(f"{tool.name}: {wanted} is known only after a first real call of this session")
        return Surroundings({}, base)
