"""Inside a child: a copy-on-write view of one folder, everything else read-only (Linux, filesystems/overlayfs)."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from agentspec.errors import ToolRefused
from agentspec.tools_sandbox.kernel import calls
from agentspec.tools_sandbox.tiers import frames, journal, workspace
from agentspec.tools_sandbox.tiers.difference import Change, attributes, read_difference

PRIVATE = ("/tmp", "/dev/shm")
"""Folders where a tool may put things away; a run that leaves any there counts for nothing."""

_NEW_NS, _NEW_USER, _NEW_PID = 0x00020000, 0x10000000, 0x20000000
_NOSUID, _NODEV, _NOEXEC, _REC, _PRIVATE = 2, 4, 8, 0x4000, 1 << 18
_CAP_SYS_ADMIN = 21
_SNAPSHOT = "before"


LEFT_FILES = 77
"""Exit status of a run that left something in a private folder."""


def state_folder() -> Path:
    """Where runs keep what they changed: `AGENTSPEC_STATE`, else `XDG_STATE_HOME`/agentspec, else ~/.local/state."""
    named = os.environ.get("AGENTSPEC_STATE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "agentspec" / "overlays"


def lay_out(room: Path) -> None:
    """The folders of a run, before it starts."""
    for folder in ("upper", "work", "private"):
        (room / folder).mkdir(parents=True)


def snapshot_before(plan: frames.Plan) -> None:
    """Note what the workspace looks like before the run sees it; the view's root folder gets the same looks."""
    before = workspace.snapshot(plan.workspace)
    workspace.save(before, Path(plan.room) / _SNAPSHOT)
    real, upper = os.stat(plan.workspace), f"{plan.room}/upper"
    if (real.st_uid, real.st_gid) != (os.stat(upper).st_uid, os.stat(upper).st_gid):
        os.chown(upper, real.st_uid, real.st_gid)
    os.chmod(upper, before[b""][0] & 0o7777)
    for name, value in attributes(os.fsencode(plan.workspace)).items():
        os.setxattr(upper, name, value)
    os.utime(upper, ns=(before[b""][3], before[b""][3]))


def enter_namespaces() -> None:
    """A mount and a process namespace of our own, and where that needs a right that we lack, a user namespace.

    Raises:
        OSError: the kernel, or a filter around us, does not let us.
    """
    if _may_mount():
        calls.syscall("unshare", _NEW_NS | _NEW_PID)
        return
    uid, gid = os.getuid(), os.getgid()
    calls.syscall("unshare", _NEW_USER | _NEW_NS | _NEW_PID)
    with contextlib.suppress(FileNotFoundError):
        Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _may_mount() -> bool:
    status = Path("/proc/self/status").read_text()
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> _CAP_SYS_ADMIN & 1)


def mount_all(plan: frames.Plan) -> list[str]:
    """The view: the workspace and the private folders copied on write, the rest read-only.

    Returns:
        the private folders; what is written there lies in memory, at most `memory_bytes` of it.

    Raises:
        OSError: a mount failed; the message says which.
    """
    calls.mount("", "/", "", _REC | _PRIVATE)
    with contextlib.suppress(OSError):  # refused where parts of the old one are masked; Landlock hides it anyway
        calls.mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    room = Path(plan.room)
    calls.mount("tmpfs", f"{room}/private", "tmpfs", _NOSUID | _NODEV, f"size={plan.memory_bytes},mode=0700")
    lower, upper = (os.open(path, os.O_PATH | os.O_DIRECTORY) for path in (plan.workspace, room))
    private = [folder for folder in PRIVATE if os.path.isdir(folder)]
    for number, folder in enumerate(private):
        layer = Path(f"/proc/self/fd/{upper}/private/{number}")
        for part in ("upper", "work"):
            (layer / part).mkdir(parents=True)
        _overlay(folder, folder, layer)
    _overlay(f"/proc/self/fd/{lower}", plan.workspace, Path(f"/proc/self/fd/{upper}"))
    os.close(lower)
    calls.make_read_only("/")
    for folder in (*private, plan.workspace):
        calls.make_writable(folder)
    os.chdir(f"/proc/self/fd/{upper}/private")  # where `be_init` looks, whatever hides it
    os.close(upper)
    return private


