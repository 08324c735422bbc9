"""Whatever a tool does to its workspace: committed, the tree is the plain call's; cancelled, nothing has happened."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentspec.errors import ToolRefused
from tests.sandbox.crashing import fast_place
from tests.sandbox.operations import BASE, NOT_HERE, Operation, build, operations, perform
from tests.sandbox.places import Place
from tests.sandbox.support import look_of
from tests.sandbox.trees import age, clear, copy_of, timeless, tree_of


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with fast_place(tmp_path_factory.mktemp("place")) as opened:
        yield opened


BRIEF = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
EXAMPLES = int(os.environ.get("AGENTSPEC_TEST_EXAMPLES", "50"))

starts = st.lists(operations, max_size=6)
runs = st.lists(operations, min_size=1, max_size=12)


def start_from(workspace: Path, steps: list[Operation], plain: Path | None = None) -> None:
    """A tree that nobody has touched for long, and a copy of it."""
    clear(workspace)
    build(workspace, [*BASE, *steps])
    age(workspace)
    if plain is not None:
        if plain.exists():
            clear(plain)
        copy_of(workspace, plain)


def plainly(folder: Path, steps: list[Operation]) -> tuple[list[str], float]:
    began_s = time.time()
    with contextlib.chdir(folder):
        return perform(steps), began_s


def assert_times_fit(plain: Path, plain_began_s: float, workspace: Path, began_s: float, ended_s: float) -> None:
    """Times that the run did not set are kept; new ones lie within the run."""
    for path in [path for path in plain.rglob("*") if path.is_file() and not path.is_symlink()]:
        expected, seen = path.stat().st_mtime_ns, (workspace / path.relative_to(plain)).stat().st_mtime_ns
        if expected < (plain_began_s - 1) * 1e9:
            assert seen == expected, path
        else:
            assert (began_s - 0.02) * 1e9 <= seen <= (ended_s + 0.02) * 1e9, path


@settings(BRIEF, max_examples=EXAMPLES)
@given(start=starts, steps=runs)
def test_a_committed_run_leaves_the_tree_of_a_plain_call(
    place: Any, tmp_path: Path, start: list[Operation], steps: list[Operation]
) -> None:
    workspace, plain = place.workspace, tmp_path / "plain"
    start_from(workspace, start, plain)
    before, began_s = look_of(workspace), time.time()
    started = place.start(perform, steps=steps, in_workspace=True)
    ended, ended_s = started.wait(10.0).value(), time.time()
    assert look_of(workspace) == before
    expected, plain_began_s = plainly(plain, steps)
    if ended != expected:
        assert NOT_HERE & set(ended), (ended, expected)
        started.cancel()
        assert look_of(workspace) == before
        return
    try:
        started.commit()
    except ToolRefused as error:
        assert "hard links" in str(error), error
        assert look_of(workspace) == before
        return
    assert timeless(tree_of(workspace)) == timeless(tree_of(plain))
    assert_times_fit(plain, plain_began_s, workspace, began_s, ended_s)


@settings(BRIEF, max_examples=EXAMPLES // 4)
@given(start=starts, steps=runs)
def test_a_cancelled_run_has_never_been(place: Any, start: list[Operation], steps: list[Operation]) -> None:
    start_from(place.workspace, start)
    before = look_of(place.workspace)
    started = place.start(perform, steps=steps, in_workspace=True)
    started.wait(10.0)
    started.cancel()
    assert look_of(place.workspace) == before


def test_nothing_of_all_this_is_left_in_the_state_folder(place: Any) -> None:
    assert [path for path in place.tier.home(str(place.workspace)).iterdir() if path.is_dir()] == []
