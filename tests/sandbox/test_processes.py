"""Conformance: a run ends when it is told to, with all that it started, and takes no more than its share."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox import process_attacks, tools
from tests.sandbox.support import DENIED, ISOLATED, OVERLAY, READ_ONLY, assert_denied, eventually, gone, processes_named

MEGABYTE = 1 << 20
WAYS_TO_STAY = ["busy", "asleep", "deaf", "stopped", "in threads", "in C"]
WAYS_TO_FORK = ["fork", "clone", "clone3", "spawn", "subprocess"]
ROOT = Path(__file__).resolve().parents[2]
AGENT = """
import os, sys, time
from pathlib import Path
from tests.sandbox import process_attacks
from tests.sandbox.places import open_place

with open_place(sys.argv[1], Path(sys.argv[2])) as place:
    run = place.start(process_attacks.stay, how=sys.argv[3], mark=os.environ["MARK"], timeout_s=600.0)
    time.sleep(600)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """A name by which the run's processes are found from outside; whatever is left at the end is killed."""
    name = f"run-{secrets.token_hex(5)}"
    yield name
    for pid in processes_named(name):
        os.kill(pid, 9)


def nothing_left(mark: str) -> bool:
    return not processes_named(mark)


@ISOLATED
@pytest.mark.parametrize("how", WAYS_TO_STAY)
def test_a_run_that_takes_too_long_is_an_error_and_gone(place: Any, how: str, mark: str) -> None:
    started = place.start(process_attacks.stay, how=how, mark=mark, timeout_s=0.5)
    outcome = started.wait(5.0)
    assert outcome.error is not None
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")
    started.cancel()


@ISOLATED
@pytest.mark.parametrize("how", WAYS_TO_STAY)
def test_cancelling_really_kills(place: Any, how: str, mark: str) -> None:
    started = place.start(process_attacks.stay, how=how, mark=mark)
    eventually(lambda: processes_named(mark), "the run is seen from outside")
    started.cancel()
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")
    assert started.wait(2.0).error is not None


@ISOLATED
def test_cancelling_an_async_tool_really_kills(place: Any, mark: str) -> None:
    started = place.start(process_attacks.stay_async, mark=mark)
    eventually(lambda: processes_named(mark), "the run is seen from outside")
    started.cancel()
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")


@ISOLATED
def test_cancelling_at_once_and_twice_is_fine(place: Any, mark: str) -> None:
    started = place.start(process_attacks.stay, how="asleep", mark=mark)
    started.cancel()
    started.cancel()
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")
    assert place.run(tools.echo, value=1).value() == 1


@ISOLATED
def test_a_run_that_has_ended_leaves_no_process(place: Any) -> None:
    started = place.start(tools.echo, value=1)
    assert started.wait(5.0).value() == 1
    started.cancel()
    eventually(lambda: gone(started.pid), "the process is gone")


@ISOLATED
@pytest.mark.parametrize("how", ["deaf", "stopped"])
def test_when_the_agent_is_killed_its_runs_die(place: Any, how: str, mark: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", AGENT, place.name, str(tmp_path), how]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"MARK": mark}) as agent:
        try:
            eventually(lambda: processes_named(mark), "the run is seen from outside")
        finally:
            agent.kill()
    eventually(lambda: nothing_left(mark), "the run died with its agent")


@READ_ONLY
@pytest.mark.parametrize("how", WAYS_TO_FORK)
def test_without_subprocesses_declared_there_are_none(place: Any, how: str, mark: str) -> None:
    assert_denied(place.run(process_attacks.fork, how=how, mark=mark).value(), DENIED | {"EAGAIN"})
    assert nothing_left(mark)


@ISOLATED
def test_with_subprocesses_declared_programs_run(place: Any) -> None:
    arguments = ["sh", "-c", "echo out | tr a-z A-Z"]
    assert place.run(process_attacks.run_program, arguments=arguments, subprocesses=True).value() == "OUT\n"


@ISOLATED
@pytest.mark.parametrize("how", WAYS_TO_FORK)
def test_what_a_tool_started_ends_with_the_run(place: Any, how: str, mark: str) -> None:
    place.run(process_attacks.fork, how=how, mark=mark, subprocesses=True)
    eventually(lambda: nothing_left(mark), "the processes are gone")


@ISOLATED
def test_a_daemon_does_not_outlive_the_run(place: Any, mark: str) -> None:
    place.run(process_attacks.leave_behind, mark=mark, subprocesses=True)
    eventually(lambda: nothing_left(mark), "the daemon is gone")


@OVERLAY
def test_a_run_that_leaves_a_process_behind_is_void(place: Any, mark: str) -> None:
    assert place.run(process_attacks.leave_behind, mark=mark, subprocesses=True).error is not None


@ISOLATED
def test_a_fork_bomb_is_defused_by_cancelling(place: Any, mark: str) -> None:
    started = place.start(process_attacks.bomb, mark=mark, size=25, subprocesses=True)
    eventually(lambda: len(processes_named(mark)) > 1, "the bomb goes off")
    started.cancel()
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")


@ISOLATED
def test_a_fork_bomb_is_defused_by_its_time_limit(place: Any, mark: str) -> None:
    started = place.start(process_attacks.bomb, mark=mark, size=25, subprocesses=True, timeout_s=0.7)
    assert started.wait(5.0).error is not None
    eventually(lambda: gone(started.pid) and nothing_left(mark), "the processes are gone")
    started.cancel()


@ISOLATED
@pytest.mark.parametrize("how", ["heap", "shared mapping", "unnamed files"])
def test_a_tool_that_takes_too_much_memory_is_stopped(place: Any, how: str) -> None:
    outcome = place.run(process_attacks.eat, how=how, megabytes=512, memory_bytes=256 * MEGABYTE)
    assert outcome.error is not None
    assert place.run(tools.echo, value=1).value() == 1


@ISOLATED
def test_within_its_limit_memory_can_be_had(place: Any) -> None:
    assert place.run(process_attacks.eat, how="heap", megabytes=96, memory_bytes=1024 * MEGABYTE).value() == 96


@READ_ONLY
def test_a_run_that_nobody_waits_for_does_not_hold_up_others(place: Any, mark: str) -> None:
    slow = place.start(process_attacks.stay, how="asleep", mark=mark)
    began = time.monotonic()
    assert place.run(tools.echo, value=1).value() == 1
    assert time.monotonic() - began < 2.0
    slow.cancel()
