"""Tier T2: a child with a copy-on-write view of its workspace. Its changes are committed on a hit, else dropped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from msgspec.structs import replace

from agentspec.errors import ToolRefused
from agentspec.runs import Order, Run, Work
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.capabilities import missing_tiers
from agentspec.tools_sandbox.tiers import frames, journal, overlay
from agentspec.tools_sandbox.tiers.child import ask, wait_ready
from agentspec.tools_sandbox.tiers.launching import Slots, order_in
from agentspec.tools_sandbox.tiers.process import SETUP_LIMIT_S, ChildRun, ProcessTier
from agentspec.tools_sandbox.tool import DeclaredTool

_COMMIT_LIMIT_S = 60.0


class OverlayTier(ProcessTier):
    """Runs calls over copies of their workspaces, at most `max_running` at a time."""

    name = "T2"

    def __init__(self, max_running: int = 4, state: Path | None = None) -> None:
        self._state = state or overlay.state_folder()
        super().__init__(max_running, spares=0)

    def prepare(self, tools: Sequence[DeclaredTool]) -> None:
        journal.forget_the_gone(self._state)
        for workspace in {tool.spec.sandbox.workspace or "" for tool in tools}:
            self._clean_up(workspace)
        self.missing = missing_tiers().get(self.name)
        if self.missing is not None:
            raise ToolRefused(self.missing)
        super().prepare(tools)

    def start(self, work: Work) -> Run:
        order = order_in(work)
        self.refuse_weak_kernels(order)
        run = _OverlayRun(self, work, self._slots, self._room(order.sandbox))
        run.launch()
        return run

    def home(self, workspace: str) -> Path:
        """The folder of a workspace's lock, rooms and journals.

        Raises:
            ToolRefused: it cannot be made.
        """
        home = journal.home_of(workspace, self._state)
        try:
            home.mkdir(parents=True, exist_ok=True, mode=0o700)
            journal.remember(home, workspace)
        except OSError as error:
            raise ToolRefused(f"no place for a copy of {workspace}: {error}; set AGENTSPEC_STATE") from error
        return home

    def _room(self, sandbox: Sandbox) -> Path:
        workspace = sandbox.workspace or ""
        if workspace == "/" or not os.path.isdir(workspace):
            raise ToolRefused(f"the workspace {workspace} is no folder that can be copied")
        home = self.home(workspace)
        if os.path.commonpath([workspace, str(home)]) == workspace:
            raise ToolRefused(f"{home} lies in the workspace itself; set AGENTSPEC_STATE to a folder outside")
        return home / secrets.token_hex(8)

    def recover(self, sandbox: Sandbox) -> None:
        """Bring to its end what a crash has left half committed. Costs a look into a folder where there is nothing.

        Raises:
            ToolRefused: a change could not be made.
        """
        workspace = sandbox.workspace or ""
        home = journal.home_of(workspace, self._state)
        if not journal.pending(home):
            return
        try:
            with journal.locked(home):
                journal.recover(home)
        except OSError as error:
            raise ToolRefused(
                f"a half committed run in {workspace} could not be brought to its end: {error}"
            ) from error

    def _clean_up(self, workspace: str) -> None:
        """Recover, and remove the rooms of agents that are gone."""
        home = self.home(workspace)
        with journal.locked(home):
            try:
                journal.recover(home)
            except OSError as error:
                raise ToolRefused(f"a half committed run in {workspace}: {error}") from error
            for room in home.glob("*/"):
                with contextlib.suppress(OSError), (room / "owner").open("a") as owner:
                    fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    journal.forget(home, room)

    def keep_house(self, order: Order, plan: frames.Plan) -> str:
        """Have a child commit or compare; returns what it found.

        Raises:
            ToolRefused: it refused, or died.
        """
        zygote = self.zygote(order.place.declared)
        child = zygote.spawn(plan)
        try:
            assert child.sock is not None
            kind, payload = frames.receive(child.sock, _COMMIT_LIMIT_S)
        except (EOFError, OSError, ValueError) as error:
            raise ToolRefused(f"it was interrupted: {child.reason or error}") from error
        finally:
            zygote.kill(child)  # what it has not done by now is done by whoever recovers
            child.gone.wait(SETUP_LIMIT_S)
            if child.sock is not None:
                child.sock.close()
        text = payload.decode("utf-8", "replace")
        if kind != frames.RESULT:
            raise ToolRefused(text)
        return text


class _OverlayRun(ChildRun):
    def __init__(self, tier: OverlayTier, work: Work, slots: Slots, room: Path) -> None:
        super().__init__(work, slots)
        self._tier = tier
        self._room = room
        self._settled = False
        self._over = threading.Event()
        self._owner: IO[str] | None = None

    @property
    def _plan(self) -> frames.Plan:
        place = self._order.sandbox
        return frames.Plan(
            "overlay",
            network=place.network,
            subprocesses=True,
            memory_bytes=place.memory_bytes,
            landlock=self._tier._landlock,
            workspace=place.workspace or "",
            room=str(self._room),
            read_only=self._order.changes_nothing,
        )

    def _ended(self) -> None:
        self._over.set()
        if self._cancelled:
            self._drop()

    def _run(self) -> tuple[bytes, bytes]:
        order, plan = self._order, self._plan
        overlay.lay_out(self._room)
        self._owner = (self._room / "owner").open("a")
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        zygote = self._tier.zygote_for(order)
        child = zygote.spawn(plan)
        try:
            self.has(zygote, child)
            wait_ready(child, SETUP_LIMIT_S)
            answer = ask(child, zygote.job(order), order.timeout_s)
            if not child.gone.wait(SETUP_LIMIT_S) or child.reason:
                raise ToolRefused(child.reason or "it did not end")
            return answer
        finally:
            zygote.kill(child)
            child.gone.wait(SETUP_LIMIT_S)
            if child.sock is not None:
                child.sock.close()

    def cancel(self) -> bool:
        super().cancel()
        if self._over.is_set():
            self._drop()
        return True

    def _drop(self) -> None:
        with self._lock:
            if self._settled:
                return
            self._settled = True
        self._clear()

    def _clear(self) -> None:
        """All that the run has left, unless a journal in it has still to be brought to its end."""
        if not journal.is_open(self._room):
            journal.forget(self._room.parent, self._room)
        if self._owner is not None:
            self._owner.close()

    def differs(self) -> str | None:
        return self._tier.keep_house(self._order, replace(self._plan, kind="compare")) or None

    def commit(self) -> None:
        with self._lock:
            if self._settled or self._cancelled:
                raise ToolRefused("it was dropped")
            self._settled = True
        try:
            self._tier.keep_house(self._order, replace(self._plan, kind="commit"))
        except ToolRefused:
            if not self._brought_to_its_end():
                raise
        finally:
            self._clear()

    def _brought_to_its_end(self) -> bool:
        """The committer died: where it had come as far as its journal, the changes are made now, all or none."""
        if journal.is_open(self._room):
            with contextlib.suppress(ToolRefused):
                self._tier.recover(self._order.sandbox)
        return journal.is_done(self._room)
