"""Hundreds of runs that come to nothing leave nothing: files, processes, mounts, descriptors, sockets, rooms."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentspec.errors import ToolRefused
from tests.sandbox import commit_tools, outside
from tests.sandbox.support import eventually, look_of
from tests.sandbox.trees import lay_out

pytestmark = pytest.mark.parametrize("place", ["T1", "T2"], indirect=True, scope="module")

AT_ONCE = 4
MANY = int(os.environ.get("AGENTSPEC_TEST_MANY", "60"))


@pytest.fixture(scope="module")
def state(place: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for what runs change; T1 has none."""
    if place.name == "T1":
        return tmp_path_factory.mktemp("none")
    home: Path = place.tier.home(str(place.workspace))
    return home


@pytest.fixture
def unchanged(place: Any, state: Path) -> Iterator[list[Any]]:
    """From outside, everything is afterwards as it was; so is the workspace, unless the list is cleared."""
    if not list(place.workspace.iterdir()):
        lay_out(place.workspace)
    for subprocesses in (False, True, False):  # zygote, spares, lazy imports
        run_and_drop(place, commit_tools.rework, subprocesses=subprocesses)
    before = eventually(lambda: at_rest(place, state), "the start is at rest")
    trees, inherited = [look_of(place.workspace)], inherited_descriptors()
    yield trees
    settled = False
    with contextlib.suppress(AssertionError):  # the next line says it better
        settled = eventually(lambda: no_more_than(before, surroundings(place, state)), "everything is as it was")
    assert settled, (before, surroundings(place, state))
    eventually(lambda: inherited_descriptors() < inherited + 4, "no descriptors beyond those of a spare child")
    assert trees in ([], [look_of(place.workspace)])
    with contextlib.suppress(PermissionError):
        assert outside.foreign_namespaces(f"{state}/") == []


def no_more_than(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """The same; other tests of this process may have closed descriptors and ended threads meanwhile."""
    fewer = {name: before[name] for name in ("descriptors", "threads") if after[name] < before[name]}
    return {**after, **fewer} == before


def inherited_descriptors() -> int:
    """Of the zygotes and their children."""
    return sum(outside.descriptors(pid) for pid in outside.below(os.getpid()))


def surroundings(place: Any, state: Path) -> dict[str, Any]:
    """What is seen from outside; children that wait for a run, one more or one less, are what the tier keeps."""
    found = outside.surroundings(state)
    spares = sum(len(waiting) for waiting in getattr(place.tier, "_spares", {}).values())
    return {**found, "processes": found["processes"] - spares}


def at_rest(place: Any, state: Path) -> dict[str, Any] | None:
    before = surroundings(place, state)
    time.sleep(0.15)
    return before if surroundings(place, state) == before else None


def run_and_drop(place: Any, tool: Callable[..., Any], **arguments: Any) -> None:
    started = place.start(tool, in_workspace=True, **arguments)
    started.wait(10.0)
    started.cancel()


@pytest.mark.usefixtures("unchanged")
def test_many_runs_that_ended_and_were_dropped_leave_nothing(place: Any) -> None:
    for _ in range(MANY):
        run_and_drop(place, commit_tools.rework)


@pytest.mark.usefixtures("unchanged")
def test_many_runs_that_are_cancelled_midway_leave_nothing(place: Any) -> None:
    chance = random.Random(3)
    for _ in range(MANY // AT_ONCE):
        started = [place.start(commit_tools.scribble, seconds=10.0, in_workspace=True) for _ in range(AT_ONCE)]
        time.sleep(chance.random() * 0.08)
        for run in started:
            run.cancel()
        for run in started:
            assert run.ended.wait(5.0)


@pytest.mark.usefixtures("unchanged")
def test_runs_that_leave_programs_behind_leave_none(place: Any) -> None:
    for _ in range(10):
        run_and_drop(place, commit_tools.start_programs, subprocesses=True)


@pytest.mark.usefixtures("unchanged")
def test_runs_whose_files_nobody_may_read_leave_nothing(place: Any) -> None:
    for _ in range(5):
        run_and_drop(place, commit_tools.hide)


def test_refused_commits_leave_nothing(place: Any, unchanged: list[Any]) -> None:
    unchanged.clear()  # here the workspace changes, as a reason to refuse
    if place.name == "T1":
        pytest.skip("T1 commits nothing")
    for _ in range(10):
        started = place.start(commit_tools.hide, in_workspace=True)
        started.wait(10.0)
        os.utime(place.workspace / "kept")
        with pytest.raises(ToolRefused):
            started.commit()


@pytest.mark.usefixtures("unchanged")
def test_runs_that_nobody_settles_are_over_when_they_are_cancelled_at_last(place: Any) -> None:
    started = []
    for _ in range(8):
        started.append(place.start(commit_tools.rework, in_workspace=True))
        started[-1].wait(10.0)
    for run in started:
        run.cancel()
        run.cancel()
