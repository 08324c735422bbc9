"""Conformance: other processes are out of reach, and the kernel grants nothing that a run ahead does not need."""

from __future__ import annotations

import os
import resource
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import kernel_attacks, process_attacks, secret_attacks
from tests.sandbox.support import (
    DENIED,
    HIDDEN,
    ISOLATED,
    OVERLAY,
    READ_ONLY,
    UNMAPPED,
    assert_denied,
    eventually,
    state_of,
)

OWN_GROUPS = {"session", "process group"}
NONE = "0000000000000000"


@pytest.fixture
def bystander() -> Iterator[int]:
    """A process of the same user, outside."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as process:
        eventually(lambda: state_of(process.pid) == "S", "it sleeps")
        yield process.pid
        process.kill()


def look_of_process(pid: int) -> list[Any]:
    """Everything about a process that an attack could change."""
    return [
        state_of(pid),
        os.getpriority(os.PRIO_PROCESS, pid),
        os.sched_getaffinity(pid),
        os.sched_getscheduler(pid),
        resource.prlimit(pid, resource.RLIMIT_CORE),
        Path(f"/proc/{pid}/comm").read_text(),
        Path(f"/proc/{pid}/oom_score_adj").read_text(),
        "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text(),
    ]


@ISOLATED
@pytest.mark.parametrize("how", process_attacks.REACHES)
def test_another_process_cannot_be_touched(place: Any, bystander: int, how: str) -> None:
    before = look_of_process(bystander)
    assert_denied(place.run(process_attacks.reach, how=how, pid=bystander).value(), HIDDEN)
    assert look_of_process(bystander) == before


@ISOLATED
def test_the_kernel_sends_no_signal_on_the_runs_behalf(place: Any, bystander: int) -> None:
    place.run(process_attacks.reach_by_owner_signal, pid=bystander)
    assert state_of(bystander) == "S"


@ISOLATED
@pytest.mark.parametrize(
    "how", ["signal 0", "SIGUSR1", "signal to its thread", "queued signal", "signal by descriptor"]
)
def test_the_agent_gets_no_signal(place: Any, how: str) -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: received.append(number))
    try:
        assert_denied(place.run(process_attacks.reach, how=how, pid=os.getpid()).value(), HIDDEN)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert received == []


@ISOLATED
def test_a_program_that_the_tool_starts_cannot_touch_another_process(place: Any, bystander: int) -> None:
    script = f"kill -9 {bystander} 2>&1; renice 19 {bystander} 2>&1; true"
    place.run(process_attacks.run_program, arguments=["sh", "-c", script], subprocesses=True).value()
    assert state_of(bystander) == "S"
    assert os.getpriority(os.PRIO_PROCESS, bystander) == os.getpriority(os.PRIO_PROCESS, 0)


@ISOLATED
@pytest.mark.parametrize("what", sorted(set(kernel_attacks.CALLS) - OWN_GROUPS))
def test_the_kernel_grants_no_privilege(place: Any, what: str) -> None:
    expected = DENIED | UNMAPPED if what == "user id" else DENIED
    assert_denied(place.run(kernel_attacks.ask, what=what).value(), expected)


@ISOLATED
@pytest.mark.parametrize("what", ["user namespace", "bpf", "mount namespace", "clock"])
def test_nor_does_it_where_subprocesses_and_network_are_declared(place: Any, what: str) -> None:
    assert_denied(place.run(kernel_attacks.ask, what=what, subprocesses=True, network=True).value())


@READ_ONLY
@pytest.mark.parametrize("subprocesses", [False, True])
@pytest.mark.parametrize("what", sorted(OWN_GROUPS))
def test_no_process_leaves_its_group_where_the_group_is_what_gets_killed(
    place: Any, what: str, subprocesses: bool
) -> None:
    assert_denied(place.run(kernel_attacks.ask, what=what, subprocesses=subprocesses).value())


@ISOLATED
@pytest.mark.parametrize("subprocesses", [False, True])
def test_a_run_has_no_capabilities_and_can_gain_none(place: Any, subprocesses: bool) -> None:
    rights = place.run(secret_attacks.rights, subprocesses=subprocesses).value()
    assert (rights["NoNewPrivs"], rights["Seccomp"]) == ("1", "2")
    assert {rights[name] for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {NONE}


@ISOLATED
def test_a_program_that_the_tool_starts_gains_none_either(place: Any) -> None:
    rights = place.run(secret_attacks.rights_of_a_program, subprocesses=True).value()
    assert rights == {"no_new_privs": 1, "seccomp": 2, "effective": 0, "permitted": 0}


@OVERLAY
@pytest.mark.parametrize("path", ["/proc/self/status", "/dev/stdin", "/dev/fd/0"])
def test_a_program_that_the_tool_starts_finds_its_own_files_in_proc(place: Any, path: str) -> None:
    """Shells and many programs rely on it."""
    outcome = place.run(process_attacks.run_program, arguments=["cat", path], subprocesses=True)
    assert outcome.error is None


@ISOLATED
@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a setuid program of root's")
def test_a_setuid_program_gains_nothing(place: Any) -> None:
    """As root there is nothing to gain but capabilities: `su` needs them to become somebody else."""
    outcome = place.run(
        process_attacks.run_program, arguments=["su", "nobody", "-s", "/bin/sh", "-c", "id -un"], subprocesses=True
    )
    assert outcome.error is not None or "nobody" not in outcome.result


@ISOLATED
@pytest.mark.parametrize(
    "what",
    ["shared memory", "semaphores", "message queue", "POSIX message queue", "key", "keyring", "POSIX shared memory"],
)
def test_nothing_is_kept_where_it_outlives_its_process(place: Any, what: str) -> None:
    key, name = secrets.randbits(30) | 1 << 29, f"kept-{secrets.token_hex(4)}"
    outcome = place.run(kernel_attacks.keep, what=what, key=key, name=name)
    private = place.name == "T2" and what == "POSIX shared memory"
    assert private or outcome.error is not None or outcome.result in DENIED
    assert kept(key, name) == []


def kept(key: int, name: str) -> list[str]:
    """Where a key of System V, or a name, is found from outside."""
    tables = ["/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg", "/proc/keys"]
    there = [path for path in map(Path, tables) if path.exists()]
    found = [str(path) for path in there if str(key) in path.read_text() or name in path.read_text()]
    return found + [folder for folder in ("/dev/shm", "/dev/mqueue") if Path(folder, name).exists()]