def be_init(tool: int, private: list[str]) -> int:
    """The first process of the namespace: reaps until the tool has ended; everything else ends with it.

    Returns:
        the exit status of the run.
    """
    while True:
        pid, status = os.wait()
        if pid == tool:
            break
    if any(os.listdir(f"{number}/upper") for number, _ in enumerate(private)):
        return LEFT_FILES
    return os.waitstatus_to_exitcode(status) & 0xFF


def _overlay(lower: str, target: str, layer: Path) -> None:
    options = {"lowerdir": lower, "upperdir": f"{layer}/upper", "workdir": f"{layer}/work"}
    text = ",".join(f"{name}={_escaped(path)}" for name, path in options.items())
    calls.mount("overlay", target, "overlay", _NOSUID | _NODEV, f"{text},userxattr")


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


# What is done outside of the view, after the run


def housekeeping(sock: socket.socket, plan: frames.Plan) -> int:
    """Commit a run, or compare it with what really happened; says how it went."""
    room, answer = Path(plan.room), ""
    with journal.locked(room.parent):
        if plan.kind == "compare":
            answer = _compare(plan, room)
        else:
            journal.recover(room.parent)
            _commit(plan, room)
    frames.send(sock, frames.RESULT, answer.encode("utf-8", "replace"))
    return 0


def _commit(plan: frames.Plan, room: Path) -> None:
    before = workspace.load(room / _SNAPSHOT)
    if (changed := workspace.unchanged(plan.workspace, before)) is not None:
        raise ToolRefused(f"the workspace has changed since: {changed}")
    upper = room / "upper"
    changes = read_difference(upper, Path(plan.workspace), before)
    if plan.read_only and changes:
        raise ToolRefused(f'declared "read", but it changed {os.fsdecode(changes[-1].path) or "the folder itself"}')
    journal.commit(room, plan.workspace, upper, changes)


def _compare(plan: frames.Plan, room: Path) -> str:
    """The same call has really run: what is otherwise there than this run would have left it."""
    before, now = workspace.load(room / _SNAPSHOT), workspace.snapshot(plan.workspace)
    upper = room / "upper"
    changes = {change.path: change for change in read_difference(upper, Path(plan.workspace), before) if change.path}
    ahead = {path for path, change in changes.items() if not _only_touched(change, before)}
    emptied = tuple(change.path + b"/" for change in changes.values() if change.opaque or change.kind == "remove")
    ahead |= {path for path in before if path.startswith(emptied)}
    for path in sorted(ahead ^ workspace.changed_files(before, now)):
        if path in ahead and not _differs(changes.get(path), upper, plan.workspace, path):
            continue
        return f"{os.fsdecode(path)} changed {'ahead' if path in ahead else 'really'} only"
    different = (p for p in sorted(ahead) if _differs(changes.get(p), upper, plan.workspace, p))
    return next((f"{os.fsdecode(path)} is another than the run left" for path in different), "")


def _only_touched(change: Change, before: workspace.Snapshot) -> bool:
    return change.kind == "dir" and change.path in before


def _differs(change: Change | None, upper: Path, root: str, path: bytes) -> bool:
    real, made = os.path.join(os.fsencode(root), path), os.path.join(os.fsencode(upper), path)
    if change is None or change.kind == "remove":
        return os.path.lexists(real) and change is not None
    try:
        seen, model = os.lstat(real), os.lstat(made)
        if seen.st_mode != model.st_mode:
            return True
        if change.kind == "symlink":
            return os.readlink(real) != change.target
        return (
            change.kind in ("file", "link")
            and Path(os.fsdecode(real)).read_bytes() != Path(os.fsdecode(made)).read_bytes()
        )
    except OSError:
        return True
