"""What this machine can do for isolation, found by doing it once in a process of its own.

    python -m agentspec.tools_sandbox.capabilities process|overlay ROOM

A tier that is missing means: do not speculate there. It never means: run without it.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from agentspec.tools_sandbox.environment import python_path
from agentspec.tools_sandbox.kernel import calls, confine, landlock
from agentspec.tools_sandbox.tiers import frames, overlay
from agentspec.tools_sandbox.tiers.files import remove_tree
from agentspec.tools_sandbox.tiers.overlay import state_folder

_LIMIT_S = 30.0
_PROBES = {"T1": "process", "T2": "overlay"}
_ADVICE = {
    "unshare": "namespaces are denied here: allow unprivileged user namespaces "
    "(sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces), and in a container run it with "
    "--security-opt seccomp=... that permits unshare and mount",
    "mount": "mounts are denied here: in a container run it with --security-opt seccomp=... and apparmor=... that "
    "permit them; on an overlay file system set AGENTSPEC_STATE to a folder on a disk or tmpfs",
    "uid_map": "user namespaces are restricted here (sysctl kernel.apparmor_restrict_unprivileged_userns=0)",
}


@functools.cache
def missing_tiers() -> dict[str, str]:
    """By tier what is missing and what to do; those that work are not in it. Takes a second, once."""
    found: dict[str, str] = {}
    if (why := _known_machine()) is not None:
        return dict.fromkeys(("T1", "T2", "T3"), why)
    for tier, kind in _PROBES.items():
        if (why := probe(kind)) is not None:
            found[tier] = why
    if "T1" in found:
        found["T3"] = f"a worker on this machine: {found['T1']}"
    return found


def _known_machine() -> str | None:
    if sys.platform != "linux":
        return f"isolation needs Linux, this is {sys.platform}"
    if not calls.NUMBERS:
        return f"isolation knows x86_64 and aarch64, this is {calls.MACHINE}"
    version = landlock.version()
    if version < landlock.FLOOR:
        is_there = f"Landlock {version} is" if version else "no Landlock is"
        return f"{is_there} here, {landlock.FLOOR} is needed (Linux 6.2, with landlock in the kernel's lsm= list)"
    return None


def probe(kind: str) -> str | None:
    """Set up a sandbox of this kind once; why it does not work, None where it does."""
    state = state_folder()
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        room = tempfile.mkdtemp(prefix="probe-", dir=state)
    except OSError as error:
        return f"no place for copies: {error}; set AGENTSPEC_STATE to a folder that can be written"
    command = [sys.executable, "-m", "agentspec.tools_sandbox.capabilities", kind, room]
    env = {**os.environ, "PYTHONPATH": python_path()}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, env=env, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it could not be tried: {error}"
    finally:
        remove_tree(Path(room))
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    advice = next((text for mark, text in _ADVICE.items() if mark in said), "")
    return f"{said}; {advice}" if advice else said


def _try(kind: str, room: Path) -> int:
    writable: tuple[str, ...] = ()
    if kind == "overlay":
        workspace = room / "files"
        workspace.mkdir()
        overlay.lay_out(room)
        plan = frames.Plan("overlay", memory_bytes=2**26, workspace=str(workspace), room=str(room))
        overlay.enter_namespaces()
        if (child := os.fork()) != 0:
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        overlay.mount_all(plan)
        writable = (plan.workspace,)
    known = landlock.version()
    confine.give_up_rights(confine.Confinement(False, kind == "overlay", 2**30, known, writable))
    if writable:
        (Path(writable[0]) / "made").write_text("x")
    try:
        (room / "escaped").write_text("x")
    except OSError:
        return 0
    sys.stderr.write("a file outside of the sandbox could be written\n")
    return 1


def _main() -> int:
    try:
        return _try(sys.argv[1], Path(sys.argv[2]))
    except OSError as error:
        sys.stderr.write(f"{error.strerror or error}\n")
        return 1


if __name__ == "__main__":
    os._exit(_main())
