"""Children that kill themselves before their n-th change of the file system, and workspaces to do it in."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec import speculate
from agentspec.sandbox import Sandbox
from agentspec.tools_sandbox.declare import declared
from agentspec.tools_sandbox.tiers import frames, journal, overlay
from agentspec.tools_sandbox.tiers.overlay_tier import OverlayTier
from agentspec.tools_sandbox.tool import DeclaredTool
from tests.sandbox import commit_tools
from tests.sandbox.places import Place, open_place
from tests.sandbox.trees import copy_of, fast_folder

_AUDITED = frozenset(
    f"os.{name}"
    for name in ("rename", "remove", "mkdir", "rmdir", "link", "symlink", "chmod", "chown", "utime", "truncate")
) | {"os.setxattr", "os.removexattr"}
_NOT_AUDITED = ("fsync", "fdatasync", "sync", "mkfifo", "mknod", "write", "copy_file_range")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def watch_changes(before_each: Callable[[str], None]) -> None:
    """In a child that will not live long: be told of every change of the file system before it happens."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _AUDITED or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING):
            before_each(event)

    sys.addaudithook(hook)
    for name in _NOT_AUDITED:
        setattr(os, name, _told(name, getattr(os, name), before_each))
    plain_sendfile = os.sendfile

    def halves(out: int, source: int, offset: int, count: int) -> int:
        sent = plain_sendfile(out, source, offset, count if offset else min(count, 7))
        before_each("sendfile")
        return sent

    os.sendfile = halves  # type: ignore[assignment]


def _told(name: str, plain: Callable[..., Any], before_each: Callable[[str], None]) -> Callable[..., Any]:
    def told(*args: Any, **options: Any) -> Any:
        before_each(name)
        return plain(*args, **options)

    return told


def die_before(number: int) -> None:
    """In a child: kill yourself as soon as you are about to make your `number`th change."""
    left = [number]

    def count(_: str) -> None:
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    watch_changes(count)


def in_child(act: Callable[[], Any], dying_before: int | None = None) -> bool:
    """Do it in a forked child; whether it came to its end before it killed itself.

    Raises:
        AssertionError: it failed; its last words are on standard error.
    """
    if (pid := os.fork()) == 0:
        code = 1
        try:
            if dying_before is not None:
                die_before(dying_before)
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status == 0


@contextlib.contextmanager
def fast_place(otherwise: Path) -> Iterator[Place]:
    """Tier T2 over a workspace where a sync costs nothing, if there is such a folder."""
    with fast_folder(otherwise) as folder:
        (folder / "workspace").mkdir()
        with open_place("T2", folder / "workspace") as place:
            yield place


@dataclass(frozen=True)
class Site:
    """A workspace with a run that has ended and waits for its commit."""

    workspace: Path
    state: Path
    plan: frames.Plan

    @property
    def home(self) -> Path:
        return Path(self.plan.room).parent

    def rested(self) -> Site:
        """The same, after it was changed on purpose: as if the run had started only now."""
        overlay.snapshot_before(self.plan)
        return self

    def commit(self) -> None:
        """As the committing child does it."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            overlay.housekeeping(theirs, self.plan)

    def recover(self) -> None:
        """As an agent does it before it makes a call in the workspace."""
        OverlayTier(state=self.state).recover(Sandbox("overlay", workspace=str(self.workspace)))

    def tool(self) -> DeclaredTool:
        """One that an agent of this workspace declares."""
        sandbox = Sandbox("overlay", workspace=str(self.workspace))
        return declared(speculate(commit_tools.rework, effect="write", stable_for=60.0, sandbox=sandbox))

    def left_over(self) -> list[str]:
        """What a run has left in the state folder and in the workspace."""
        ours = [path.name for path in self.workspace.iterdir() if path.name.startswith(".agentspec-")]
        return ours + [path.name for path in self.home.iterdir() if path.is_dir()]


class Sites:
    """Copies of one site, each fit to be committed once."""

    def __init__(self, base: Path, model: Path) -> None:
        self._base = base
        self._model = model
        self._upper = base / "upper"
        self.state = base / "state"
        self._count = 0
        self._made: list[tuple[Path, Path]] = []

    def run(self, tool: Callable[..., Any], **arguments: Any) -> None:
        """Run it once over the model, and keep what it changed."""
        tier = OverlayTier(state=self._base / "first")
        with contextlib.closing(tier):
            started = Place("T2", tier, self._model).start(tool, in_workspace=True, **arguments)
            started.wait(10.0).value()
            (upper,) = (self._base / "first").glob("*/*/upper")
            copy_of(upper, self._upper)
            started.cancel()

    def next(self) -> Site:
        """A fresh copy, now at rest."""
        if not self._made:
            self._made = [self._lay_out() for _ in range(16)]
        workspace, room = self._made.pop(0)
        plan = frames.Plan("commit", workspace=str(workspace), room=str(room))
        overlay.snapshot_before(plan)
        return Site(workspace, self.state, plan)

    def _lay_out(self) -> tuple[Path, Path]:
        self._count += 1
        workspace = copy_of(self._model, self._base / "workspaces" / str(self._count))
        room = OverlayTier(state=self.state).home(str(workspace)) / "room"
        overlay.lay_out(room)
        copy_of(self._upper, room / "upper")
        return workspace, room


def milestones(site: Site) -> tuple[int, int]:
    """Commit; by which of its changes the commit is irrevocable, and how many there are in all."""
    seen = [0, 0]
    reading, writing = os.pipe()

    def count(_: str) -> None:
        seen[1] += 1
        if not seen[0] and journal.pending(site.home):
            seen[0] = seen[1]

    def act() -> None:
        watch_changes(count)
        site.commit()
        os.writev(writing, [json.dumps(seen).encode()])

    assert in_child(act)
    os.close(writing)
    with open(reading, "rb") as file:
        irrevocable, total = json.loads(file.read())
    return irrevocable, total
