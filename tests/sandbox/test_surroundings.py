"""Conformance: a run finds itself where the caller is, except for what is kept from it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import pytest

from tests.sandbox import secret_attacks, tools
from tests.sandbox.support import EVERYWHERE, ISOLATED, ON_THIS_MACHINE, eventually, gone


@pytest.fixture(scope="module")
def seen(place: Any) -> dict[str, Any]:
    """What a run says of its surroundings."""
    found: dict[str, Any] = place.run(tools.surroundings).value()
    return found


@EVERYWHERE
def test_the_working_directory_is_the_callers(seen: dict[str, Any]) -> None:
    assert seen["cwd"] == os.getcwd()


@ON_THIS_MACHINE
def test_another_working_directory_is_followed(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/usr")
    assert place.run(tools.surroundings).value()["cwd"] == "/usr"


@ON_THIS_MACHINE
def test_in_the_workspace_the_working_directory_is_the_workspace(place: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.workspace)
    assert place.run(tools.surroundings, in_workspace=True).value()["cwd"] == str(place.workspace)


@EVERYWHERE
def test_the_umask_is_the_callers(seen: dict[str, Any]) -> None:
    umask = os.umask(0o022)
    os.umask(umask)
    assert seen["umask"] == umask


@EVERYWHERE
def test_the_user_is_the_callers(seen: dict[str, Any]) -> None:
    assert (seen["uid"], seen["gid"]) == (os.getuid(), os.getgid())


@EVERYWHERE
def test_the_interpreter_is_the_callers(seen: dict[str, Any]) -> None:
    assert seen["executable"] == sys.executable


@EVERYWHERE
def test_the_clocks_agree_with_the_callers(place: Any) -> None:
    seen = place.run(secret_attacks.clocks).value()
    here = [time.time(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME)]
    assert seen == pytest.approx(here, abs=1.0)
    assert place.run(tools.surroundings).value()["zone"] == time.strftime("%z")


@EVERYWHERE
def test_threads_work_in_a_tool(place: Any) -> None:
    assert place.run(tools.in_threads, count=8).value() == [number * number for number in range(8)]


@ISOLATED
def test_a_thread_left_behind_ends_with_its_run(place: Any) -> None:
    started = place.start(tools.leave_a_thread)
    assert started.wait(5.0).value() == "done"
    started.cancel()
    eventually(lambda: gone(started.pid), "the process is gone")


@ISOLATED
def test_one_runs_globals_are_not_seen_by_the_next(place: Any) -> None:
    assert [place.run(tools.count).value() for _ in range(3)] == [1, 1, 1]
    assert tools.COUNTER == 0


@EVERYWHERE
def test_two_runs_never_draw_the_same_luck(place: Any) -> None:
    draws = [place.run(tools.luck).value() for _ in range(3)]
    assert all(len(set(kind)) == 3 for kind in zip(*draws, strict=True))


@ISOLATED
def test_a_flood_on_the_standard_streams_goes_nowhere(place: Any, capfd: pytest.CaptureFixture[str]) -> None:
    assert place.run(tools.speak, megabytes=20).value() == 20
    assert "".join(capfd.readouterr()) == ""


@ISOLATED
def test_the_standard_input_is_empty(place: Any) -> None:
    assert place.run(tools.listen).value() == ""


@ISOLATED
def test_only_the_standard_streams_and_the_runs_own_socket_are_open(place: Any) -> None:
    found = place.run(secret_attacks.descriptors).value()
    assert [found.pop(number) for number in "012"] == ["/dev/null"] * 3
    assert len(found) <= 1
    assert all(target.startswith(("socket:", "pipe:")) for target in found.values())
